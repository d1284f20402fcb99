-- Acquires one lock: what is asked most often, without a ticket, without raw keys, over a connection that knows the
-- marker. `loop.lua` does the same for all that is left; rows and answers are described in `prologue.lua`.
--
-- KEYS[1]  '{ns}:2:t', the table.
-- ARGV     not_after, the marker ('' = compare nothing), the key, the floor, the ttl, the owner, how long its sender waits ('0' not at
--          all), the clamp, and how it is taken: 's' by this server's clock, or the round, incarnation and owner that
--          were seen, or ''.
-- Reply    { 0, now } when it came too late (N2), else { 2, now, answer }.

local call, argv, sub = redis.call, ARGV, string.sub
local time = call('TIME')
local now = sub('000000000' .. time[1], -10) .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end
local inc, key, owner = argv[2], argv[3], argv[6]
local rows = call('HMGET', KEYS[1], 'm', 'c', 'l' .. key, 'b' .. key)
if rows[1] ~= inc and inc ~= '' then return { 2, now + 0, -2 } end
-- What is written without the guard is of no incarnation.
if inc == '' or string.byte(inc) == 45 then inc = '----------------' end

local v, body = rows[3], rows[4]
if body and (sub(body, 1, 13) <= now or not string.find(body, '^' .. ('%d'):rep(45))) then body = nil end
local base, waits = rows[2] or '0000000000000000', '0000000000000'
if #base ~= 16 or string.find(base, '%D') then
  return redis.error_reply('ERR the counter in ' .. KEYS[1] .. ' is none of ours')
end
if v then
  local state, free, cut = string.byte(v), false, v
  if state == 67 and #v > 46 and not string.find(sub(v, 2, 30), '%D') then
    -- A short claim ends by this clock.
    free = sub(v, 18, 30) <= now or sub(v, 31, 46) ~= inc
  elseif (state == 72 or state == 82 or state == 66) and #v > 133 then
    local counter = sub(v, 2, 17)
    waits = sub(v, 47, 59)
    if string.find(sub(v, 2, 117), '%D') or counter >= '9007199254740991' then
      free = false
    elseif sub(v, 118, 133) ~= inc then
      -- C1: it names nobody, and its counter may be older than what the node was admitted with.
      free = true
      if counter > base then base = counter end
    else
      base = counter
      if sub(v, 134) == owner then
        -- A2: nothing is written. A1: what is over here is never granted again.
        if state == 72 then return { 2, now + 0, { 1, sub(v, 18, 33), body and sub(body, 14) or '' } } end
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
        if argv[9] == 's' and state ~= 82 then
          -- N10: clocks are set back.
          local last = format('%013.0f', now + math.max(argv[8] + 0, tonumber(sub(v, 60, 69)) or 0))
          if sub(v, 34, 46) > last then cut = sub(cut, 1, 33) .. last .. sub(cut, 47) end
        end
      end
    end
  end
  if not free then
    if cut ~= v and type(redis.pcall('HSET', KEYS[1], 'l' .. key, cut)) == 'table' then
      -- Redis lets the others pass after one write, also when its memory is full: nothing grows here.
      call('PERSIST', KEYS[1])
      call('HSET', KEYS[1], 'l' .. key, cut)
    end
    -- The version of a body stands in its record, or beside what has none.
    if string.byte(v) == 67 and body then body = sub(body, 14, 45) else body = '' end
    return { 2, now + 0, { 5, cut == '' and '?' or cut, 1, -1, body, false, -2 } }
  end
end

if argv[4] > base then base = argv[4] end
-- Lua counts no further.
if base >= '9007199254740990' then return redis.error_reply('ERR the counter of ' .. key .. ' is at its end') end
local grant = base + 1
local shown = string.format('%016.0f', grant)
local row = 'H' .. shown .. shown .. string.format('%013.0f', now + argv[5]) .. waits .. argv[5]
if body then
  -- The body lives as long as there is a lease.
  local kept = sub(body, 14)
  row = row .. sub(kept, 1, 32) .. '0000000000000000' .. inc .. owner
  if sub(body, 1, 13) == '9999999999999' then
    call('HSET', KEYS[1], 'l' .. key, row)
  else
    call('HSET', KEYS[1], 'l' .. key, row, 'b' .. key, '9999999999999' .. kept)
  end
  return { 2, now + 0, { 1, shown, kept } }
end
call('HSET', KEYS[1], 'l' .. key, row .. '000000000000000000000000000000000000000000000000' .. inc .. owner)
return { 2, now + 0, grant }
