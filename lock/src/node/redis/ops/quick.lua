-- Most calls find what they expect: locks and claims that are free, or held by who extends or releases them. Done here is
-- such a call, all of it or nothing: each lock is named once, what is wanted has no body and is free by its row alone, and no
-- key is raw. Whatever else is asked, or found, the loop does. Nothing has been written by then.
--
-- In a call of nothing but attempts at locks and releases of locks, without tickets, what is alike comes once: 'acquires', ttl,
-- floor, how they are taken, clamp, for how long their senders wait, how many, their owners; 'releases', how long the mark
-- stays, how long a body is kept, how many, their owners. For the loop that is written out in its words.
--
-- Parts of a row are compared where they stand, because each text that is cut out of one
-- is made, and forgotten again. Of the prologue it uses what is read before its place there.

do
  local last, at, nth = #argv, position, 2
  local compact = argv[at + 1] == 'acquires' or argv[at + 1] == 'releases'
  local quick = votes and not raw and at < last
  local first = rows[2] or FIRST
  if #first ~= 16 or string.find(first, '%D') then quick = false end
  local find = string.find
  -- What is written, and what is answered; named: the locks of this call so far; claimants: who claims in it;
  -- gone: claims that are released; told: releases that a client waits for; top: the largest counter of what was forgotten.
  local texts, n, done, m, named, claimants, gone, told, top = {}, 0, {}, 0, {}, {}, {}, nil, first
  -- The last grant: senders that have seen as much are granted the same.
  local passed, grant, shown = nil, nil, nil
  -- Claims of one call have the same row. The last one, whether it is the sender's, and what it becomes.
  local last_row, own, extended
  while quick and at < last do
    local op = argv[at + 1]
    if op == 'acquires' then
      local ttl, floor, count = argv[at + 2], argv[at + 3], argv[at + 7] + 0
      local ends = format('%013.0f', now + ttl)
      local rest = ttl .. UNWRITTEN .. FIRST .. inc
      local alone = ends .. NONE .. rest
      at = at + 7
      for i = at + 1, at + count do
        nth = nth + 2
        local owner, field, v = argv[i], argv[nth + 3], rows[nth - 1]
        if rows[nth] or named[field] then quick = false break end
        named[field] = true
        local above, behind = first, alone
        if v then
          -- C1, and A1: the row is of this incarnation and of another owner.
          local _, digits = find(v, '^R%d+')
          if not digits or digits < 117 or #v < 134 or #v > 4096 or find(v, inc, 118, true) ~= 118
            or #v == 133 + #owner and find(v, owner, 134, true) then quick = false break end
          above = sub(v, 2, 17)
          if find(v, NONE, 47, true) ~= 47 then behind = ends .. sub(v, 47, 59) .. rest end
        end
        if floor > above then above = floor end
        if above ~= passed then
          -- Lua counts no further.
          if above >= '9007199254740990' then quick = false break end
          passed, grant = above, above + 1
          shown = format('H%016d%016d', grant, grant)
        end
        texts[n + 1], texts[n + 2] = field, shown .. behind .. owner
        n, m = n + 2, m + 1
        done[m] = grant
      end
      at = at + count
    elseif op == 'releases' then
      local count = argv[at + 4] + 0
      local ends = format('%013.0f', now + argv[at + 2])
      at = at + 4
      for i = at + 1, at + count do
        nth = nth + 1
        local owner, field, v = argv[i], argv[nth + 4], rows[nth]
        if named[field] then quick = false break end
        named[field] = true
        local state = v and byte(v)
        if (state == 72 or state == 66) and #v == 133 + #owner and find(v, owner, 134, true) then
          local _, digits = find(v, '^%u%d+')
          -- A body is to be kept for a while, also one of no record yet. Nor is a counter this large looked at here.
          if not digits or digits < 117 or byte(v, 2) ~= 48 or find(v, inc, 118, true) ~= 118
            or find(v, UNWRITTEN, 70, true) ~= 70 then quick = false break end
          if find(v, NONE, 47, true) ~= 47 and sub(v, 47, 59) > now then
            told = told or {}
            told[#told + 1], told[#told + 2] = sub(field, 2), owner
          end
          texts[n + 1], texts[n + 2] = field, 'R' .. sub(v, 2, 33) .. ends .. sub(v, 47)
          n = n + 2
        end
        m = m + 1
        done[m] = DONE
      end
      at = at + count
    elseif op == 'extend' then
      local ttl, count = argv[at + 2], argv[at + 3] + 0
      local ends = format('%013.0f', now + ttl)
      at = at + 3
      for i = at + 1, at + 4 * count, 4 do
        nth = nth + 1
        local owner, seq, token, field, v = argv[i], argv[i + 1], argv[i + 2], argv[nth + 4], rows[nth]
        if not v or named[field] or #v ~= 133 + #owner or #v > 4096 or not find(v, owner, 134, true) then
          quick = false
          break
        end
        named[field] = true
        -- E1, O5: its holder's, and its next round.
        local _, digits = find(v, '^H%d+')
        if not digits or digits < 117 or byte(v, 2) ~= 48 or find(v, inc, 118, true) ~= 118
          or seq <= sub(v, 102, 117) then quick = false break end
        local counter, until_then, version = sub(v, 2, 17), sub(v, 34, 46), sub(v, 70, 101)
        if token > counter then counter = token end
        if ends > until_then then until_then = ends end
        texts[n + 1] = field
        texts[n + 2] = 'H' .. counter .. sub(v, 18, 33) .. until_then .. sub(v, 47, 59) .. ttl .. version .. seq
          .. sub(v, 118)
        n, m = n + 2, m + 1
        done[m] = version == UNWRITTEN and SAME or { KEPT, version }
      end
      at = at + 4 * count
    elseif op == 'claim' then
      -- Those of one owner are granted one number.
      local owner, floor = argv[at + 2], argv[at + 4]
      if claimants[owner] then quick = false break end
      claimants[owner] = true
      if floor > top then top = floor end
      if top >= '9007199254740990' then quick = false break end
      local number = top + 1
      top = format('%016d', number)
      local row = 'C' .. top .. format('%013.0f', now + argv[at + 3]) .. inc .. owner
      at = at + 6
      for i = 1, argv[at] do
        nth = nth + 1
        local field = argv[nth + 4]
        if rows[nth] or named[field] then quick = false break end
        named[field] = true
        texts[n + 1], texts[n + 2] = field, row
        n, m = n + 2, m + 1
        done[m] = number
      end
    elseif op == 'extend_claim' or op == 'release' and argv[at + 2] == 'claim' then
      local extends = op == 'extend_claim'
      local owner, ends = argv[at + 2], nil
      if extends then
        ends = format('%013.0f', now + argv[at + 3])
        if argv[at + 4] > top then top = argv[at + 4] end
        at = at + 5
      else
        owner = argv[at + 3]
        at = at + 6
      end
      last_row = nil
      for i = 1, argv[at] do
        nth = nth + 1
        local field, v = argv[nth + 4], rows[nth]
        if named[field] then quick = false break end
        named[field] = true
        if v and v ~= last_row then
          local _, digits = find(v, '^C%d+')
          last_row = v
          own = digits and digits > 29 and #v == 46 + #owner and #v < 4097 and find(v, owner, 47, true)
          if own and extends then
            extended = sub(v, 18, 30)
            own = extended > now and find(v, inc, 31, true) == 31
            extended = ends > extended and sub(v, 1, 17) .. ends .. sub(v, 31)
          end
        end
        m = m + 1
        if not extends then
          if v and own then gone[#gone + 1] = field end
          done[m] = DONE
        elseif v and own then
          if extended then
            texts[n + 1], texts[n + 2] = field, extended
            n = n + 2
          end
          done[m] = SAME
        else
          quick = false
          break
        end
      end
    else
      quick = false
    end
  end
  if quick and top > first then
    texts[n + 1], texts[n + 2] = 'c', top
    n = n + 2
  end
  if looked and n > 0 then
    texts[n + 1], texts[n + 2] = 'i', now
    n = n + 2
  end
  -- Where the memory is full the loop knows what may be written.
  if quick and (n == 0 or type(redis.pcall('HSET', t, unpack(texts))) ~= 'table') then
    if gone[1] then call('HDEL', t, unpack(gone)) end
    for i = 1, told and #told or 0, 2 do
      -- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not
      -- publish still releases.
      local first = redis.pcall('ZRANGE', base .. 'w:' .. told[i], 0, 0)[1]
      redis.pcall('PUBLISH', base .. 'ch', told[i + 1] .. (first and '>' .. first or '') .. ' ' .. told[i])
    end
    if guard == '' then return { 1, now + 0, done } end
    return { 1, now + 0, done, standing, marker or '', config or '' }
  end
  if compact then
    local words, w = {}, position
    for i = 1, position do words[i] = argv[i] end
    at = position
    while at < last do
      if argv[at + 1] == 'acquires' then
        local head = at
        at = at + 7
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3], words[w + 4] = 'acquire', argv[i], argv[head + 2], argv[head + 3]
          words[w + 5], words[w + 6], words[w + 7], words[w + 8] = argv[head + 4], argv[head + 5], argv[head + 6], ''
          w = w + 8
        end
        at = at + argv[head + 7]
      else
        local head = at
        at = at + 4
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3] = 'release', 'lock', argv[i]
          words[w + 4], words[w + 5], words[w + 6] = argv[head + 2], argv[head + 3], '1'
          w = w + 6
        end
        at = at + argv[head + 4]
      end
    end
    argv = words
  end
end
