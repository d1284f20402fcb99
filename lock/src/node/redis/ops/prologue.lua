-- Executes one whole call on a node: every operation in order, nothing of another call between (N1).
--
-- KEYS[1]  '{ns}:2:t', the table: a hash; every other key of ours has the same prefix and hash tag.
-- ARGV     not_after, raw ('1' = lock keys stand verbatim beside the table, '2' = they do not, and the call names each lock
--          once, '0' = they do not), guard ('' = compare nothing, '?' = compare
--          the incarnation and the configuration, '~' = no guard: the configuration alone, '+' = the same, and what is of no
--          fleet becomes one of this, else the marker that this connection has seen), the process and database that this
--          connection was made to, the fleet's configuration, how many fields of the table follow, these fields in the order
--          in which the operations of every day need them, and at their end 'i' when the incarnation is to be compared all
--          the same; then each operation: its code and what else it needs.
-- Reply    { 0, now } when the call came too late (N2), else { 1, now, answers }; but for guard '' also standing, marker, config;
--          of the quick way { 3, now, an answer, how often it comes, the next answer ... }.
--          An answer is a table, or a number where nothing more is to be said: 0 done, -1 kept, -2 no vote, else a grant;
--          -3 to -5 say why this operation alone was not done: see below.
--
-- All memory that safety rests on is in the table, so that a server has all of it or none:
--   m the marker: inc 1-16, stamp of the roster 17-32; mw its incarnation, mc its configuration, ml its loss of memory; n nonce
--   of the nomination, nw its incarnation, nc its configuration; id the nonce of the first nomination; r the roster, or the one
--   that is proposed, which begins with its stamp; without the guard m is '-', a hash of mc and 16 times '-', and mw is empty; i
--   when the incarnation was compared; c the largest counter of all that was forgotten; lKEY a row; eKEY what is known of a body.
--   A record: state (H held, R released, B broken) 1, counter 2-17, grant 18-33, until 34-46, waits 47-59, ttl 60-69,
--   version (token, rev) 70-101, seq 102-117, inc 118-133, owner 134-.
--   A record that is held or released, for whose end no client waits, which has no version, and whose counter is its grant,
--   stands there in short (what is read and written costs by its length): state (h, r) 1, counter 2-17, until 18-30, ttl 31-40,
--   seq 41-56, inc 57-72, owner 73-.
--   A claim:  C 1, grant 2-17, until 18-30, inc 31-46, owner 47-.
--   Of a body: until 1-13 (all nines: none), version 14-45, length 46-55.
-- The bodies themselves may be large, and stand in '{ns}:2:b' by KEY: they are read where one is asked for, and no walk meets
-- them. One that is not there, or not as long as the table says, was taken away: who would inherit it is refused, and so is who
-- would inherit one of which the table says what makes no sense. It is kept until a holder writes it anew.
-- Numbers are decimal and of fixed width, and are compared as texts. Those that are counted with are below 2^53 (the
-- sender sees to it), where Lua's numbers are exact. A row of another shape costs its lock alone: it is refused as it stands.
--
-- A call is executed in memory, and written at its end: the table first, then the keys beside it. So it can be executed once
-- more where the table may not grow, because the memory is full: then what is new is refused, and nothing else.
--
-- Redis runs a script from its top at every call, and pays for each function and table that is made: here are few.

local call, argv, t = redis.call, ARGV, KEYS[1]
local sub, byte, find, format, number_of = string.sub, string.byte, string.find, string.format, tonumber

local time = call('TIME')
local now = time[1]
if #now ~= 10 then now = sub('000000000' .. now, -10) end
now = now .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end

-- Answer codes, as the decoder knows them.
local GRANTED, KEPT, HEALED, LARGER, REFUSED, TOO_EARLY, VIEW, PAGE, DOCS, LIVES = 1, 2, 3, 4, 5, 6, 8, 9, 10, 14
local BROKEN, ADMISSION = 11, 13
local DONE, SAME, UNADMITTED = 0, -1, -2
-- The counter is none of ours, or at its end; the memory is full; the body is gone.
local UNCOUNTED, FULL, BARE = -3, -4, -5

local NONE, NEVER, UNWRITTEN = '0000000000000', '9999999999999', '00000000000000000000000000000000'
local FIRST = '0000000000000000'
-- Lua counts no further: a lock or node whose counter stands here grants no more.
local LAST = '9007199254740990'

local base = sub(t, 1, -2)
local raw, guard = argv[2] == '1', argv[3]
local given = argv[6] + 0
-- The field that was read last.
local position = 6 + given
local rows = call('HMGET', t, 'm', 'c', unpack(argv, 7, 6 + given))

-- === the quick way ===
-- In the script of every day `quick.lua` stands here, before any function is made.

-- The incarnation of what is written; false while no records count. Whether this call may vote.
local inc, votes = '----------------', true
-- 0 of no fleet yet, 1 admitted, 2 not, 3 for another configuration, or about to be.
local standing, config, marker
local unguarded = find(guard, '^[-+~]')
-- Whether this call has compared the incarnation, and it is that of the marker.
local looked = false

-- Which life of which memory this is: of this process, this database, and of what stood here when it was last promoted.
local function incarnation()
  local said = call('INFO', 'replication')
  if not find(said, 'role:master', 1, true) then return 'replica' end
  return argv[4] .. ':' .. string.match(said, 'master_replid2:(%x+)')
end
-- Whether it is the one that was written down. A server that is promoted takes a new history, and forgets it (zeros) when it
-- has had no replica for an hour: that alone loses nothing.
local function is_still(stored, who)
  return stored == who or stored and find(who, ':0+$') and sub(stored, 1, -41) == sub(who, 1, -41)
end

if guard ~= '' then
  marker = rows[1]
  local asks = guard == '?' or guard == '+' or guard == '~'
  -- A marker that is none of ours names no incarnation: the node is watched, and admitted anew.
  if asks and marker and (#marker ~= 32 or sub(marker, 1, 2) == '--' or find(marker, '[^ -~]')) then marker = false end
  local seen = asks or marker == guard
  -- To ask for it costs as much as a whole call. No server loads the memory of another within a millisecond, so that it is
  -- enough to ask once in each.
  if asks or seen and argv[position] == 'i' and rows[2 + given] ~= now then
    -- A process that ends takes its connections with it: only what may change under a connection is asked for.
    local m, who = call('HMGET', t, 'mw', 'mc', 'nc'), ''
    if not unguarded then who = incarnation() end
    config = m[2]
    local present = is_still(m[1], who)
    if not present and not unguarded and m[1] and m[1] ~= '' and sub(m[1], 1, -41) == sub(who, 1, -41) then
      -- Nor may it count again when the server forgets its history.
      redis.pcall('HDEL', t, 'mw')
    end
    if not marker then
      standing = 2
      if unguarded then
        if m[3] and m[3] ~= argv[5] then
          -- A fleet that guards its nodes is about to admit this one.
          standing, config = 3, m[3]
        elseif guard == '+' then
          -- Without the guard nothing is waited for.
          marker, present, standing = '-' .. sub(redis.sha1hex(argv[5]), 1, 15) .. inc, true, 1
          call('HSET', t, 'm', marker, 'mw', '', 'mc', argv[5])
        else
          standing = 0
        end
      end
    elseif not present and not unguarded and m[1] ~= '' then
      standing = 2
    elseif asks and config ~= argv[5] then
      -- Programs that guard their nodes and programs that do not name each other, whatever was lost meanwhile.
      standing = 3
    else
      standing = present and 1 or 2
    end
    inc = marker and present and sub(marker, 1, 16)
    looked = inc and not unguarded
  else
    standing = seen and 1 or 2
    inc = seen and sub(marker, 1, 16)
  end
  if inc and unguarded then inc = '----------------' end
  votes = standing == 1
end

-- The largest counter of what was forgotten, and as it stands in the table. One that is none of ours counts as the last
-- one, and is never written over: nothing is granted above it, and nothing is forgotten.
local c = rows[2] or FIRST
local counts = #c == 16 and c <= LAST and find(c, '^%d+$')
if not counts then c = LAST end
local stands = c

-- What rows become in this call: false where they go; and bodies, where some change.
local changed, written = {}, nil
-- Whether the memory is full. Redis lets all pass after one write, so what is allowed then is decided here.
local full = false
-- What is announced when all is written.
local told

local function is_full(said)
  return type(said) == 'table' and said.err and find(said.err, 'OOM', 1, true)
end

-- === raw keys ===

-- What stands in the lock's own key, whoever wrote it, as far as it is told apart from ours; false where nothing does, or
-- without raw keys. Beside it what stood there first, and the life that it is to have.
local plains, stood, lives = {}, {}, {}
local MOST = 512
local function plain_of(key)
  if not raw then return false end
  local found = plains[key]
  if found == nil then
    found = redis.pcall('GETRANGE', key, 0, MOST - 1)
    if type(found) == 'table' then
      -- A stranger's hash or list is held by somebody, too; any other error ends the call.
      if not find(found.err or '', 'WRONGTYPE', 1, true) then call('GETRANGE', key, 0, 0) end
      found = '(not a string)'
    elseif found == '' then
      found = call('GET', key)
    elseif #found == MOST then
      -- However large it is: none of ours is so long.
      found = found .. '...'
    end
    plains[key], stood[key] = found, found
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
local function show(key, owner, ttl) plains[key], lives[key] = owner, ttl + 0 end
local function hide(key) plains[key], lives[key] = false, -2 end
local function left_of(key)
  local left = lives[key]
  if left == nil then left = call('PTTL', key) end
  return left
end

-- === writing ===

local function later(ms) return format('%013d', now + ms) end

-- A row as it is worked with, and as it stands in the table.
local function long(v)
  local state = v and byte(v)
  if state ~= 104 and state ~= 114 or #v < 73 then return v end
  return (state == 104 and 'H' or 'R') .. sub(v, 2, 17) .. sub(v, 2, 30) .. NONE .. sub(v, 31, 40) .. UNWRITTEN .. sub(v, 41)
end
local function short(v)
  local state = byte(v)
  if state ~= 72 and state ~= 82 or #v < 134 or find(v, NONE, 47, true) ~= 47 or find(v, UNWRITTEN, 70, true) ~= 70
    or sub(v, 2, 17) ~= sub(v, 18, 33) then return v end
  return (state == 72 and 'h' or 'r') .. sub(v, 2, 17) .. sub(v, 34, 46) .. sub(v, 60, 69) .. sub(v, 102)
end

-- Writes what the call has changed so far. False where it must be executed anew, because the memory is full: nothing is
-- written then.
local function flush()
  local texts, n, gone, m = {}, 0, {}, 0
  for field, row in pairs(changed) do
    if row then
      if byte(field) == 108 then row = short(row) end
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
    n = n + 2
  end
  if looked and n > 0 then
    texts[n + 1], texts[n + 2] = 'i', now
    n, looked = n + 2, false
  end
  -- In parts, because a page of a small table may be all of it.
  for i = 1, n, 1000 do
    local last = n
    if last > i + 999 then last = i + 999 end
    local said = redis.pcall('HSET', t, unpack(texts, i, last))
    if type(said) == 'table' then
      if not full and is_full(said) then
        full = true
        call('PERSIST', t)
        return false
      end
      call('HSET', t, unpack(texts, i, last))
    end
  end
  stands = c
  for i = 1, m, 1000 do
    local last = m
    if last > i + 999 then last = i + 999 end
    call('HDEL', t, unpack(gone, i, last))
  end
  if written then
    -- A key of another type was planted by hand.
    if type(redis.pcall('HGET', base .. 'b', '')) == 'table' then call('DEL', base .. 'b') end
    for key, text in pairs(written) do
      if text then call('HSET', base .. 'b', key, text) else call('HDEL', base .. 'b', key) end
    end
    written = nil
  end
  if raw then
    for key, left in pairs(lives) do
      local now_there = plains[key]
      if not now_there then
        if stood[key] then call('DEL', key) end
      elseif now_there == stood[key] then
        call('PEXPIRE', key, format('%.0f', left))
      else
        call('SET', key, now_there, 'PX', format('%.0f', left))
      end
      stood[key] = now_there
    end
    lives = {}
  end
  if told then
    for _, news in ipairs(told) do redis.pcall('PUBLISH', base .. 'ch', news) end
    told = nil
  end
  return true
end

-- === rows ===

-- The row of a lock or claim: its state (false: malformed, nil: none), and whether it names its owner, and who that is.
local function judge(v)
  if not v then return nil, false, nil end
  local state = byte(v)
  -- No row of ours is so long: what stands there is not even shown.
  if #v > 4096 then return false, false, nil end
  -- One walk from the front: a search for what is no digit takes four times as long.
  local _, digits = find(v, '^%d+', 2)
  if state == 67 then
    if #v < 47 or not digits or digits < 30 then return false, false, nil end
    return state, sub(v, 31, 46) == inc, sub(v, 47)
  end
  if state ~= 72 and state ~= 82 and state ~= 66 or #v < 134 then return false, false, nil end
  if not digits or digits < 117 or byte(v, 2) == 57 and sub(v, 2, 17) > LAST then return false, false, nil end
  return state, sub(v, 118, 133) == inc, sub(v, 134)
end

-- What is known of a body. One that has ended, or is of another shape, or has a version that cannot be counted with, is none.
local function kept_of(v)
  return v and #v == 55 and sub(v, 1, 13) > now and find(v, '^%d+$')
    and sub(v, 14, 29) <= LAST and sub(v, 30, 45) <= '9007199254740991' and v
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
  if v == nil then v = long(call('HGET', t, field)) end
  return v
end

-- The body that is known so; false where it was taken away.
local function text_of(key, known)
  local text = written and written[key]
  if not text then text = redis.pcall('HGET', base .. 'b', key) end
  return type(text) == 'string' and #text == sub(known, 46) + 0 and text
end

local function version_of(key)
  local body = kept_of(get('e' .. key))
  return body and sub(body, 14, 45) or UNWRITTEN
end

-- The body lives as long as there is a lease; its version.
local function keep_body(key)
  local body = kept_of(get('e' .. key))
  if not body then return UNWRITTEN end
  if sub(body, 1, 13) ~= NEVER then changed['e' .. key] = NEVER .. sub(body, 14) end
  return sub(body, 14, 45)
end

-- Without a lease it is kept for its successors.
local function leave_body(key, kept)
  local body = kept_of(get('e' .. key))
  if body then changed['e' .. key] = later(kept) .. sub(body, 14) end
end

-- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not publish
-- still releases.
local function announce(key, owner)
  local first = redis.pcall('ZRANGE', base .. 'w:' .. key, 0, 0)[1]
  told = told or {}
  told[#told + 1] = owner .. (first and '>' .. first or '') .. ' ' .. key
end

-- Marks the record released, and tells those who wait.
local function release(key, v, marked, kept, named)
  -- What was merged in is of no record yet.
  if sub(v, 70, 101) ~= UNWRITTEN or not named then leave_body(key, kept) end
  local waits = sub(v, 47, 59)
  if waits > now then announce(key, sub(v, 134)) else waits = NONE end
  changed['l' .. key] = 'R' .. sub(v, 2, 33) .. later(marked) .. waits .. sub(v, 60)
end

-- Whether the lease of a record that names its owner counts; observed, its raw key may have vanished.
local function is_held(v, state, plain, owner, expiry)
  if state ~= 72 or plain and plain ~= owner then return false end
  return expiry == 'o' or sub(v, 34, 46) > now and (plain or not raw)
end

-- What is shown of a lock: with the version of its body where no record has it, and where it was asked for with the body.
local function look(code, key, v, state, named, ahead, version, text)
  local plain, left = plain_of(key), -2
  if plain then left = left_of(key) end
  if not version and (not state or state == 67) then version = version_of(key) end
  if state == false then v = '?' end
  return { code, v or '', named and 1 or 0, ahead or -1, version or '', plain, left, text }
end

-- Refuses a lock. W3: in this step the record is told that a client waits for its end. N10: what lives longer than any lease,
-- because a clock was set back, is cut; a holder whose leases may be longer than the caller's knows best.
local function refuse(key, v, state, named, ahead, longest, waits)
  if state and state ~= 67 then
    local cut, plain = v, plain_of(key)
    if named and waits ~= '0' and later(waits) > sub(v, 47, 59) then
      cut = sub(cut, 1, 46) .. later(waits) .. sub(cut, 60)
    end
    local life = math.max(longest + 0, number_of(sub(v, 60, 69)) or 0)
    if state ~= 82 and sub(v, 34, 46) > later(life) then
      cut = sub(cut, 1, 33) .. later(life) .. sub(cut, 47)
    end
    if plain and plain == sub(v, 134) then
      local left = left_of(key)
      if left < 0 or left > life then lives[key] = life end
    end
    if cut ~= v then
      v = cut
      changed['l' .. key] = v
    end
  end
  return look(REFUSED, key, v, state, named, ahead)
end
