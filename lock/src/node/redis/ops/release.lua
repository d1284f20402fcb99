-- Releases one lock: what is asked most often, without raw keys, over a connection that knows the marker. `loop.lua`
-- does the same for all that is left; rows and answers are described in `prologue.lua`.
--
-- KEYS[1]  '{ns}:2:t', the table.
-- ARGV     not_after, the marker ('' = compare nothing), the key, the owner, how long the mark stays, how long the body is kept.
-- Reply    { 0, now } when it came too late (N2), else { 2, now, 0 }; { 2, now, 0, 2 } where the marker is another.

local call, argv, sub = redis.call, ARGV, string.sub
local time = call('TIME')
local now = time[1]
if #now ~= 10 then now = sub('000000000' .. now, -10) end
now = now .. sub('00000' .. time[2], -6, -4)
if now >= argv[1] then return { 0, now + 0 } end
local t, key, owner = KEYS[1], argv[3], argv[4]
local rows = call('HMGET', t, 'm', 'l' .. key)
local v = rows[2]
local state = v and string.byte(v)
-- Its numbers are not looked at: one that makes no sense stays so.
if (state == 72 or state == 66) and sub(v, 134) == owner then
  local format, body, inc = string.format, nil, rows[1]
  inc = (not inc or string.byte(inc) == 45) and '----------------' or sub(inc, 1, 16)
  v = 'R' .. sub(v, 2, 33) .. format('%013.0f', now + argv[5]) .. sub(v, 47)
  -- What was merged in is of no record yet.
  if sub(v, 70, 101) ~= '00000000000000000000000000000000' or sub(v, 118, 133) ~= inc then
    body = call('HGET', t, 'e' .. key)
    if body and (#body ~= 55 or sub(body, 1, 13) <= now or not string.find(body, '^%d+$')) then body = nil end
    if body then body = format('%013.0f', now + argv[6]) .. sub(body, 14) end
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
  if sub(v, 47, 59) > now then
    -- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not
    -- publish still releases.
    local base = sub(t, 1, -2)
    local first = redis.pcall('ZRANGE', base .. 'w:' .. key, 0, 0)[1]
    redis.pcall('PUBLISH', base .. 'ch', owner .. (first and '>' .. first or '') .. ' ' .. key)
  end
end
if rows[1] ~= argv[2] and argv[2] ~= '' then return { 2, now + 0, 0, 2 } end
return { 2, now + 0, 0 }
