-- Executes one whole call on a node: every operation in order, nothing of another call between (N1).
--
-- KEYS[1]  '{ns}:1:node', the node's hash; every other key of ours has the same prefix and hash tag.
-- ARGV     not_after ('' = none), raw ('1' = lock keys stand verbatim), guard ('' = off, '?' = compare the incarnation,
--          '=INC' = compare with the marker that this connection has seen), the run id that this connection was made
--          to, the fleet's configuration; then each operation: its code and its fields.
-- Reply    { 0, at } when the call came too late (N2), else { 1, at, answers }; guarded also standing, inc, config.
--          An answer is a table, or a number where nothing more is to be said: 0 done, -1 kept, else a grant.
--
-- Tokens, rounds and revisions are below 2^53 (the sender sees to it), where Lua's numbers are exact. They go to
-- Redis by '%.0f': tostring() would round them to 14 digits.
--
-- Redis runs a script from its top at every call, and pays for each function and table that is made: here are few.

local call, number_of, format = redis.call, tonumber, string.format
local argv, node = ARGV, KEYS[1]
local base = string.sub(node, 1, -5)
local locks, channel = base .. 'idx', base .. 'ch'
local raw, guard = argv[2] == '1', argv[3]
local lock_prefix, record_prefix, owner_prefix = raw and '' or base .. 'l:', base .. 'r:', base .. 'g:'

local time = call('TIME')
local at = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
if argv[1] ~= '' and at > number_of(argv[1]) then return { 0, at } end

-- Answer codes, as the decoder knows them.
local GRANTED, KEPT, HEALED, LARGER, REFUSED, TOO_EARLY, DONE, VIEW, VIEWS, DOCS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local BROKEN, UNADMITTED, ADMISSION = 11, 12, 13

-- How long at most a release is remembered beside the record, against requests that arrive after it.
local MARKER_MS = 60000
-- How much longer than a claim its owner's grant is remembered.
local GRANT_SLACK_MS = 10000

local position = 5

-- The node's counter, once it is read, and what stands there.
local counter, written
-- What is to become of the index: what is added to it, then what is taken out, and whether it is worth sweeping.
local added, adds, taken_out, gone, sweep = {}, 0, {}, 0, false
local function settle_index()
  if sweep then call('ZREMRANGEBYSCORE', locks, '-inf', '(' .. format('%.0f', at)) end
  if adds > 0 then call('ZADD', locks, unpack(added)) end
  if gone > 0 then call('ZREM', locks, unpack(taken_out)) end
  added, adds, taken_out, gone, sweep = {}, 0, {}, 0, false
end
-- The incarnation of what is written; false while nobody's records count. Whether this call may vote.
local inc, votes = '', true
-- 1 admitted, 2 not, 3 for another configuration; the marker: inc, who, config.
local standing, marker

if guard ~= '' then
  marker = call('HMGET', node, 'inc', 'who', 'config', 'counter')
  counter = number_of(marker[4] or 0)
  written = counter
  local same = marker[1] and guard == '=' .. marker[1]
  if marker[1] and guard == '?' then
    -- A process that ends takes its connections with it: only what may change under a connection is asked for.
    same = marker[2] == argv[4] .. ':' .. string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
  end
  standing = not same and 2 or marker[3] == argv[5] and 1 or 3
  inc, votes = same and marker[1], standing == 1
end

-- What the record of a lock is, when it turns out to be of another type: somebody planted it by hand, and it costs that lock
-- alone, which shows it as its holder. Any other error ends the call.
local MISFIT = '(its record is not a hash)'
local function misfit(found, record)
  if not string.find(found.err, 'WRONGTYPE', 1, true) then call('HGET', record, 'owner') end
  return { false }
end

-- A key of ours that lives longer than `clamp` is cut to it (O6): clocks are set back. A foreign one may.
local function view(key, holder, clamp, ahead)
  local r = redis.pcall('HMGET', record_prefix .. key,
    'owner', 'seq', 'released', 'counter', 'token', 'rev', 'body', 'ttl', 'inc')
  if r.err then r, holder = misfit(r, record_prefix .. key), MISFIT end
  local left, foreign, token = -2, 0, r[4]
  if holder then
    left = call('PTTL', lock_prefix .. key)
    if holder ~= r[1] then
      local grant = call('HGET', owner_prefix .. holder, 'grant')
      if not grant then foreign = 1 end
      if not r[4] then token = grant end
    end
    -- A holder whose leases may be longer than the caller's knows best.
    if clamp and holder == r[1] then clamp = math.max(clamp, number_of(r[8] or 0)) end
    if clamp and foreign == 0 and (left < 0 or left > clamp) then
      call('PEXPIRE', lock_prefix .. key, format('%.0f', clamp))
      left = clamp
    end
  end
  local from = r[9] or ''
  return {
    key, holder, left, r[1], number_of(r[2] or 0), number_of(r[3] or 0), number_of(token or 0),
    number_of(r[5] or 0), number_of(r[6] or 0), r[7] or '', number_of(r[8] or 0),
    r[1] and from == inc and 1 or 0, from, foreign, ahead or -1,
  }
end
