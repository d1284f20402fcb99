-- Acquires one lock: what is asked most often, without a ticket, without raw keys, over a connection that knows the
-- marker. `loop.lua` does the same for all that is left; rows and answers are described in `prologue.lua`.
--
-- KEYS[1]  '{ns}:2:t', the table.
-- ARGV     not_after, the marker ('' = compare nothing), the key, the least grant, the ttl, the owner; what only a refusal needs:
--          how long its sender waits (13 digits, zero: not at all), the clamp (13 digits), and how the lock is taken, 's' by this
--          server's clock, or the round, incarnation and owner that were seen, or nothing; and the process and database that
--          this connection was made to, when the incarnation is to be compared.
-- Reply    { 0, now } when it came too late (N2); now and the grant in one text of 13 and 16 digits; else { 2, now, answer }.

local call, argv, sub, find = redis.call, ARGV, string.sub, string.find
local time = call('TIME')
local now = time[1]
if #now ~= 10 then now = sub('000000000' .. now, -10) end
now = now .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end
local t, inc, key, owner = KEYS[1], argv[2], argv[3], argv[6]
local rows = call('HMGET', t, 'm', 'c', 'l' .. key, 'e' .. key, 'i')
if rows[1] ~= inc and inc ~= '' then return { 2, now + 0, -2 } end
-- Once in each millisecond.
local looks = argv[8] and rows[5] ~= now
if looks then
  local said, who = call('INFO', 'replication'), call('HGET', KEYS[1], 'mw') or ''
  local history = string.match(said, 'master_replid2:(%x+)')
  local same = sub(who, -40) == history or find(history, '^0+$')
  if not same or sub(who, 1, -42) ~= argv[8] or not find(said, 'role:master', 1, true) then
    -- The next call does what is to be done about it.
    return { 2, now + 0, -2 }
  end
end
-- What is written without the guard is of no incarnation.
inc = (inc == '' or string.byte(inc) == 45) and '----------------' or sub(inc, 1, 16)

local v, body = rows[3], rows[4]
-- What is known of it may make no sense: then it is not known what was left.
local torn = body and (#body ~= 55 or not find(body, '^%d+$')
  or sub(body, 1, 13) > now and (sub(body, 14, 29) > '9007199254740990' or sub(body, 30, 45) > '9007199254740991'))
if torn or body and sub(body, 1, 13) <= now then body = nil end
-- The counter of a record; whether that is all that counts.
local base, own, waits = false, false, '0000000000000'
local granted
if v then
  local state, free = string.byte(v), false
  local small = state == 114 or state == 104
  if small then state = state - 32 end
  local _, digits = find(v, '^%d+', 2)
  digits = #v < 4097 and digits or 0
  if state == 67 and #v > 46 and digits > 29 then
    -- A short claim ends by this clock.
    free = sub(v, 18, 30) <= now or sub(v, 31, 46) ~= inc
  elseif (small and #v > 72 and digits > 55 or (state == 72 or state == 82 or state == 66) and #v > 133 and digits > 116)
    and (string.byte(v, 2) ~= 57 or sub(v, 2, 17) < '9007199254740991') then
    -- Where the incarnation stands, and the owner behind it.
    local at = small and 57 or 118
    base = sub(v, 2, 17)
    if not small then waits = sub(v, 47, 59) end
    if find(v, inc, at, true) ~= at then
      -- C1: it names nobody, and its counter may be older than what the node was admitted with.
      free = true
    else
      own = true
      if find(v, owner, at + 16, true) == at + 16 and #v == at + 15 + #owner then
        -- A2: nothing is written. A1: what is over here is never granted again.
        if state == 72 then free, granted = true, small and base or sub(v, 18, 33) end
      else
        free = state == 82
      end
      if not free and not granted then
        local others = sub(v, at + 16) ~= owner
        local ends, longer, take = small and sub(v, 18, 30) or sub(v, 34, 46), waits, sub(argv[7], 27)
        if others and (take == 's' and ends <= now or take == sub(v, at - 16)) then
          free = true
        else
          local format, until_then = string.format, ends
          if find(argv[7], '0000000000000', 1, true) ~= 1 then
            -- W3: in this step the record is told that a client waits for its end.
            longer = format('%013d', now + sub(argv[7], 1, 13))
            if longer < waits then longer = waits end
          end
          if state ~= 82 then
            -- N10: clocks are set back.
            local ttl = small and sub(v, 31, 40) or sub(v, 60, 69)
            local last = format('%013d', now + math.max(sub(argv[7], 14, 26) + 0, tonumber(ttl) or 0))
            if ends > last then until_then = last end
          end
          if longer ~= waits and small then
            v = string.char(state) .. base .. base .. until_then .. longer .. sub(v, 31, 40)
              .. '00000000000000000000000000000000' .. sub(v, 41)
          elseif small then
            v = sub(v, 1, 17) .. until_then .. sub(v, 31)
          else
            v = sub(v, 1, 33) .. until_then .. longer .. sub(v, 60)
          end
          if v ~= rows[3] and type(redis.pcall('HSET', t, 'l' .. key, v)) == 'table' then
            -- Redis lets the others pass after one write, also when its memory is full: nothing that counts grows here.
            call('PERSIST', t)
            call('HSET', t, 'l' .. key, v)
          end
        end
      end
    end
  else
    -- Whatever stands there is not even shown.
    v, state = '?', 0
  end
  if not free then
    -- The version of a body stands in its record, or beside what has none.
    if (state == 67 or state == 0) and body then body = sub(body, 14, 45) else body = '' end
    return { 2, now + 0, { 5, v, 1, -1, body, false, -2 } }
  end
end

local shown = argv[4]
if not granted then
  if not own then
    local c = rows[2] or '0000000000000000'
    -- None of ours: only a record's own counter is of use.
    if #c ~= 16 or c >= '9007199254740991' or not find(c, '^%d+$') then return { 2, now + 0, -3 } end
    if not base or c > base then base = c end
  end
  -- Lua counts no further.
  if base >= '9007199254740990' or shown > '9007199254740990' then return { 2, now + 0, -3 } end
  if base >= shown then shown = string.format('%016d', base + 1) end
end
local text
if torn then return { 2, now + 0, -5 } end
if body then
  text = redis.pcall('HGET', sub(t, 1, -2) .. 'b', key)
  -- It was taken away.
  if type(text) ~= 'string' or #text ~= sub(body, 46) + 0 then return { 2, now + 0, -5 } end
end
if granted then return { 2, now + 0, { 1, granted, body and sub(body, 14, 45) or '', text or '' } } end
if looks then call('HSET', t, 'i', now) end
local ends = string.format('%013d', now + argv[5])
if not body and waits <= now then
  call('HSET', t, 'l' .. key, 'h' .. shown .. ends .. argv[5] .. '0000000000000000' .. inc .. owner)
  return now .. shown
end
if waits <= now then waits = '0000000000000' end
local version = body and sub(body, 14, 45) or '00000000000000000000000000000000'
local row = 'H' .. shown .. shown .. ends .. waits .. argv[5] .. version .. '0000000000000000' .. inc .. owner
if body and sub(body, 1, 13) ~= '9999999999999' then
  -- The body lives as long as there is a lease.
  call('HSET', t, 'l' .. key, row, 'e' .. key, '9999999999999' .. sub(body, 14))
else
  call('HSET', t, 'l' .. key, row)
end
if body then return { 2, now + 0, { 1, shown, version, text } } end
return now .. shown
