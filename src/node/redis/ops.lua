-- Executes one whole call on a node: every operation in order, nothing of another call between (N1).
--
-- KEYS[1]  '{ns}:1:node', the node's hash; every other key of ours has the same prefix and hash tag.
-- ARGV     not_after ('' = none), raw ('1' = lock keys stand verbatim), then each operation: its code and its fields.
-- Reply    { 0, at } when the call came too late (N2), else { 1, at, answers }.
--
-- Tokens, rounds and revisions are below 2^53 (the sender sees to it), where Lua's numbers are exact. They go to
-- Redis through text(): tostring() would round them to 14 digits.

local node = KEYS[1]
local base = string.sub(node, 1, -5)
local locks, channel = base .. 'idx', base .. 'ch'
local raw = ARGV[2] == '1'

local time = redis.call('TIME')
local at = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' and at > tonumber(ARGV[1]) then return { 0, at } end

-- Answer codes, as the decoder knows them.
local GRANTED, KEPT, HEALED, LARGER, REFUSED, TOO_EARLY, DONE, VIEW, VIEWS, DOCS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local BROKEN, UNADMITTED, ADMISSION = 11, 12, 13

-- How long at most a release is remembered beside the record, against requests that arrive after it.
local MARKER_MS = 60000
-- How much longer than a claim its owner's grant is remembered.
local GRANT_SLACK_MS = 10000

local position = 2
local function arg()
  position = position + 1
  return ARGV[position]
end

local function number(value) return value and tonumber(value) or 0 end
local function text(value) return string.format('%.0f', value) end

local function lock_key(key) return raw and key or base .. 'l:' .. key end
local function record_key(key) return base .. 'r:' .. key end
local function owner_key(owner) return base .. 'g:' .. owner end
local function doc_key(name) return base .. 'doc:' .. name end
-- The index of a directory: of a document that of its name up to the last slash.
local function index_of(dir) return base .. 'docs:' .. dir end
local function directory(name) return string.match(name, '^(.*/)') or '' end

-- === the node's counter ===

local counter = number(redis.call('HGET', node, 'counter'))

local function raise(to)
  if to > counter then
    counter = to
    redis.call('HSET', node, 'counter', text(to))
  end
end

-- === reading ===

-- What stands in the lock's key, whoever wrote it; false when free.
local function value(key)
  local found = redis.pcall('GET', lock_key(key))
  if type(found) ~= 'table' then return found end
  -- A stranger's hash or list under a raw key is held by somebody, too; any other error ends the call.
  if string.find(found.err or '', 'WRONGTYPE', 1, true) then return '(not a string)' end
  return redis.call('GET', lock_key(key))
end

local function record(key)
  local r = redis.call('HMGET', record_key(key),
    'owner', 'seq', 'grant', 'released', 'counter', 'token', 'rev', 'body', 'ttl')
  return {
    owner = r[1], seq = number(r[2]), grant = number(r[3]), released = r[4] == '1',
    counter = number(r[5]), token = number(r[6]), rev = number(r[7]), body = r[8] or '',
    ttl = number(r[9]),
  }
end

local function view(key)
  local holder, r = value(key), record(key)
  local token = r.counter
  if holder and not r.owner then token = number(redis.call('HGET', owner_key(holder), 'grant')) end
  return {
    key, holder, redis.call('PTTL', lock_key(key)), r.owner, r.seq, r.released and 1 or 0, token,
    r.token, r.rev, r.body, r.ttl, r.owner and 1 or 0,
  }
end

-- What the next token of this lock is above: its record's counter or, without a record, the node's, which is above
-- every token that was ever given away here.
local function known(r) return r.owner and r.counter or counter end

local function refused(key) return { REFUSED, view(key) } end

-- Whether this owner's lease or attempt on this lock has been released here (N4).
local function over(owner, key)
  return redis.call('HEXISTS', owner_key(owner), 'r:' .. key) == 1
end

-- === writing ===

local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, text(ms)) end
end

-- The key shows `owner` for at least `ttl` from now.
local function hold(key, owner, holder, ttl)
  local name = lock_key(key)
  if holder ~= owner then
    redis.call('SET', name, owner, 'PX', ttl)
  elseif redis.call('PTTL', name) < tonumber(ttl) then
    redis.call('PEXPIRE', name, ttl)
  end
end

local function take_record(key, owner, seq, ttl, grant, count)
  redis.call('HSET', record_key(key), 'owner', owner, 'seq', text(seq), 'ttl', ttl, 'grant', text(grant),
    'released', '0', 'counter', text(count))
  redis.call('PERSIST', record_key(key))
  redis.call('ZADD', locks, '+inf', key)
end

local function index_claim(key, ttl)
  redis.call('ZREMRANGEBYSCORE', locks, '-inf', '(' .. text(at))
  redis.call('ZADD', locks, text(at + tonumber(ttl)), key)
end

-- === operations ===

local function acquire_claim(key, owner, holder, ttl, floor)
  local mine = owner_key(owner)
  local grant = number(redis.call('HGET', mine, 'grant'))
  if grant == 0 then
    grant = math.max(counter, floor) + 1
    raise(grant)
    redis.call('HSET', mine, 'grant', text(grant))
  end
  outlive(mine, tonumber(ttl) + GRANT_SLACK_MS)
  hold(key, owner, holder, ttl)
  index_claim(key, ttl)
  return { GRANTED, grant, 0, 0, '' }
end

local function acquire()
  local key, owner, kind, ttl, floor = arg(), arg(), arg(), arg(), number(arg())
  local holder = value(key)
  if holder and holder ~= owner then return refused(key) end
  if over(owner, key) then return refused(key) end
  if kind == 'claim' then return acquire_claim(key, owner, holder, ttl, floor) end

  local r = record(key)
  local grant = r.grant
  if r.owner == owner then
    if r.released then return refused(key) end
  else
    grant = math.max(known(r), floor) + 1
    raise(grant)
    take_record(key, owner, 0, ttl, grant, grant)
  end
  hold(key, owner, holder, ttl)
  return { GRANTED, grant, r.token, r.rev, r.body }
end

local function confirm()
  local key, owner, kind, token = arg(), arg(), arg(), number(arg())
  if value(key) ~= owner or over(owner, key) then return refused(key) end
  local grant
  if kind == 'claim' then
    grant = number(redis.call('HGET', owner_key(owner), 'grant'))
  else
    local r = record(key)
    if r.owner ~= owner or r.released then return refused(key) end
    grant = r.grant
    if grant <= token and token > r.counter then
      redis.call('HSET', record_key(key), 'counter', text(token))
    end
  end
  if grant > token then return { LARGER, grant } end
  raise(token)
  return { DONE }
end

local function extend()
  local key, owner, kind, seq, ttl, token = arg(), arg(), arg(), number(arg()), arg(), number(arg())
  local holder = value(key)
  if holder and holder ~= owner then return refused(key) end
  if over(owner, key) then return refused(key) end
  if kind == 'claim' then
    if not holder then return refused(key) end
    -- First, as below.
    redis.call('PEXPIRE', lock_key(key), ttl)
    raise(token)
    outlive(owner_key(owner), tonumber(ttl) + GRANT_SLACK_MS)
    index_claim(key, ttl)
    return { KEPT, 0, 0 }
  end

  local r = record(key)
  local mine = r.owner == owner
  if mine and (r.released or seq <= r.seq) then return refused(key) end
  local count = math.max(known(r), token)
  -- First, and not by SET: it is allowed when the memory is full, and after one write Redis lets the others pass.
  if holder then redis.call('PEXPIRE', lock_key(key), ttl) end
  raise(token)
  if not holder then redis.call('SET', lock_key(key), owner, 'PX', ttl) end
  if mine and holder then
    redis.call('HSET', record_key(key), 'seq', text(seq), 'ttl', ttl, 'counter', text(count))
    return { KEPT, r.token, r.rev }
  end
  -- What is written anew is no vote in this round: a foreign client may have come and left while the key was gone.
  take_record(key, owner, seq, ttl, mine and r.grant or token, count)
  return { HEALED, r.token, r.rev }
end

local function release()
  local key, owner, kind, retention = arg(), arg(), arg(), arg()
  local holder = value(key)
  -- First: after one write Redis lets the others pass even when its memory is full.
  if holder == owner then redis.call('DEL', lock_key(key)) end

  local keep = math.min(tonumber(retention), MARKER_MS)
  redis.call('HSET', owner_key(owner), 'r:' .. key, '1')
  outlive(owner_key(owner), keep)

  if kind == 'claim' then
    if not holder or holder == owner then redis.call('ZREM', locks, key) end
  else
    local r = record(key)
    -- Once: a release sent again does not make the memory longer.
    if r.owner == owner and not r.released then
      raise(r.counter)
      redis.call('HSET', record_key(key), 'released', '1')
      redis.call('PEXPIRE', record_key(key), retention)
      redis.call('ZADD', locks, text(at + tonumber(retention)), key)
    end
  end
  -- An announcement only saves waiting: a user who may not publish still releases.
  redis.pcall('PUBLISH', channel, owner .. ' ' .. key)
  return { DONE }
end

-- Ends a lease by force. The key is left to run out unless it is to go now: its holder does not know yet, and whoever
-- was granted meanwhile would be the second to believe (N7).
local function break_lease()
  local key, owner, token, ttl, retention, now = arg(), arg(), number(arg()), arg(), arg(), arg()
  local before, holder, r = view(key), value(key), record(key)
  -- What a foreign client wrote has neither record nor grant.
  local ours = holder == owner and (r.owner == owner or (not r.owner and before[7] > 0))
  if holder and not ours then return { REFUSED, before } end

  if holder and now == '1' then redis.call('DEL', lock_key(key)) end
  redis.call('HSET', owner_key(owner), 'r:' .. key, '1')
  outlive(owner_key(owner), tonumber(retention))
  if r.owner then
    if token > r.counter then redis.call('HSET', record_key(key), 'counter', text(token)) end
    if r.owner == owner and not r.released then
      redis.call('HSET', record_key(key), 'released', '1')
      redis.call('PEXPIRE', record_key(key), retention)
      redis.call('ZADD', locks, text(at + tonumber(retention)), key)
    end
  end
  raise(token)
  if holder and now == '1' then
    if not r.owner then redis.call('ZREM', locks, key) end
    redis.pcall('PUBLISH', channel, owner .. ' ' .. key)
  elseif holder and redis.call('PTTL', lock_key(key)) < 0 then
    redis.call('PEXPIRE', lock_key(key), ttl)
    -- Whoever lists must not forget it before it ends; a record is listed for longer.
    if not r.owner then index_claim(key, ttl) end
  end
  return { BROKEN, before }
end

local function write()
  local key, owner, token, rev, body, not_before = arg(), arg(), number(arg()), number(arg()), arg(), arg()
  local r = record(key)
  if value(key) ~= owner or r.owner ~= owner or r.released then return refused(key) end
  if not_before ~= '' and at < tonumber(not_before) then return { TOO_EARLY, at } end
  if token == r.token and rev == r.rev then
    if body == r.body then return { DONE } end
    return refused(key)
  end
  if token < r.token or (token == r.token and rev < r.rev) then return refused(key) end
  redis.call('HSET', record_key(key), 'token', text(token), 'rev', text(rev), 'body', body)
  return { DONE }
end

local function read() return { VIEW, view(arg()) } end

-- The members of an index that still live, in order.
local function members(index)
  redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. text(at))
  local found = redis.call('ZRANGE', index, 0, -1)
  table.sort(found)
  return found
end

local function list()
  local prefix, found = arg(), {}
  for _, key in ipairs(members(locks)) do
    if string.sub(key, 1, #prefix) == prefix then
      local seen = view(key)
      if seen[2] or seen[4] then found[#found + 1] = seen end
    end
  end
  return { VIEWS, found }
end

local function records()
  local after, limit, found = arg(), number(arg()), {}
  for _, key in ipairs(members(locks)) do
    if #found >= limit then break end
    local seen = key > after and view(key)
    if seen and seen[4] then found[#found + 1] = seen end
  end
  return { VIEWS, found }
end

local function admission() return { ADMISSION, counter } end
local function unadmitted() return { UNADMITTED } end

local function put_doc()
  local name, rev, ttl, body = arg(), number(arg()), arg(), arg()
  local doc, index = doc_key(name), index_of(directory(name))
  local stored = redis.call('HGET', doc, 'rev')
  if stored and rev <= tonumber(stored) then return { DONE } end
  redis.call('HSET', doc, 'rev', text(rev), 'body', body)
  redis.call('PEXPIRE', doc, ttl)
  redis.call('ZADD', index, text(at + tonumber(ttl)), name)
  -- A directory that nobody writes or lists any more ends with the last of its documents.
  outlive(index, tonumber(ttl))
  return { DONE }
end

local function show_doc(found, name)
  local doc = redis.call('HMGET', doc_key(name), 'rev', 'body')
  if doc[1] then found[#found + 1] = { name, tonumber(doc[1]), doc[2] } end
end

local function list_docs()
  local found = {}
  for _, name in ipairs(members(index_of(arg()))) do show_doc(found, name) end
  return { DOCS, found }
end

local function read_doc()
  local found = {}
  show_doc(found, arg())
  return { DOCS, found }
end

local function remove_doc()
  local name = arg()
  redis.call('DEL', doc_key(name))
  redis.call('ZREM', index_of(directory(name)), name)
  return { DONE }
end

local operations = {
  acquire = acquire, confirm = confirm, extend = extend, release = release, write = write,
  ['break'] = break_lease,
  read = read, list = list, put_doc = put_doc, docs = list_docs, doc = read_doc,
  remove_doc = remove_doc,
  records = records, admission = admission, unadmitted = unadmitted,
}

local answers = {}
while position < #ARGV do
  answers[#answers + 1] = operations[arg()]()
end
return { 1, at, answers }
