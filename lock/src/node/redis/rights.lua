-- Tries every command of ops/*.lua in a form that changes nothing, and answers with what the user may not do, as the words
-- that ACL SETUSER takes. Trouble of another kind is found by the calls themselves.
--
-- KEYS[1]  '{ns}:2:t', as for ops/*.lua.
-- ARGV     '1' with raw keys, which alone need some of them.

local base = string.sub(KEYS[1], 1, -2)
local text, hash, set = base .. 'w:rights', base .. 'doc:rights', base .. 'docs:rights'
local missing = {}

local function refused(said)
  if type(said) ~= 'table' or not said.err then return false end
  return string.find(said.err, 'NOPERM', 1, true) or string.find(said.err, "can't run this command", 1, true)
    or string.find(said.err, 'one of the keys', 1, true)
end

local function try(command, ...)
  local said = redis.pcall(command, ...)
  if not refused(said) then return end
  local word = '+' .. string.lower(command)
  if string.find(said.err, 'one of the keys', 1, true) then word = '~' .. base .. '*' end
  if string.find(said.err, 'channel', 1, true) then word = '&' .. base .. 'ch' end
  if missing[#missing] ~= word then missing[#missing + 1] = word end
end

try('TIME')
try('INFO', 'replication')
if ARGV[1] == '1' then
  try('GET', text)
  try('GETRANGE', text, 0, 0)
  try('SET', text, '', 'XX', 'PX', 1)
end
try('DEL', text)
try('PTTL', text)
try('PEXPIRE', text, 1)
try('PERSIST', text)
try('HGET', hash, 'f')
try('HMGET', hash, 'f')
try('HDEL', hash, 'f')
try('HSCAN', hash, 0)
try('HSTRLEN', hash, 'f')
-- The one without a form that changes nothing; gone again before another client can look.
try('HSET', hash, 'f', '')
redis.pcall('DEL', hash)
try('ZADD', set, 'XX', 1, 'm')
try('ZREM', set, 'm')
try('ZRANGE', set, 0, 0)
try('ZRANK', set, 'm')
try('ZSCORE', set, 'm')
try('ZRANGEBYSCORE', set, 1, 0)
try('ZSCAN', set, 0)
-- To nobody's news: an announcement has two words.
try('PUBLISH', base .. 'ch', '')
return missing
