-- Executes one whole call on a node: every operation in order, nothing of another call between (N1).
--
-- KEYS[1]  '{ns}:2:t', the table: a hash; every other key of ours has the same prefix and hash tag.
-- ARGV     not_after, raw ('1' = lock keys stand verbatim beside the table), guard ('' = compare nothing, '?' = compare
--          the incarnation and the configuration, '~' = no guard: the configuration alone, '+' = the same, and what is of no
--          fleet becomes one of this, else the marker that this connection has seen), the run id that this connection was
--          made to, the fleet's configuration, how many fields of the table follow, these fields in the order in which the
--          operations of every day need them; then each operation: its code and what else it needs.
-- Reply    { 0, now } when the call came too late (N2), else { 1, now, answers }; but for guard '' also standing, marker, config.
--          An answer is a table, or a number where nothing more is to be said: 0 done, -1 kept, -2 no vote, else a grant.
--
-- All memory that safety rests on is in the table, so that a server has all of it or none:
--   m inc of the marker, mw its incarnation, mc its configuration, ml its loss of memory; n nonce of the nomination, nw its
--   incarnation, nc its configuration; without the guard m is '-' and a hash of mc, and mw is empty; c the largest counter of all that was forgotten; lKEY a row; bKEY a body.
--   A record: state (H held, R released, B broken) 1, counter 2-17, grant 18-33, until 34-46, waits 47-59, ttl 60-69,
--   version (token, rev) 70-101, seq 102-117, inc 118-133, owner 134-.
--   A claim:  C 1, grant 2-17, until 18-30, inc 31-46, owner 47-.
--   A body:   until 1-13 (all nines: none), version 14-45, the body 46-.
-- Numbers are decimal and of fixed width, and are compared as texts. Those that are counted with are below 2^53 (the
-- sender sees to it), where Lua's numbers are exact. A row of another shape costs its lock alone: it is refused as it stands.
--
-- Redis runs a script from its top at every call, and pays for each function and table that is made: here are few.

local call, argv, t = redis.call, ARGV, KEYS[1]
local sub, byte, format, number_of = string.sub, string.byte, string.format, tonumber

local time = call('TIME')
local now = sub('000000000' .. time[1], -10) .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end

-- Answer codes, as the decoder knows them.
local GRANTED, KEPT, HEALED, LARGER, REFUSED, TOO_EARLY, VIEW, PAGE, DOCS = 1, 2, 3, 4, 5, 6, 8, 9, 10
local BROKEN, ADMISSION = 11, 13
local DONE, SAME, UNADMITTED = 0, -1, -2

local NONE, NEVER, UNWRITTEN = '0000000000000', '9999999999999', '00000000000000000000000000000000'
local FIRST = '0000000000000000'

local base = sub(t, 1, -2)
local raw, guard = argv[2] == '1', argv[3]
local given = argv[6] + 0
-- The field that was read last.
local position = 6 + given
local rows = call('HMGET', t, 'm', 'c', unpack(argv, 7, 6 + given))

-- The incarnation of what is written; false while no records count. Whether this call may vote.
local inc, votes = '----------------', true
-- 0 of no fleet yet, 1 admitted, 2 not, 3 for another configuration, or about to be.
local standing, config, marker
local unguarded = string.find(guard, '^[-+~]')
if guard ~= '' then
  marker = rows[1]
  if guard == '?' or guard == '+' or guard == '~' then
    if marker and #marker ~= 16 then return redis.error_reply('ERR the marker in ' .. t .. ' is none of ours') end
    -- A process that ends takes its connections with it: only what may change under a connection is asked for.
    local m, who = call('HMGET', t, 'mw', 'mc', 'nc'), ''
    config = m[2]
    if not unguarded then who = argv[4] .. ':' .. string.match(call('INFO', 'replication'), 'master_replid:(%x+)') end
    local present = m[1] == who
    if not marker then
      standing = 2
      if unguarded then
        if m[3] and m[3] ~= argv[5] then
          -- A fleet that guards its nodes is about to admit this one.
          standing, config = 3, m[3]
        elseif guard == '+' then
          -- Without the guard nothing is waited for.
          marker, present, standing = '-' .. sub(redis.sha1hex(argv[5]), 1, 15), true, 1
          call('HSET', t, 'm', marker, 'mw', '', 'mc', argv[5])
        else
          standing = 0
        end
      end
    elseif not present and not unguarded and m[1] ~= '' then
      standing = 2
    elseif config ~= argv[5] then
      -- Programs that guard their nodes and programs that do not name each other, whatever was lost meanwhile.
      standing = 3
    else
      standing = present and 1 or 2
    end
    inc = marker and present and marker
  else
    standing = marker == guard and 1 or 2
    inc = standing == 1 and marker
  end
  if inc and unguarded then inc = '----------------' end
  votes = standing == 1
end

-- The largest counter of what was forgotten, and as it stands in the table.
local c = rows[2] or FIRST
local stands = c
if #c ~= 16 or string.find(c, '%D') then return redis.error_reply('ERR the counter in ' .. t .. ' is none of ours') end

-- What rows become in this call: false where they go. It is written at once, at the end of the call, and before a page is read.
local changed = {}
-- Whether something was done that is allowed when the memory is full.
local spare = false
local function flush()
  local texts, n, gone, m = {}, 0, {}, 0
  for field, row in pairs(changed) do
    if row then
      texts[n + 1], texts[n + 2] = field, row
      n = n + 2
    else
      m = m + 1
      gone[m] = field
    end
  end
  -- First, for it says that something was here which goes now (C3).
  if c > stands then
    texts[n + 1], texts[n + 2] = 'c', c
    n, stands = n + 2, c
  end
  -- In parts, because a page of a small table may be all of it.
  for i = 1, n, 1000 do
    local part = { unpack(texts, i, math.min(i + 999, n)) }
    if not spare then
      call('HSET', t, unpack(part))
    elseif type(redis.pcall('HSET', t, unpack(part))) == 'table' then
      -- Redis lets the others pass after one write, also when its memory is full.
      call('PERSIST', t)
      call('HSET', t, unpack(part))
    end
  end
  for i = 1, m, 1000 do call('HDEL', t, unpack(gone, i, math.min(i + 999, m))) end
end

-- === raw keys ===

-- What stands in the lock's own key, whoever wrote it; false where nothing does, or without raw keys.
local plains = {}
local function plain_of(key)
  if not raw then return false end
  local found = plains[key]
  if found == nil then
    found = redis.pcall('GET', key)
    if type(found) == 'table' then
      -- A stranger's hash or list is held by somebody, too; any other error ends the call.
      if not string.find(found.err or '', 'WRONGTYPE', 1, true) then call('GET', key) end
      found = '(not a string)'
    end
    plains[key] = found
  end
  return found
end
if raw then
  -- Before anything is written: a key that our user may not touch ends the call.
  for i = 7, 6 + given do
    if byte(argv[i]) == 108 then plain_of(sub(argv[i], 2)) end
  end
end
-- The key shows its owner for its ttl from now.
local function show(key, owner, ttl)
  if plains[key] == owner then
    -- Not by SET: it is allowed when the memory is full.
    call('PEXPIRE', key, format('%.0f', ttl))
  else
    -- Redis lets the others pass after one write, also when its memory is full.
    if spare then call('PERSIST', t) end
    call('SET', key, owner, 'PX', format('%.0f', ttl))
    plains[key] = owner
  end
end

-- === rows ===

local function later(ms) return format('%013.0f', now + ms) end

-- The row of a lock or claim: its state (false: malformed, nil: none), and whether it names its owner, and who that is.
local function judge(v)
  if not v then return nil, false, nil end
  local state = byte(v)
  if state == 67 then
    if #v < 47 or string.find(sub(v, 2, 30), '%D') then return false, false, nil end
    return state, sub(v, 31, 46) == inc, sub(v, 47)
  end
  if state ~= 72 and state ~= 82 and state ~= 66 or #v < 134 then return false, false, nil end
  if string.find(sub(v, 2, 117), '%D') or sub(v, 2, 17) >= '9007199254740991' then return false, false, nil end
  return state, sub(v, 118, 133) == inc, sub(v, 134)
end

-- A body that has ended, or is of another shape, is none.
local function body_of(text)
  return text and sub(text, 1, 13) > now and string.find(text, '^' .. ('%d'):rep(45)) and text
end

-- O1, the take rule: the row names nobody, or is released, or is a claim that has ended, or is exactly what was seen;
-- by the server's clock, it has ended. O6: whatever stands in a raw key is the record's owner's.
local function may_take(v, state, named, owner, take, plain)
  if plain and (take == 's' or state == 67 or plain ~= owner) then return false end
  if state == false then return false end
  if not state or not named or state == 82 then return true end
  if state == 67 then return sub(v, 18, 30) <= now end
  if take == 's' then return sub(v, 34, 46) <= now end
  return sub(v, 102) == take
end

-- Lua counts no further: a lock or node whose counter stands here grants no more.
local LAST = '9007199254740990'

-- The counter that a grant must exceed (C1, C4).
local function base_of(v, state, named)
  if state and state ~= 67 then
    local counter = sub(v, 2, 17)
    if named or counter > c then return counter end
  end
  return c
end

-- === bodies, and the ends of leases ===

local function get(field)
  local v = changed[field]
  if v == nil then v = call('HGET', t, field) end
  return v
end

local function version_of(key)
  local body = body_of(get('b' .. key))
  return body and sub(body, 14, 45) or UNWRITTEN
end

-- The body lives as long as there is a lease; its version.
local function keep_body(key)
  local body = body_of(get('b' .. key))
  if not body then return UNWRITTEN end
  if sub(body, 1, 13) ~= NEVER then changed['b' .. key] = NEVER .. sub(body, 14) end
  return sub(body, 14, 45)
end

-- Without a lease it is kept for its successors.
local function leave_body(key, kept)
  local body = body_of(get('b' .. key))
  if body then changed['b' .. key] = later(kept) .. sub(body, 14) end
end

-- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not publish
-- still releases.
local function announce(key, owner)
  local first = redis.pcall('ZRANGE', base .. 'w:' .. key, 0, 0)[1]
  redis.pcall('PUBLISH', base .. 'ch', owner .. (first and '>' .. first or '') .. ' ' .. key)
end

-- Marks the record released, and tells those who wait.
local function release(key, v, marked, kept, named)
  -- What was merged in is of no record yet.
  if sub(v, 70, 101) ~= UNWRITTEN or not named then leave_body(key, kept) end
  changed['l' .. key] = 'R' .. sub(v, 2, 33) .. later(marked) .. sub(v, 47)
  if sub(v, 47, 59) > now then announce(key, sub(v, 134)) end
end

-- Whether the lease of a record that names its owner counts; observed, its raw key may have vanished.
local function is_held(v, state, plain, owner, expiry)
  if state ~= 72 or plain and plain ~= owner then return false end
  return expiry == 'o' or sub(v, 34, 46) > now and (plain or not raw)
end

-- What is shown of a lock. Its body is told with its version; the version alone where no record has it.
local function look(code, key, v, state, named, ahead, body)
  local plain, left = plain_of(key), -2
  if plain then left = call('PTTL', key) end
  if not body and (not state or state == 67) then body = version_of(key) end
  return { code, v == '' and '?' or v or '', named and 1 or 0, ahead or -1, body or '', plain, left }
end

-- Refuses a lock. W3: in this step the record is told that a client waits for its end. N10: what lives longer than any lease,
-- because a clock was set back, is cut, where it ends by the clock at all; a holder whose leases may be longer than the caller's
-- knows best.
local function refuse(key, v, state, named, ahead, by_clock, longest, waits)
  if state and state ~= 67 then
    local cut, plain = v, plain_of(key)
    if named and waits ~= '0' and later(waits) > sub(v, 47, 59) then
      cut = sub(cut, 1, 46) .. later(waits) .. sub(cut, 60)
    end
    local life = math.max(longest + 0, number_of(sub(v, 60, 69)) or 0)
    if by_clock and state ~= 82 and sub(v, 34, 46) > later(life) then
      cut = sub(cut, 1, 33) .. later(life) .. sub(cut, 47)
    end
    if plain and plain == sub(v, 134) then
      local left = call('PTTL', key)
      if left < 0 or left > life then call('PEXPIRE', key, format('%.0f', life)) end
    end
    if cut ~= v then
      v = cut
      changed['l' .. key], spare = v, true
    end
  end
  return look(REFUSED, key, v, state, named, ahead)
end
