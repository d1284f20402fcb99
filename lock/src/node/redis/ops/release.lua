-- Releases one lock: what is asked most often, without raw keys, over a connection that knows the marker. `loop.lua`
-- does the same for all that is left; rows and answers are described in `prologue.lua`.
--
-- KEYS[1]  '{ns}:2:t', the table.
-- ARGV     not_after, the marker ('' = compare nothing), the key, the owner, how long the mark stays, how long the body is kept.
-- Reply    { 0, now } when it came too late (N2), else now as a text of 13 digits; { 2, now, 0, 2 } where the marker is another.

local call, argv, sub, find, format = redis.call, ARGV, string.sub, string.find, string.format
local time = call('TIME')
local now = time[1]
if #now ~= 10 then now = sub('000000000' .. now, -10) end
now = now .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end
local t, key, owner = KEYS[1], argv[3], argv[4]
local rows = call('HMGET', t, 'm', 'l' .. key)
local v = rows[2]
local state = v and string.byte(v)
local at = state == 104 and 73 or 134
-- Its numbers are not looked at: one that makes no sense stays so.
if (state == 104 or state == 72 or state == 66) and #v == at - 1 + #owner and #v >= at
  and find(v, owner, at, true) == at then
  local body, inc, told = nil, rows[1], false
  inc = (not inc or string.byte(inc) == 45) and '----------------' or sub(inc, 1, 16)
  -- What was merged in is of no record yet.
  if state ~= 104 and find(v, '00000000000000000000000000000000', 70, true) ~= 70 or find(v, inc, at - 16, true) ~= at - 16 then
    body = call('HGET', t, 'e' .. key)
    if body and (#body ~= 55 or sub(body, 1, 13) <= now or not find(body, '^%d+$')
      or sub(body, 14, 29) > '9007199254740990' or sub(body, 30, 45) > '9007199254740991') then body = nil end
    if body then body = format('%013d', now + argv[6]) .. sub(body, 14) end
  end
  local ends = format('%013d', now + argv[5])
  if state == 104 then
    v = 'r' .. sub(v, 2, 17) .. ends .. sub(v, 31)
  else
    told = sub(v, 47, 59) > now
    if told then
      v = 'R' .. sub(v, 2, 33) .. ends .. sub(v, 47)
    elseif find(v, '00000000000000000000000000000000', 70, true) == 70 and sub(v, 2, 17) == sub(v, 18, 33) then
      v = 'r' .. sub(v, 2, 17) .. ends .. sub(v, 60, 69) .. sub(v, 102)
    else
      v = 'R' .. sub(v, 2, 33) .. ends .. '0000000000000' .. sub(v, 60)
    end
  end
  local done
  if body then
    done = redis.pcall('HSET', t, 'l' .. key, v, 'e' .. key, body)
  else
    done = redis.pcall('HSET', t, 'l' .. key, v)
  end
  if type(done) == 'table' then
    -- Redis lets the others pass after one write, also when its memory is full: nothing grows here.
    call('PERSIST', t)
    call('HSET', t, 'l' .. key, v, body and 'e' .. key or 'l' .. key, body or v)
  end
  if told then
    -- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not
    -- publish still releases.
    local base = sub(t, 1, -2)
    local first = redis.pcall('ZRANGE', base .. 'w:' .. key, 0, 0)[1]
    redis.pcall('PUBLISH', base .. 'ch', owner .. (first and '>' .. first or '') .. ' ' .. key)
  end
end
if rows[1] ~= argv[2] and argv[2] ~= '' then return { 2, now + 0, 0, 2 } end
return now
