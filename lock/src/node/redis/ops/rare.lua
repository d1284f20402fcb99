-- === all other operations ===

-- The next `count` fields.
local function args(count)
  local first = position + 1
  position = position + count
  return unpack(argv, first, position)
end

local function number(value) return number_of(value or 0) end
local function text(value) return format('%.0f', value) end

local function lock_key(key) return lock_prefix .. key end
local function record_key(key) return record_prefix .. key end
local function owner_key(owner) return owner_prefix .. owner end

-- === the node's counter and its guard ===

local function incarnation()
  return argv[4] .. ':' .. string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
end

local function node_counter()
  if not counter then
    written = number(call('HGET', node, 'counter'))
    counter = written
  end
  return counter
end

local function raise(to)
  if to > node_counter() then
    counter, written = to, to
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

-- The record without its body, which may be long. `exists`: also where nobody ever held it here, after a merge. `named`:
-- it is of the present incarnation.
local function lease(key)
  local r = redis.pcall('HMGET', record_key(key), 'owner', 'released', 'counter', 'token', 'rev', 'inc')
  local fits = not r.err
  if not fits then r = misfit(r, record_key(key)) end
  local owner = r[1]
  return {
    owner = owner, released = r[2] == '1', broken = r[2] == '2', exists = r[3], counter = number(r[3]),
    token = number(r[4]), rev = number(r[5]), named = owner and (r[6] or '') == inc,
    fits = fits,
  }
end

local function look(key) return view(key, value(key)) end
local function refused(key) return { REFUSED, look(key) } end

-- Whether the lease is this owner's and counts; observed, its key may have vanished.
local function is_held(holder, r, owner, expiry)
  return r.named and r.owner == owner and not r.released and not r.broken
    and (holder == owner or not holder and expiry == 'o')
end

-- === writing ===

local function outlive(key, ms)
  if call('PTTL', key) < ms then call('PEXPIRE', key, text(ms)) end
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

local function announce(key, owner)
  local first = redis.pcall('ZRANGE', line_keys(key), 0, 0)[1]
  if first then owner = owner .. '>' .. first end
  redis.pcall('PUBLISH', channel, owner .. ' ' .. key)
end

-- === operations ===

local function write()
  local key, owner, token, rev, body, not_before, expiry = args(7)
  if not votes then return { UNADMITTED } end
  local r = lease(key)
  if not is_held(value(key), r, owner, expiry) then return refused(key) end
  if not_before ~= '' and at < number_of(not_before) then return { TOO_EARLY, at } end
  local new_token, new_rev = number_of(token), number_of(rev)
  if new_token == r.token and new_rev == r.rev then
    if body == (call('HGET', record_key(key), 'body') or '') then return { DONE } end
    return refused(key)
  end
  if new_token < r.token or (new_token == r.token and new_rev < r.rev) then return refused(key) end
  call('HSET', record_key(key), 'token', token, 'rev', rev, 'body', body)
  return { DONE }
end

local function rare(code)
  if code == 'write' then return write() end
  if code == 'read' then return { VIEW, look(args(1)) } end

  -- Ends a lease by force. The key is left to run out unless it is to go now: its holder does not know yet, and
  -- whoever was granted meanwhile would be the second to believe (N7).
  if code == 'break' then
    local key, owner, token, ttl, retention, now = args(6)
    local holder, r = value(key), lease(key)
    local before = view(key, holder)
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
      announce(key, owner)
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
      if key > after and lease(key).exists then found[#found + 1] = look(key) end
    end
    return { VIEWS, found }
  end

  -- === documents ===

  local function doc_key(name) return base .. 'doc:' .. name end
  -- The index of a directory: of a document that of its name up to the last slash.
  local function index_of(dir) return base .. 'docs:' .. dir end
  local function directory(name) return string.match(name, '^(.*/)') or '' end
  -- A key of another type was planted by hand. It counts as absent, is told beside what was found, and is replaced by what is
  -- written there; any other error ends the call.
  local misfits = {}
  local function try(command, key, ...)
    local found = redis.pcall(command, key, ...)
    if type(found) ~= 'table' or not found.err then return found end
    if not string.find(found.err, 'WRONGTYPE', 1, true) then call(command, key, ...) end
    misfits[#misfits + 1] = key
    return nil
  end
  local function listed(dir)
    local index = index_of(dir)
    if try('ZREMRANGEBYSCORE', index, '-inf', '(' .. text(at)) == nil then return {} end
    return members(index)
  end
  local function show(found, name)
    local doc = try('HMGET', doc_key(name), 'rev', 'body')
    if doc and doc[1] then found[#found + 1] = { name, number_of(doc[1]), doc[2] } end
  end

  if code == 'put_doc' then
    local name, rev, ttl, body = args(4)
    local doc, index = doc_key(name), index_of(directory(name))
    local stored = try('HGET', doc, 'rev')
    if stored == nil then call('DEL', doc) end
    if stored and number_of(rev) <= number_of(stored) then return { DONE } end
    call('HSET', doc, 'rev', rev, 'body', body)
    call('PEXPIRE', doc, ttl)
    local until_then = text(at + number_of(ttl))
    if try('ZADD', index, until_then, name) == nil then
      call('DEL', index)
      call('ZADD', index, until_then, name)
    end
    -- A directory that nobody writes or lists any more ends with the last of its documents.
    outlive(index, number_of(ttl))
    return { DONE }
  end
  if code == 'docs' then
    local found = {}
    for _, name in ipairs(listed(args(1))) do show(found, name) end
    return { DOCS, found, misfits }
  end
  -- Without the bodies: looked at again and again.
  if code == 'doc_names' then
    local dir, limit = args(2)
    local found = {}
    limit = number_of(limit)
    for _, name in ipairs(listed(dir)) do
      if #found >= limit then break end
      local rev = try('HGET', doc_key(name), 'rev')
      if rev then found[#found + 1] = { name, number_of(rev), '' } end
    end
    return { DOCS, found, misfits }
  end
  if code == 'doc' then
    local found = {}
    show(found, args(1))
    return { DOCS, found, misfits }
  end
  if code == 'remove_doc' then
    local name = args(1)
    call('DEL', doc_key(name))
    try('ZREM', index_of(directory(name)), name)
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
    if not r.fits then return { DONE } end
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
      standing = config == argv[5] and 1 or 3
      inc, votes, marker = nonce, standing == 1, { nonce, who, config }
    end
    raise(number_of(count))
    return { DONE }
  end
  return redis.error_reply('unknown operation ' .. code)
end
