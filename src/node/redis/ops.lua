-- Executes one whole call on a node: every operation in order, nothing of another call between (N1).
--
-- KEYS[1]  '{ns}:1:node', the node's hash; every other key of ours has the same prefix and hash tag.
-- ARGV     not_after ('' = none), raw ('1' = lock keys stand verbatim), guard ('' = off, '?' = compare the incarnation,
--          '=INC' = compare with the marker that this connection has seen), the fleet's configuration; then each
--          operation: its code and its fields.
-- Reply    { 0, at } when the call came too late (N2), else { 1, at, answers }; guarded also standing, inc, config.
--
-- Tokens, rounds and revisions are below 2^53 (the sender sees to it), where Lua's numbers are exact. They go to
-- Redis through text(): tostring() would round them to 14 digits.
--
-- Every call pays for what stands here outside functions: what few calls need is made in rare().

local call, number_of = redis.call, tonumber
local node = KEYS[1]
local base = string.sub(node, 1, -5)
local locks, channel = base .. 'idx', base .. 'ch'
local raw, guard = ARGV[2] == '1', ARGV[3]

local time = call('TIME')
local at = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] ~= '' and at > number_of(ARGV[1]) then return { 0, at } end

-- Answer codes, as the decoder knows them.
local GRANTED, KEPT, HEALED, LARGER, REFUSED, TOO_EARLY, DONE, VIEW, VIEWS, DOCS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local BROKEN, UNADMITTED, ADMISSION = 11, 12, 13

-- How long at most a release is remembered beside the record, against requests that arrive after it.
local MARKER_MS = 60000
-- How much longer than a claim its owner's grant is remembered.
local GRANT_SLACK_MS = 10000

local position = 4
-- The next `count` fields.
local function args(count)
  local first = position + 1
  position = position + count
  return unpack(ARGV, first, position)
end

local function number(value) return value and number_of(value) or 0 end
local function text(value) return string.format('%.0f', value) end

local function lock_key(key) return raw and key or base .. 'l:' .. key end
local function record_key(key) return base .. 'r:' .. key end
local function owner_key(owner) return base .. 'g:' .. owner end

-- === the node's counter and its guard ===

local counter
-- The incarnation of what is written; false while nobody's records count. Whether this call may vote.
local inc, votes = '', true
-- 1 admitted, 2 not, 3 for another configuration; the marker: inc, who, config.
local standing, marker

local function incarnation()
  return string.match(call('INFO', 'server'), 'run_id:(%x+)') .. ':'
    .. string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
end

if guard ~= '' then
  marker = call('HMGET', node, 'inc', 'who', 'config', 'counter')
  counter = number(marker[4])
  local same = marker[1] and (guard == '?' and marker[2] == incarnation() or guard == '=' .. marker[1])
  standing = not same and 2 or marker[3] == ARGV[4] and 1 or 3
  inc, votes = same and marker[1], standing == 1
end

local function node_counter()
  if not counter then counter = number(call('HGET', node, 'counter')) end
  return counter
end

local function raise(to)
  if to > node_counter() then
    counter = to
    call('HSET', node, 'counter', text(to))
  end
end

-- === reading ===

-- What stands in the lock's key, whoever wrote it; false when free.
local function value(key)
  local found = redis.pcall('GET', lock_key(key))
  if type(found) ~= 'table' then return found end
  -- A stranger's hash or list under a raw key is held by somebody, too; any other error ends the call.
  if string.find(found.err or '', 'WRONGTYPE', 1, true) then return '(not a string)' end
  return call('GET', lock_key(key))
end

-- `exists`: also where nobody ever held it here, after a merge. `named`: it is of the present incarnation.
local function shaped(r)
  local owner, from = r[1], r[8] or ''
  return {
    owner = owner, seq = r[2] or '0', grant = number(r[3]), released = r[4] == '1', broken = r[4] == '2',
    exists = r[5], counter = number(r[5]), token = number(r[6]), rev = number(r[7]),
    inc = from, named = owner and from == inc, ttl = r[9], body = r[10] or '',
  }
end

local function record(key)
  return shaped(call('HMGET', record_key(key),
    'owner', 'seq', 'grant', 'released', 'counter', 'token', 'rev', 'inc', 'ttl', 'body'))
end

-- The record without its body, which may be long.
local function lease(key)
  return shaped(call('HMGET', record_key(key),
    'owner', 'seq', 'grant', 'released', 'counter', 'token', 'rev', 'inc', 'ttl'))
end

-- A key of ours that lives longer than `clamp` is cut to it (O6): clocks are set back. A foreign one may.
local function view(key, holder, r, clamp)
  local left, foreign, token = -2, 0, r.counter
  if holder then
    left = call('PTTL', lock_key(key))
    if holder ~= r.owner then
      local grant = call('HGET', owner_key(holder), 'grant')
      if not grant then foreign = 1 end
      if not r.exists then token = number(grant) end
    end
    if clamp and foreign == 0 and (left < 0 or left > clamp) then
      call('PEXPIRE', lock_key(key), text(clamp))
      left = clamp
    end
  end
  return {
    key, holder, left, r.owner, number(r.seq), r.released and 1 or r.broken and 2 or 0, token,
    r.token, r.rev, r.body, number(r.ttl), r.named and 1 or 0, r.inc, foreign, -1,
  }
end

local function look(key) return view(key, value(key), record(key)) end
local function refused(key) return { REFUSED, look(key) } end

-- What the next token of this lock is above: its record's counter or, without a record, the node's, which is above
-- every token that was ever given away here. A record of another incarnation may be older than the node's admission.
local function known(r)
  if r.named then return r.counter end
  return math.max(r.counter, node_counter())
end

-- Whether this owner's lease or attempt on this lock has been released here (N4). A record that is still its owner's
-- needs no such question: whoever is released or broken is so in the record, too.
local function over(owner, key)
  return call('HEXISTS', owner_key(owner), 'r:' .. key) == 1
end

-- O1, the take rule: no foreign value, and the record names nobody, or is released, or is exactly what was seen.
local function may_take(holder, r, take)
  if holder and holder ~= r.owner then return false end
  return not r.named or r.released or take == 'o' .. r.seq .. ' ' .. #r.owner .. ' ' .. r.owner .. r.inc
end

-- Whether the lease is this owner's and counts; observed, its key may have vanished.
local function is_held(holder, r, owner, expiry)
  return r.named and r.owner == owner and not r.released and not r.broken
    and (holder == owner or not holder and expiry == 'o')
end

-- === writing ===

local function outlive(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, text(ms)) end
end

-- The key shows `owner` for at least `ttl` from now.
local function hold(key, owner, holder, ttl)
  local name = lock_key(key)
  if holder ~= owner then
    call('SET', name, owner, 'PX', ttl)
  elseif call('PTTL', name) < number_of(ttl) then
    call('PEXPIRE', name, ttl)
  end
end

-- `r` is what stood there: only released records have an end, and only theirs is in the index.
local function take_record(key, r, owner, seq, ttl, grant, count)
  local name = record_key(key)
  call('HSET', name, 'owner', owner, 'seq', seq, 'ttl', ttl, 'grant', text(grant), 'released', '0',
    'counter', text(count), 'inc', inc)
  if r.released then call('PERSIST', name) end
  if r.released or not r.exists then call('ZADD', locks, '+inf', key) end
end

local function index_claim(key, ttl)
  call('ZREMRANGEBYSCORE', locks, '-inf', '(' .. text(at))
  call('ZADD', locks, text(at + number_of(ttl)), key)
end

local function mark_released(key, retention)
  local name = record_key(key)
  call('HSET', name, 'released', '1')
  call('PEXPIRE', name, retention)
  call('ZADD', locks, text(at + number_of(retention)), key)
end

-- The line of a lock: who waits, in order, and until when each place is kept.
local function line_keys(key) return base .. 'w:' .. key, base .. 'we:' .. key end

-- Takes a place at the end, or keeps the one there is; how many are before it. Courtesy only.
local function queue(key, ticket, life)
  local line, ends = line_keys(key)
  for _, gone in ipairs(call('ZRANGEBYSCORE', ends, '-inf', text(at))) do
    call('ZREM', line, gone)
    call('ZREM', ends, gone)
  end
  if not call('ZSCORE', line, ticket) then
    local last = call('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
    call('ZADD', line, text(number(last) + 1), ticket)
  end
  call('ZADD', ends, text(at + number_of(life)), ticket)
  outlive(line, number_of(life))
  outlive(ends, number_of(life))
  return call('ZRANK', line, ticket)
end

local function leave(key, ticket)
  local line, ends = line_keys(key)
  call('ZREM', line, ticket)
  call('ZREM', ends, ticket)
end

-- Whoever is first in line is asked to come. An announcement only saves waiting: a user who may not publish still
-- releases.
local function announce(key, owner, queues)
  local next = queues and call('ZRANGE', line_keys(key), 0, 0)[1]
  if next then owner = owner .. '>' .. next end
  redis.pcall('PUBLISH', channel, owner .. ' ' .. key)
end

-- === operations ===

local function acquire_claim(key, owner, ttl, floor, clamp)
  local holder = value(key)
  if holder and holder ~= owner then return { REFUSED, view(key, holder, record(key), clamp) } end
  local mine = owner_key(owner)
  local known_here = call('HMGET', mine, 'grant', 'r:' .. key)
  if known_here[2] then return { REFUSED, view(key, holder, record(key), clamp) } end
  local grant = number(known_here[1])
  if grant == 0 then
    grant = math.max(node_counter(), floor) + 1
    raise(grant)
    call('HSET', mine, 'grant', text(grant))
  end
  outlive(mine, number_of(ttl) + GRANT_SLACK_MS)
  hold(key, owner, holder, ttl)
  index_claim(key, ttl)
  return { GRANTED, grant, 0, 0, '' }
end

local function acquire()
  local key, owner, kind, ttl, floor, take, clamp, ticket = args(8)
  local life, polite
  if ticket ~= '' then life, polite = args(2) end
  if not votes then return { UNADMITTED } end
  floor, clamp = number_of(floor), number_of(clamp)
  if kind == 'claim' then return acquire_claim(key, owner, ttl, floor, clamp) end

  local holder, r = value(key), record(key)
  local own = r.named and r.owner == owner
  local free
  if own then
    free = not r.released and not r.broken and (not holder or holder == owner)
  elseif take == 's' then
    free = not holder or holder == owner
  else
    free = may_take(holder, r, take)
  end
  local ahead = -1
  if life and not own then
    ahead = queue(key, ticket, life)
    if polite == '1' and ahead > 0 then free = false end
  end
  if not free or not own and over(owner, key) then
    local seen = view(key, holder, r, clamp)
    seen[15] = ahead
    return { REFUSED, seen }
  end
  if life then leave(key, ticket) end

  local grant = r.grant
  if not own then
    grant = math.max(known(r), floor) + 1
    raise(grant)
    take_record(key, r, owner, '0', ttl, grant, grant)
  end
  hold(key, owner, holder, ttl)
  return { GRANTED, grant, r.token, r.rev, r.body }
end

local function confirm()
  local key, owner, kind, token, expiry = args(5)
  if not votes then return { UNADMITTED } end
  local holder, raised, grant = value(key), number_of(token), nil
  if kind == 'claim' then
    local mine = call('HMGET', owner_key(owner), 'grant', 'r:' .. key)
    if holder ~= owner or mine[2] then return refused(key) end
    grant = number(mine[1])
  else
    local r = lease(key)
    if not is_held(holder, r, owner, expiry) then return refused(key) end
    grant = r.grant
    if grant <= raised and raised > r.counter then call('HSET', record_key(key), 'counter', token) end
  end
  if grant > raised then return { LARGER, grant } end
  raise(raised)
  return { DONE }
end

local function extend_claim(key, owner, ttl, token)
  if value(key) ~= owner or over(owner, key) then return refused(key) end
  -- First, as below.
  call('PEXPIRE', lock_key(key), ttl)
  raise(token)
  outlive(owner_key(owner), number_of(ttl) + GRANT_SLACK_MS)
  index_claim(key, ttl)
  return { KEPT, 0, 0 }
end

local function extend()
  local key, owner, kind, seq, ttl, token, take = args(7)
  if not votes then return { UNADMITTED } end
  token = number_of(token)
  if kind == 'claim' then return extend_claim(key, owner, ttl, token) end

  local holder, r = value(key), lease(key)
  local own = r.named and r.owner == owner
  if own then
    if r.released or r.broken or number_of(seq) <= number_of(r.seq) or holder and holder ~= owner then
      return refused(key)
    end
  else
    local free
    if take == 's' then free = not holder or holder == owner else free = may_take(holder, r, take) end
    if not free or over(owner, key) then return refused(key) end
  end

  -- First, and not by SET: it is allowed when the memory is full, and after one write Redis lets the others pass.
  if holder == owner then call('PEXPIRE', lock_key(key), ttl) else call('SET', lock_key(key), owner, 'PX', ttl) end
  -- The node's counter is never below a record's.
  if not own or token > r.counter then raise(token) end
  if own and (holder or take ~= 's') then
    if token > r.counter then
      call('HSET', record_key(key), 'seq', seq, 'ttl', ttl, 'counter', text(token))
    elseif ttl ~= r.ttl then
      call('HSET', record_key(key), 'seq', seq, 'ttl', ttl)
    else
      call('HSET', record_key(key), 'seq', seq)
    end
    return { KEPT, r.token, r.rev }
  end
  -- What is written anew is no vote in this round: a foreign client may have come and left while the key was gone.
  take_record(key, r, owner, seq, ttl, own and r.grant or token, math.max(known(r), token))
  return { HEALED, r.token, r.rev }
end

local function release()
  local key, owner, kind, retention = args(4)
  local holder = value(key)
  -- First: after one write Redis lets the others pass even when its memory is full.
  if holder == owner then call('DEL', lock_key(key)) end

  local keep = math.min(number_of(retention), MARKER_MS)
  call('HSET', owner_key(owner), 'r:' .. key, '1')
  outlive(owner_key(owner), keep)

  if kind == 'claim' then
    if not holder or holder == owner then call('ZREM', locks, key) end
  else
    local r = call('HMGET', record_key(key), 'owner', 'released')
    -- Once: a release sent again does not make the memory longer.
    if r[1] == owner and r[2] ~= '1' then mark_released(key, retention) end
  end
  announce(key, owner, kind ~= 'claim')
  return { DONE }
end

local function write()
  local key, owner, token, rev, body, not_before, expiry = args(7)
  if not votes then return { UNADMITTED } end
  local r = record(key)
  if not is_held(value(key), r, owner, expiry) then return refused(key) end
  if not_before ~= '' and at < number_of(not_before) then return { TOO_EARLY, at } end
  local new_token, new_rev = number_of(token), number_of(rev)
  if new_token == r.token and new_rev == r.rev then
    if body == r.body then return { DONE } end
    return refused(key)
  end
  if new_token < r.token or (new_token == r.token and new_rev < r.rev) then return refused(key) end
  call('HSET', record_key(key), 'token', token, 'rev', rev, 'body', body)
  return { DONE }
end

local function read() return { VIEW, look(args(1)) } end

-- What few calls need.
local function rare(code)
  -- Ends a lease by force. The key is left to run out unless it is to go now: its holder does not know yet, and
  -- whoever was granted meanwhile would be the second to believe (N7).
  if code == 'break' then
    local key, owner, token, ttl, retention, now = args(6)
    local holder, r = value(key), record(key)
    local before = view(key, holder, r)
    -- What a foreign client wrote has neither record nor grant.
    if holder and (holder ~= owner or before[14] == 1) then return { REFUSED, before } end

    now, token = now == '1', number_of(token)
    local ends = holder and now
    if ends then call('DEL', lock_key(key)) end
    call('HSET', owner_key(owner), 'r:' .. key, '1')
    outlive(owner_key(owner), number_of(retention))
    if r.exists then
      if token > r.counter then call('HSET', record_key(key), 'counter', text(token)) end
      if r.owner == owner and not r.released then
        if now then
          mark_released(key, retention)
          ends = true
        else
          call('HSET', record_key(key), 'released', '2')
        end
      end
    end
    raise(token)
    if ends then
      if not r.exists then call('ZREM', locks, key) end
      announce(key, owner, true)
    elseif holder and call('PTTL', lock_key(key)) < 0 then
      call('PEXPIRE', lock_key(key), ttl)
      -- Whoever lists must not forget it before it ends; a record is listed for longer.
      if not r.exists then index_claim(key, ttl) end
    end
    return { BROKEN, before }
  end

  if code == 'leave' then
    leave(args(2))
    return { DONE }
  end

  -- The members of an index that still live, in order.
  local function members(index)
    call('ZREMRANGEBYSCORE', index, '-inf', '(' .. text(at))
    local found = call('ZRANGE', index, 0, -1)
    table.sort(found)
    return found
  end

  if code == 'list' then
    local prefix, found = args(1), {}
    for _, key in ipairs(members(locks)) do
      if string.sub(key, 1, #prefix) == prefix then
        local seen = look(key)
        if seen[2] or seen[4] then found[#found + 1] = seen end
      end
    end
    return { VIEWS, found }
  end

  if code == 'records' then
    local after, limit = args(2)
    local found = {}
    limit = number_of(limit)
    for _, key in ipairs(members(locks)) do
      if #found >= limit then break end
      local r = key > after and record(key)
      if r and r.exists then found[#found + 1] = view(key, value(key), r) end
    end
    return { VIEWS, found }
  end

  -- === documents ===

  local function doc_key(name) return base .. 'doc:' .. name end
  -- The index of a directory: of a document that of its name up to the last slash.
  local function index_of(dir) return base .. 'docs:' .. dir end
  local function directory(name) return string.match(name, '^(.*/)') or '' end
  local function show(found, name)
    local doc = call('HMGET', doc_key(name), 'rev', 'body')
    if doc[1] then found[#found + 1] = { name, number_of(doc[1]), doc[2] } end
  end

  if code == 'put_doc' then
    local name, rev, ttl, body = args(4)
    local doc, index = doc_key(name), index_of(directory(name))
    local stored = call('HGET', doc, 'rev')
    if stored and number_of(rev) <= number_of(stored) then return { DONE } end
    call('HSET', doc, 'rev', rev, 'body', body)
    call('PEXPIRE', doc, ttl)
    call('ZADD', index, text(at + number_of(ttl)), name)
    -- A directory that nobody writes or lists any more ends with the last of its documents.
    outlive(index, number_of(ttl))
    return { DONE }
  end
  if code == 'docs' then
    local found = {}
    for _, name in ipairs(members(index_of(args(1)))) do show(found, name) end
    return { DOCS, found }
  end
  if code == 'doc' then
    local found = {}
    show(found, args(1))
    return { DOCS, found }
  end
  if code == 'remove_doc' then
    local name = args(1)
    call('DEL', doc_key(name))
    call('ZREM', index_of(directory(name)), name)
    return { DONE }
  end

  -- === admission ===

  local adm = base .. 'adm'
  local who = guard ~= '' and incarnation()

  -- The nomination of the present incarnation, if one stands.
  local function nominated()
    local stands = call('HMGET', adm, 'nonce', 'who')
    return who and stands[2] == who and stands[1]
  end
  local function admission()
    if not who then return { ADMISSION, '', false, 1, '', false, node_counter(), false } end
    local m = call('HMGET', node, 'inc', 'who', 'config', 'blank')
    return {
      ADMISSION, who, nominated(), m[2] == who and 1 or 0, m[1] or '', m[3], node_counter(), m[4],
    }
  end

  if code == 'admission' then return admission() end
  if code == 'nominate' then
    local nonce = args(1)
    if who and not votes and not nominated() then call('HSET', adm, 'nonce', nonce, 'who', who) end
    return admission()
  end
  -- Counter and body by maximum; whom the record names stays as it is.
  if code == 'merge' then
    local nonce, key, count, token, rev, body = args(6)
    if nominated() ~= nonce then return { UNADMITTED } end
    local r, name = lease(key), record_key(key)
    if not r.exists or number_of(count) > r.counter then call('HSET', name, 'counter', count) end
    local new_token, new_rev = number_of(token), number_of(rev)
    if new_token > r.token or new_token == r.token and new_rev > r.rev then
      call('HSET', name, 'token', token, 'rev', rev, 'body', body)
    end
    if not r.exists then call('ZADD', locks, '+inf', key) end
    raise(number_of(count))
    return { DONE }
  end
  if code == 'admit' then
    local nonce, config, count, blank = args(4)
    local m = call('HMGET', node, 'inc', 'who')
    -- Sent again, or by another who watched the same nomination.
    if not (who and m[1] == nonce and m[2] == who) then
      if nominated() ~= nonce then return { UNADMITTED } end
      call('HSET', node, 'inc', nonce, 'who', who, 'config', config, 'blank', blank)
      call('DEL', adm)
      standing = config == ARGV[4] and 1 or 3
      inc, votes, marker = nonce, standing == 1, { nonce, who, config }
    end
    raise(number_of(count))
    return { DONE }
  end
  return redis.error_reply('unknown operation ' .. code)
end

local operations = {
  acquire = acquire, confirm = confirm, extend = extend, release = release, write = write, read = read,
}

local answers, count = {}, 0
while position < #ARGV do
  local code = args(1)
  local usual = operations[code]
  count = count + 1
  answers[count] = usual and usual() or not usual and rare(code)
end
if guard == '' then return { 1, at, answers } end
return { 1, at, answers, standing, marker[1] or '', marker[3] or '' }
