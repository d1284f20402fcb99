-- === all other operations ===

-- The next `count` fields.
local function args(count)
  local first = position + 1
  position = position + count
  return unpack(argv, first, position)
end

local function is_wrong_type(said)
  return type(said) == 'table' and said.err and find(said.err, 'WRONGTYPE', 1, true)
end

-- It is known before anything is written by the way; a form of a command that changes nothing tells it.
if is_full(redis.pcall('ZADD', base .. 'w:full', 'XX', 0, '')) then
  full = true
  call('PERSIST', t)
end

local function outlive(key, ms)
  if call('PTTL', key) < ms + 0 then call('PEXPIRE', key, format('%.0f', ms)) end
end

-- === queues ===
-- Who waits for a lock, in order, and until when each place is kept. Courtesy only.

local function queue_keys(key) return base .. 'w:' .. key, base .. 'we:' .. key end

-- Takes a place at the end, or keeps the one there is; how many are before it.
local function queue(key, ticket, life)
  local line, ends = queue_keys(key)
  if full then
    local place = redis.pcall('ZRANK', line, ticket)
    return type(place) == 'number' and place or -1
  end
  -- What is of another type was planted by hand.
  for _, name in ipairs({ line, ends }) do
    if is_wrong_type(redis.pcall('ZSCORE', name, ticket)) then call('DEL', name) end
  end
  for _, gone in ipairs(call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)) do
    call('ZREM', line, gone)
    call('ZREM', ends, gone)
  end
  if not call('ZSCORE', line, ticket) then
    local back = call('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
    call('ZADD', line, format('%.0f', (back or 0) + 1), ticket)
  end
  call('ZADD', ends, later(life), ticket)
  outlive(line, life)
  outlive(ends, life)
  return call('ZRANK', line, ticket)
end

-- The lock goes to this waiter. The first one, if that is another, was called and has not come: it keeps its place only if it shows
-- soon that it lives (W9).
local function pass_by(key, ticket, life)
  local line, ends = queue_keys(key)
  local first = redis.pcall('ZRANGE', line, 0, 0)[1]
  if not first or first == ticket then return end
  local soon = later((life - life % 16) / 16)
  local known = redis.pcall('ZSCORE', ends, first)
  if type(known) ~= 'string' or soon + 0 < known + 0 then redis.pcall('ZADD', ends, soon, first) end
end

-- Gives a place up; until when the last of the others is kept.
local function leave(key, ticket)
  local line, ends = queue_keys(key)
  redis.pcall('ZREM', line, ticket)
  redis.pcall('ZREM', ends, ticket)
  local latest = redis.pcall('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  -- Anybody may write there, and a row has its widths.
  local last = latest and format('%013.0f', latest) or NONE
  return #last == 13 and find(last, '^%d+$') and last or NONE
end

-- === operations ===

-- Whether what is said of a body makes no sense: it is not known what was left.
local function is_torn(v)
  return v and (#v ~= 55 or not find(v, '^%d+$')
    or sub(v, 1, 13) > now and (sub(v, 14, 29) > LAST or sub(v, 30, 45) > '9007199254740991'))
end

local function write()
  local key, owner, version, text, not_before, expiry = args(6)
  if not votes then return UNADMITTED end
  local field = 'l' .. key
  local v = get(field)
  local state, named, of = judge(v)
  if not named or of ~= owner or not is_held(v, state, plain_of(key), owner, expiry) then
    return look(REFUSED, key, v, state, named)
  end
  if not_before > now then return { TOO_EARLY, now + 0 } end
  local known = sub(v, 70, 101)
  local body = kept_of(get('e' .. key))
  if version == known and text == (body and text_of(key, body) or '') then return DONE end
  if version <= known then return look(REFUSED, key, v, state, named) end
  -- What takes no more room than what stood there is written all the same.
  if full and #text > (body and sub(body, 46) + 0 or 0) then return FULL end
  changed[field] = sub(v, 1, 69) .. version .. sub(v, 102)
  changed['e' .. key] = NEVER .. version .. format('%010.0f', #text)
  written = written or {}
  written[key] = text
  return DONE
end

-- Ends a lease by force. Its raw key is left to run out unless it is to go now: its holder does not know yet, and an owner
-- that was granted meanwhile would be the second to believe (N7).
local function break_lock()
  local key, owner, token, ttl, marked, kept, at_once = args(7)
  if not votes then return UNADMITTED end
  local field = 'l' .. key
  local v, plain = get(field), plain_of(key)
  local state, named, of = judge(v)
  at_once = at_once == '1'
  local before = look(BROKEN, key, v, state, named)
  local claimed = state == 67 and named and sub(v, 18, 30) > now
  local recorded = state and state ~= 67 and named
  if state == false or plain and (plain ~= owner or of ~= owner)
    or claimed or of ~= owner and recorded and state ~= 82 then
    before[1] = REFUSED
    return before
  end
  if not counts and not recorded then return UNCOUNTED end
  if plain and at_once then
    hide(key)
  elseif plain and before[7] < 0 then
    lives[key] = ttl + 0
  end
  if recorded and of == owner then
    local counter = sub(v, 2, 17)
    if token > counter then counter = token end
    v = byte(v) == 72 and 'B' .. counter .. sub(v, 18) or sub(v, 1, 1) .. counter .. sub(v, 18)
    changed[field] = v
    if at_once and state ~= 82 then release(key, v, marked, kept, named) end
  else
    local counter, waits = base_of(v, state, named), NONE
    if token > counter then counter = token end
    if state and state ~= 67 then waits = sub(v, 47, 59) end
    changed[field] = (at_once and 'R' or 'B') .. counter .. FIRST .. later(at_once and marked or ttl) .. waits .. ttl
      .. version_of(key) .. FIRST .. inc .. owner
    if at_once then leave_body(key, kept) end
  end
  return before
end

-- C3: what goes raises the counter in the same step.
local function forget(field, v, state)
  if state ~= 67 and sub(v, 2, 17) > c then c = sub(v, 2, 17) end
  changed[field] = false
end

-- A page of the table. What was done before in this call is in it.
local function page(from, count, pattern)
  flush()
  if pattern then return call('HSCAN', t, from, 'MATCH', pattern, 'COUNT', count) end
  return call('HSCAN', t, from, 'COUNT', count)
end

local function next_of(found) return found[1] ~= '0' and found[1] end

-- A row of a page.
local function listed(key, v, state, named)
  local plain, left = plain_of(key), -2
  if plain then left = left_of(key) end
  if state == false then v = '?' end
  return { key, v, named and 1 or 0, state == 67 and version_of(key) or '', plain, left }
end

local function list()
  local found, views = page(args(3)), {}
  for i = 1, #found[2], 2 do
    local key, v = sub(found[2][i], 2), long(found[2][i + 1])
    local state, named = judge(v)
    if state ~= 67 or sub(v, 18, 30) > now then views[#views + 1] = listed(key, v, state, named) end
  end
  return { PAGE, next_of(found), views, {}, 0 }
end

-- So much text of bodies is in one page; what does not fit is told by its name, to be read by itself.
local MUCH = 65536

local function records()
  local found, views, bodies, large, room = page(args(2)), {}, {}, {}, MUCH
  for i = 1, #found[2], 2 do
    local what, key, v = byte(found[2][i]), sub(found[2][i], 2), found[2][i + 1]
    if what == 108 then
      v = long(v)
      local state, named = judge(v)
      if state and state ~= 67 then views[#views + 1] = listed(key, v, state, named) end
    elseif what == 101 and is_torn(v) then
      -- Asked for by itself, it is refused by name.
      large[#large + 1] = key
    elseif what == 101 and kept_of(v) then
      local length = sub(v, 46) + 0
      if length > room then
        large[#large + 1] = key
      else
        room = room - length
        local text = text_of(key, v)
        if text then
          bodies[#bodies + 1] = { key, sub(v, 14, 45), text }
        else
          -- Who reads this must not take it for all that was known: asked for by itself, it is refused by name.
          large[#large + 1] = key
        end
      end
    end
  end
  return { PAGE, next_of(found), views, bodies, 0, large }
end

-- How long a body is kept whose lease was not ended here: 30 days.
local LEFT = 2592000000

-- By the clock goes only what others need no longer; of leases it is only told which look orphaned (S2).
local function sweep()
  local from, count = args(2)
  if not votes then return { PAGE, false, {}, {}, 0 } end
  if not counts then return UNCOUNTED end
  local found, views, forgotten = page(from, count), {}, 0
  local rows = found[2]
  for i = 1, #rows, 2 do
    if byte(rows[i]) == 108 then
      local field, v = rows[i], long(rows[i + 1])
      local state, named = judge(v)
      if state and sub(v, state == 67 and 18 or 34, state == 67 and 30 or 46) <= now then
        if state == 67 or state == 82 or not named then
          forget(field, v, state)
          forgotten = forgotten + 1
        else
          views[#views + 1] = listed(sub(field, 2), v, state, named)
        end
      end
    end
  end
  for i = 1, #rows, 2 do
    if byte(rows[i]) == 101 then
      local field, v = rows[i], rows[i + 1]
      local key, ends = sub(field, 2), sub(v, 1, 13)
      local state = #v == 55 and find(v, '^%d+$') and (judge(get('l' .. key)) or 0)
      if state and state ~= 72 and state ~= 66 then
        if ends <= now then
          changed[field] = false
          written = written or {}
          written[key] = false
          forgotten = forgotten + 1
        elseif ends == NEVER then
          -- Its lease was lost with its incarnation.
          changed[field] = later(LEFT) .. sub(v, 14)
        end
      end
    end
  end
  return { PAGE, next_of(found), views, {}, forgotten }
end

local function rare(code)
  if code == 'write' then return write() end
  if code == 'read' then
    local key = args(1)
    local v, known = get('l' .. key), get('e' .. key)
    local body = kept_of(known)
    local state, named = judge(v)
    local text = body and text_of(key, body)
    if body and not text or is_torn(known) then return BARE end
    return look(VIEW, key, v, state, named, -1, body and sub(body, 14, 45) or UNWRITTEN, text or '')
  end
  if code == 'break' then return break_lock() end
  if code == 'leave' then
    leave(args(2))
    return DONE
  end
  if code == 'list' then return list() end
  if code == 'records' then return records() end
  if code == 'sweep' then return sweep() end
  if code == 'forget' then
    local key, seen, kept = args(3)
    if not votes then return UNADMITTED end
    local v = get('l' .. key)
    local state, named, of = judge(v)
    -- A raw key that still stands would bar the lock without the record.
    if (state == 72 or state == 66) and named and sub(v, 102) == seen and not plain_of(key) then
      if not counts then return UNCOUNTED end
      forget('l' .. key, v, state)
      leave_body(key, kept)
      if sub(v, 47, 59) > now then announce(key, of) end
    end
    return DONE
  end

  -- === documents ===

  local function doc_key(name) return base .. 'doc:' .. name end
  -- The index of a directory: of a document that of its name up to the last slash.
  local function index_of(dir) return base .. 'docs:' .. dir end
  local function directory(name) return string.match(name, '^(.*/)') or '' end
  -- A key of another type was planted by hand. It counts as absent, is told beside what was found, and is replaced by what is
  -- written there; any other error ends the call.
  local misfits = {}
  local function try(command, key, ...)
    local found = redis.pcall(command, key, ...)
    if type(found) ~= 'table' or not found.err then return found end
    if not is_wrong_type(found) then call(command, key, ...) end
    misfits[#misfits + 1] = key
    return nil
  end
  -- Of a directory that is asked again and again who lives there: revisions by name, and what those of all names in the index come
  -- to, under a name that lies in another directory. It spares reading a document each for nothing, and is made anew each minute.
  local function revs_of(dir) return base .. 'revs:' .. dir end
  local function whole(number)
    number = number and #number <= 16 and find(number, '^%d+$') and number_of(number)
    return number and number < 9007199254740992 and number
  end
  local function remember(dir, fields)
    local revs = revs_of(dir)
    if full or #fields == 0 or try('HSET', revs, unpack(fields)) == nil then return end
    if call('PTTL', revs) < 0 then call('PEXPIRE', revs, 60000) end
  end
  -- Something in it is not what it was: this document, where one is named.
  local function moved(dir, ...)
    if try('HDEL', revs_of(dir), dir .. '/', ...) == nil then call('DEL', revs_of(dir)) end
  end
  -- A page of a directory's names, as they lie: each with its score. What has ended goes, a page at a time too.
  local function names_in(dir, from, count)
    local index = index_of(dir)
    local gone = try('ZRANGEBYSCORE', index, '-inf', '(' .. now, 'LIMIT', 0, count)
    if gone == nil then return { '0', {} } end
    if #gone > 0 then
      call('ZREM', index, unpack(gone))
      moved(dir)
    end
    return call('ZSCAN', index, from, 'COUNT', count)
  end
  -- The revision that stands there. What is none of ours counts as absent, like a key of another type.
  local function revision(rev, name)
    local number = rev and #rev <= 16 and find(rev, '^%d+$') and number_of(rev)
    if number and number < 9007199254740992 then return number end
    if rev then misfits[#misfits + 1] = doc_key(name) end
    return nil
  end
  local function show_doc(found, name)
    local doc = try('HMGET', doc_key(name), 'rev', 'body')
    local rev = doc and revision(doc[1], name)
    if rev then found[#found + 1] = { name, rev, doc[2] or '' } end
  end

  -- In the order of the names; false where none stands.
  local function revisions_of(dir, names)
    local all, news = {}, {}
    for from = 1, #names, 500 do
      local upto = math.min(from + 499, #names)
      local known = try('HMGET', revs_of(dir), unpack(names, from, upto)) or {}
      for i = from, upto do
        local rev = whole(known[i - from + 1])
        if not rev then
          local there = try('HGET', doc_key(names[i]), 'rev')
          rev = there and revision(there, names[i])
          if rev then
            news[#news + 1], news[#news + 2] = names[i], format('%.0f', rev)
          end
        end
        all[i] = rev or false
      end
      remember(dir, news)
      news = {}
    end
    return all
  end
  -- Revisions of different documents begin at different times: one that takes the place of another changes the sum. No
  -- addition is beyond what is counted exactly.
  local function sum_of(revs, sum)
    for i = 1, #revs do
      if revs[i] then sum = (sum + revs[i] % 4503599627370496 + 1) % 4503599627370496 end
    end
    return sum
  end
  local function total_of(dir)
    local any = try('ZRANGE', index_of(dir), 0, 0)
    if not any or #any == 0 then return 0 end
    local total = whole(try('HGET', revs_of(dir), dir .. '/'))
    if not total then
      total = sum_of(revisions_of(dir, call('ZRANGE', index_of(dir), 0, -1)), 0)
      remember(dir, { dir .. '/', format('%.0f', total) })
    end
    return total
  end

  if code == 'put_doc' then
    local name, rev, ttl, body = args(4)
    local doc, index = doc_key(name), index_of(directory(name))
    local there = try('HGET', doc, 'rev')
    local stored = there and revision(there, name)
    if there == nil or there and not stored then call('DEL', doc) end
    if stored and number_of(rev) <= stored then return DONE end
    -- What is there already goes on.
    if full and not stored then return FULL end
    moved(directory(name), name)
    call('HSET', doc, 'rev', rev, 'body', body)
    call('PEXPIRE', doc, ttl)
    if try('ZADD', index, later(ttl), name) == nil then
      call('DEL', index)
      call('ZADD', index, later(ttl), name)
    end
    -- A directory that nobody writes or lists any more ends with the last of its documents.
    outlive(index, ttl)
    return DONE
  end
  if code == 'docs' then
    local found, docs, large, room = names_in(args(3)), {}, {}, MUCH * 4
    for i = 1, #found[2], 2 do
      local name = found[2][i]
      local length = try('HSTRLEN', doc_key(name), 'body')
      if length and length > room then
        large[#large + 1] = name
      elseif length then
        room = room - length
        show_doc(docs, name)
      end
    end
    return { PAGE, next_of(found), {}, {}, 0, large, docs, misfits }
  end
  -- Without the bodies: looked at again and again.
  if code == 'doc_names' then
    local found, docs = names_in(args(3)), {}
    for i = 1, #found[2], 2 do
      local name = found[2][i]
      local there = try('HGET', doc_key(name), 'rev')
      local rev = there and revision(there, name)
      if rev then docs[#docs + 1] = { name, rev, '' } end
    end
    return { PAGE, next_of(found), {}, {}, 0, {}, docs, misfits }
  end
  if code == 'touch_doc' then
    local name, rev, ttl = args(3)
    local doc, index = doc_key(name), index_of(directory(name))
    local there = try('HGET', doc, 'rev')
    local stored = there and revision(there, name)
    if not stored or stored < number_of(rev) then return { DOCS, {}, {} } end
    if stored == number_of(rev) then
      call('PEXPIRE', doc, ttl)
      local added = try('ZADD', index, later(ttl), name)
      if added == nil then return { DOCS, {}, misfits } end
      if added == 1 then moved(directory(name)) end
      outlive(index, ttl)
    end
    return DONE
  end
  if code == 'living' then
    local dir, least, most, known = args(4)
    local index, first, last = index_of(dir), later(least), later(most)
    local gone = try('ZRANGEBYSCORE', index, '-inf', '(' .. now, 'LIMIT', 0, 500)
    if gone and #gone > 0 then
      call('ZREM', index, unpack(gone))
      moved(dir)
    end
    local sums = {}
    for sum in string.gmatch(known, '%d+') do sums[#sums + 1] = number_of(sum) end
    local of = #sums
    if of == 1 then
      -- Looked at again and again: all of them, without the few that are not asked for.
      local early = gone and try('ZRANGEBYSCORE', index, '-inf', '(' .. first) or {}
      local late = gone and try('ZRANGEBYSCORE', index, '(' .. last, '+inf') or {}
      local left = sum_of(revisions_of(dir, early), sum_of(revisions_of(dir, late), 0))
      return { LIVES, (total_of(dir) - left) % 4503599627370496, {}, {}, misfits }
    end
    local names, ends, told, parts, found = {}, {}, {}, {}, {}
    local lives = gone and try('ZRANGEBYSCORE', index, first, last, 'WITHSCORES') or {}
    for i = 1, #lives, 2 do
      names[#names + 1], ends[#ends + 1] = lives[i], lives[i + 1]
    end
    local revs, come_to = revisions_of(dir, names), {}
    if of > 1 then
      for i = 1, #names do
        if revs[i] then come_to[revs[i] % of] = sum_of({ revs[i] }, come_to[revs[i] % of] or 0) end
      end
      for part = 0, of - 1 do
        if (come_to[part] or 0) ~= sums[part + 1] then
          told[part], parts[#parts + 1] = true, part
        end
      end
    end
    for i = 1, #names do
      if revs[i] and (of == 0 or told[revs[i] % of]) and #found < 10000 then
        found[#found + 1] = { names[i], revs[i], number_of(ends[i]) - now }
      end
    end
    return { LIVES, sum_of(revs, 0), parts, found, misfits }
  end
  if code == 'doc' then
    local found = {}
    show_doc(found, args(1))
    return { DOCS, found, misfits }
  end
  if code == 'remove_doc' then
    local name = args(1)
    call('DEL', doc_key(name))
    try('ZREM', index_of(directory(name)), name)
    moved(directory(name), name)
    return DONE
  end

  -- === admission ===

  local who = guard ~= '' and (unguarded and '' or incarnation())

  -- What stands there as a marker or as an identity and is none of ours counts as none. The guard tells markers so as well.
  local function marker_of(m)
    return m and #m == 32 and sub(m, 1, 2) ~= '--' and not find(m, '[^ -~]') and m
  end
  local function id_of(id) return id and #id <= 16 and find(id, '^%w[%w-]*$') and id end
  -- The nomination of the present incarnation, if one stands. Without an identity it comes to nothing: the next one sets it.
  local function nominated()
    local nomination = call('HMGET', t, 'n', 'nw', 'id')
    if not who or not nomination[2] or not id_of(nomination[3]) then return false end
    if who == '' then return nomination[2] == '' and nomination[1] end
    if is_still(nomination[2], who) then return nomination[1] end
    -- Nor may it count again when the server forgets its history.
    redis.pcall('HDEL', t, 'nw')
    return false
  end
  -- The same, if our fleet has nominated it: no other may admit it.
  local function nominated_by_us()
    return call('HGET', t, 'nc') == argv[5] and nominated()
  end
  local function admission()
    -- Out of range, so that whoever reads this takes none of it over.
    local counter = counts and c + 0 or 9007199254740991
    if not who then return { ADMISSION, '', false, 1, '', false, counter, false, false, '', '', '' } end
    local m = call('HMGET', t, 'm', 'mw', 'mc', 'ml', 'nw', 'nc', 'id', 'r')
    local marked, lost = marker_of(m[1]), m[4]
    local name = marked and byte(marked) ~= 45 and sub(marked, 1, 16) or ''
    if lost and lost ~= '' and (#lost > 13 or not find(lost, '^%d+$')) then
      -- Unsure means lost: something was, and nothing says when, but not after now. It is written down, because with a later
      -- time at each look no tick would ever be due after it.
      lost = later(0)
      redis.pcall('HSET', t, 'ml', lost)
    end
    return { ADMISSION, who, nominated(), marked and is_still(m[2], who) and 1 or 0, name, m[3], counter, lost,
      (unguarded or is_still(m[5], who)) and m[6], marked or '', id_of(m[7]) or '', m[8] or '' }
  end

  if code == 'admission' then return admission() end
  if code == 'nominate' then
    local nonce, over = args(2)
    local stands = nominated()
    if who and not votes and (not stands or stands == over) then
      -- Who does not ask for incarnations goes on to vote by the marker of before, and what is granted during the watch would
      -- be forgotten by its end. So there is another one, which names no server: nor may it count where the memory comes back to
      -- the one of before.
      local m = call('HMGET', t, 'm', 'mw')
      if not unguarded and marker_of(m[1]) and m[2] ~= '' and not is_still(m[2], who) then
        call('HSET', t, 'm', nonce .. sub(m[1], 17))
        call('HDEL', t, 'mw')
      end
      call('HSET', t, 'n', nonce, 'nw', who, 'nc', argv[5])
      if not id_of(call('HGET', t, 'id')) then call('HSET', t, 'id', nonce) end
    end
    return admission()
  end
  -- Whether exactly this stands here, and what.
  local function shows(marked, nonce, id, roster)
    local m = call('HMGET', t, 'm', 'id', 'r', 'mc', 'nc')
    m[1], m[2] = marker_of(m[1]), id_of(m[2])
    return who and (m[1] or '') == marked and (nominated() or '') == nonce and (m[2] or '') == id
      and (m[3] or '') == roster, m
  end
  if code == 'enrol' then
    local marked, nonce, id, before, roster = args(5)
    local same, m = shows(marked, nonce, id, before)
    if not same then return UNADMITTED end
    if m[1] and m[4] == argv[5] then
      local name = sub(m[1], 1, 16) .. sub(roster, 1, 16)
      call('HSET', t, 'r', roster, 'm', name)
      marker = marker and name
    elseif nonce ~= '' and m[5] == argv[5] and (not m[1] or find(m[4] or '', '^closed ')) then
      call('HSET', t, 'r', roster)
    else
      return UNADMITTED
    end
    return DONE
  end
  if code == 'close' then
    local marked, nonce, id, before, name, configured, forgets = args(7)
    if not shows(marked, nonce, id, before) then return UNADMITTED end
    local closed = name .. '0000000000000000'
    call('HSET', t, 'm', closed, 'mc', configured)
    call('HDEL', t, 'id', 'r', 'n', 'nw', 'nc')
    if forgets == '1' then
      call('HDEL', t, 'mw')
      if marker then marker, inc, standing, votes = closed, false, 2, false end
    elseif marker and standing ~= 2 then
      marker, inc, config, standing, votes = closed, sub(closed, 1, 16), configured, 3, false
    end
    return DONE
  end
  -- By the larger version; of whom the lock is stays as it is.
  if code == 'merge' then
    local nonce, key, version, text, kept = args(5)
    if nominated_by_us() ~= nonce then return UNADMITTED end
    local body = kept_of(get('e' .. key))
    if version > (body and sub(body, 14, 45) or UNWRITTEN) then
      changed['e' .. key] = (body and sub(body, 1, 13) or later(kept)) .. version .. format('%010.0f', #text)
      written = written or {}
      written[key] = text
    end
    return DONE
  end
  if code == 'admit' then
    local nonce, configured, roster, counter, lost = args(5)
    local m, name = call('HMGET', t, 'm', 'mw', 'r'), nonce .. sub(roster .. '0000000000000000', 1, 16)
    if unguarded then name = '-' .. sub(redis.sha1hex(configured), 1, 15) .. '----------------' end
    -- Sent again, or by another who watched the same nomination.
    if not (who and marker_of(m[1]) and sub(m[1], 1, 16) == sub(name, 1, 16) and is_still(m[2], who)) then
      if nominated_by_us() ~= nonce or (m[3] or '') ~= roster then return UNADMITTED end
      -- What others know is in it: a counter that is none of ours is written over.
      if not counts or counter > c then c, counts = counter, true end
      call('HSET', t, 'm', name, 'mw', who, 'mc', configured, 'ml', lost, 'c', c)
      stands = c
      call('HDEL', t, 'n', 'nw', 'nc')
      marker, inc, config = name, unguarded and '----------------' or nonce, configured
      standing = config == argv[5] and 1 or 3
      votes = standing == 1
    end
    if counter > c then c = counter end
    return DONE
  end
  return redis.error_reply('unknown operation ' .. code)
end
