-- Acquires one lock: what is asked most often, without a ticket, without raw keys, over a connection that knows the
-- marker. `loop.lua` does the same for all that is left; rows and answers are described in `prologue.lua`.
--
-- KEYS[1]  '{ns}:2:t', the table.
-- ARGV     not_after, the marker ('' = compare nothing), the key, the floor, the ttl, the owner, how long its sender waits
--          ('0' not at all), the clamp, how it is taken: 's' by this server's clock, or the round, incarnation and owner
--          that were seen, or ''; and the process and database that this connection was made to, when the incarnation is to
--          be compared, else ''.
-- Reply    { 0, now } when it came too late (N2), else { 2, now, answer }.

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
local looks = argv[10] ~= '' and rows[5] ~= now
if looks then
  local said, who = call('INFO', 'replication'), call('HGET', KEYS[1], 'mw') or ''
  local history = string.match(said, 'master_replid2:(%x+)')
  local same = sub(who, -40) == history or string.find(history, '^0+$')
  if not same or sub(who, 1, -42) ~= argv[10] or not string.find(said, 'role:master', 1, true) then
    -- The next call does what is to be done about it.
    return { 2, now + 0, -2 }
  end
end
-- What is written without the guard is of no incarnation.
inc = (inc == '' or string.byte(inc) == 45) and '----------------' or sub(inc, 1, 16)

local v, body = rows[3], rows[4]
if body and (#body ~= 55 or sub(body, 1, 13) <= now or not find(body, '^%d+$')) then body = nil end
-- The counter of a record; whether that is all that counts.
local base, own, waits = false, false, '0000000000000'
local granted
if v then
  local state, free, cut = string.byte(v), false, v
  local _, digits = find(v, '^%d+', 2)
  digits = #v < 4097 and digits or 0
  if state == 67 and #v > 46 and digits > 29 then
    -- A short claim ends by this clock.
    free = sub(v, 18, 30) <= now or sub(v, 31, 46) ~= inc
  elseif (state == 72 or state == 82 or state == 66) and #v > 133 and digits > 116
    and (string.byte(v, 2) ~= 57 or sub(v, 2, 17) < '9007199254740991') then
    base, waits = sub(v, 2, 17), sub(v, 47, 59)
    if sub(v, 118, 133) ~= inc then
      -- C1: it names nobody, and its counter may be older than what the node was admitted with.
      free = true
    else
      own = true
      if sub(v, 134) == owner then
        -- A2: nothing is written. A1: what is over here is never granted again.
        if state == 72 then free, granted = true, sub(v, 18, 33) end
      else
        free = state == 82 or argv[9] == 's' and sub(v, 34, 46) <= now or argv[9] == sub(v, 102)
      end
      if not free then
        local format = string.format
        if argv[7] ~= '0' then
          -- W3: in this step the record is told that a client waits for its end.
          local longer = format('%013.0f', now + argv[7])
          if longer > waits then cut = sub(cut, 1, 46) .. longer .. sub(cut, 60) end
        end
        if state ~= 82 then
          -- N10: clocks are set back.
          local last = format('%013.0f', now + math.max(argv[8] + 0, tonumber(sub(v, 60, 69)) or 0))
          if sub(v, 34, 46) > last then cut = sub(cut, 1, 33) .. last .. sub(cut, 47) end
        end
      end
    end
  else
    -- Whatever stands there is not even shown.
    v, cut, state = '?', '?', 0
  end
  if not free then
    if cut ~= v and type(redis.pcall('HSET', t, 'l' .. key, cut)) == 'table' then
      -- Redis lets the others pass after one write, also when its memory is full: nothing grows here.
      call('PERSIST', t)
      call('HSET', t, 'l' .. key, cut)
    end
    -- The version of a body stands in its record, or beside what has none.
    if (state == 67 or state == 0) and body then body = sub(body, 14, 45) else body = '' end
    return { 2, now + 0, { 5, cut, 1, -1, body, false, -2 } }
  end
end

if not granted then
  if not own then
    local c = rows[2] or '0000000000000000'
    -- None of ours: only a record's own counter is of use.
    if #c ~= 16 or c >= '9007199254740991' or not find(c, '^%d+$') then return { 2, now + 0, -3 } end
    if not base or c > base then base = c end
  end
  if argv[4] > base then base = argv[4] end
  -- Lua counts no further.
  if base >= '9007199254740990' then return { 2, now + 0, -3 } end
end
local text
if body then
  text = redis.pcall('HGET', sub(t, 1, -2) .. 'b', key)
  -- It was taken away.
  if type(text) ~= 'string' or #text ~= sub(body, 46) + 0 then return { 2, now + 0, -5 } end
end
if granted then return { 2, now + 0, { 1, granted, body and sub(body, 14, 45) or '', text or '' } } end
if looks then call('HSET', t, 'i', now) end
local grant = base + 1
local shown = string.format('%016.0f', grant)
local row = 'H' .. shown .. shown .. string.format('%013.0f', now + argv[5]) .. waits .. argv[5]
if body then
  -- The body lives as long as there is a lease.
  local version = sub(body, 14, 45)
  row = row .. version .. '0000000000000000' .. inc .. owner
  if sub(body, 1, 13) == '9999999999999' then
    call('HSET', t, 'l' .. key, row)
  else
    call('HSET', t, 'l' .. key, row, 'e' .. key, '9999999999999' .. sub(body, 14))
  end
  return { 2, now + 0, { 1, shown, version, text } }
end
call('HSET', t, 'l' .. key, row .. '000000000000000000000000000000000000000000000000' .. inc .. owner)
return { 2, now + 0, grant }
