-- The fence of a resource: KEYS[1] its key, ARGV[1] the token. Ends the script with an error when it refuses.
--
-- Tokens are below 2^53, where numbers are exact; what is stored is the text that came, never a converted number.
do
  local held, token = redis.call('GET', KEYS[1]), ARGV[1]
  local function is_token(text)
    return string.find(text, '^[1-9]%d*$') and #text <= 16 and tonumber(text) < 9007199254740992
  end
  if not is_token(token) then
    return redis.error_reply('NOTOKEN not a fencing token (a job without a lock has none): ' .. token)
  end
  if held and not is_token(held) then
    return redis.error_reply('NOFENCE the key of the fence holds something else: ' .. KEYS[1])
  end
  if held and tonumber(held) > tonumber(token) then
    return redis.error_reply('STALE token ' .. token .. ', a later holder has written under ' .. held)
  end
  if held ~= token then redis.call('SET', KEYS[1], token) end
end
