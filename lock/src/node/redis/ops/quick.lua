-- Most calls find what they expect: locks and claims that are free, or held by who extends or releases them. Done here is
-- such a call, all of it or nothing: each lock is named once, what is wanted has no body and is free by its row alone, no key is
-- raw, and the marker is the one that the connection has seen. Whatever else is asked, or found, the loop does. Nothing has been
-- written by then.
--
-- In a call of nothing but attempts at locks without tickets, releases and extensions of locks, and attempts at claims and their
-- releases of which each has an owner of its own, what is alike comes once:
-- 'acquires', ttl, least grant, how they are taken, clamp, for how long their senders wait, how many, their owners; 'releases',
-- how long the mark stays, how long a body is kept, how many, their owners; 'extends', ttl, how what has gone is taken, how
-- many, for each its owner, and its round and token in one text; 'claims', ttl, floor, clamp, how many, their owners;
-- 'unclaims', how many, their owners. For the loop that is written out in its words.
-- Reply { 3, now, an answer, how often it comes, the next answer ... }.
--
-- Parts of a row are compared where they stand, because each text that is cut out of one is made, and forgotten again; and each
-- costs by its length.

do
  local last, at, nth = #argv, position, 2
  local quick, look, find = argv[2] ~= '1' and at < last, false, string.find
  local compact = argv[at + 1]
  compact = compact == 'acquires' or compact == 'releases' or compact == 'extends' or compact == 'claims' or compact == 'unclaims'
  local ours = '----------------'
  if quick and argv[3] ~= '' then
    -- A marker of ours, and no other question.
    quick = rows[1] == argv[3] and #argv[3] == 32
    if byte(argv[3]) ~= 45 then ours = sub(argv[3], 1, 16) end
    if quick and argv[at] == 'i' and rows[at - 4] ~= now then
      local said, who = call('INFO', 'replication'), call('HGET', t, 'mw') or ''
      local history = string.match(said, 'master_replid2:(%x+)')
      look = find(said, 'role:master', 1, true) and sub(who, 1, -42) == argv[4]
        and (sub(who, -40) == history or find(history, '^0+$'))
      quick = look
    end
  end
  -- The largest counter of what was forgotten, and what it becomes.
  local first = rows[2] or FIRST
  local top = first
  if rows[2] and (#first ~= 16 or find(first, '%D')) then quick = false end
  -- What is written, and what is answered: how often the same in a row.
  local texts, n, done, m, code, count = {}, 0, { 3, now + 0 }, 2, nil, 0
  -- The locks of this call so far, where the sender has not made sure that each is named once.
  local named = argv[2] ~= '2' and {}
  -- Who claims in it; claims that are released; releases that a client waits for.
  local claimants, gone, told
  while quick and at < last do
    local op = argv[at + 1]
    if op == 'acquires' then
      local ttl, least, size = argv[at + 2], argv[at + 3], argv[at + 7] + 0
      local ends = format('%013d', now + ttl)
      local rest = ttl .. FIRST .. ours
      -- Lua counts no further.
      if least > '9007199254740990' then quick = false break end
      -- What most locks get: no more was granted of them than their senders have seen.
      local usual, usually = least + 0, 'h' .. least .. ends .. rest
      -- Another grant, and above what; a row but for its owner, that was found to be free, and its counter.
      local passed, grant, head, free, counter
      at = at + 7
      for i = at + 1, at + size do
        nth = nth + 2
        local owner, field, v = argv[i], argv[nth + 3], rows[nth - 1]
        if rows[nth] then quick = false break end
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        local above, waits = top, nil
        if v then
          -- C1, and A1: the row is of this incarnation and of another owner.
          if #v > 4096 then quick = false break end
          if free and find(v, free, 1, true) == 1 and #v > 72 then
            above = counter
            if find(v, owner, 73, true) == 73 then quick = false break end
          elseif byte(v) == 114 then
            local _, digits = find(v, '^%d+', 2)
            if not digits or digits < 56 or #v < 73 or find(v, ours, 57, true) ~= 57
              or find(v, owner, 73, true) == 73 then quick = false break end
            above = sub(v, 2, 17)
            -- Those that are wanted together were often released together.
            free, counter = sub(v, 1, 72), above
          else
            local _, digits = find(v, '^R%d+')
            if not digits or digits < 117 or #v < 134 or find(v, ours, 118, true) ~= 118
              or find(v, owner, 134, true) == 134 then quick = false break end
            above, waits = sub(v, 2, 17), sub(v, 47, 59)
            if waits <= now then waits = nil end
          end
        end
        local start, number = usually, usual
        if above >= least then
          if above ~= passed then
            if above >= '9007199254740990' then quick = false break end
            passed, grant = above, above + 1
            head = 'h' .. format('%016d', grant) .. ends .. rest
          end
          start, number = head, grant
        end
        texts[n + 1] = field
        if waits then
          local shown = sub(start, 2, 17)
          texts[n + 2] = 'H' .. shown .. shown .. ends .. waits .. ttl .. UNWRITTEN .. FIRST .. ours .. owner
        else
          texts[n + 2] = start .. owner
        end
        n = n + 2
        if number == code then
          count = count + 1
        else
          if code then
            done[m + 1], done[m + 2] = code, count
            m = m + 2
          end
          code, count = number, 1
        end
      end
      at = at + size
    elseif op == 'releases' then
      local size = argv[at + 4] + 0
      local ends = format('%013d', now + argv[at + 2])
      -- What stands between the times and the owner of the last row, and what that becomes.
      local middle, rest = nil, nil
      at = at + 4
      for i = at + 1, at + size do
        nth = nth + 1
        local owner, field, v = argv[i], argv[nth + 4], rows[nth]
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        local state = v and byte(v)
        if state == 104 then
          if #v == 72 + #owner and find(v, owner, 73, true) == 73 then
            if not middle or find(v, middle, 31, true) ~= 31 then
              middle = sub(v, 31, 72)
              if #v == 72 or sub(middle, 27) ~= ours then quick = false break end
              rest = ends .. middle
            end
            texts[n + 1], texts[n + 2] = field, 'r' .. sub(v, 2, 17) .. rest .. owner
            n = n + 2
          end
        elseif (state == 72 or state == 66) and #v == 133 + #owner and find(v, owner, 134, true) == 134 then
          -- A body is to be kept for a while, also one of no record yet.
          if #v == 133 or find(v, ours, 118, true) ~= 118 or find(v, UNWRITTEN, 70, true) ~= 70 then quick = false break end
          texts[n + 1] = field
          if sub(v, 47, 59) > now then
            told = told or {}
            told[#told + 1], told[#told + 2] = sub(field, 2), owner
            texts[n + 2] = 'R' .. sub(v, 2, 33) .. ends .. sub(v, 47)
          elseif sub(v, 2, 17) == sub(v, 18, 33) then
            texts[n + 2] = 'r' .. sub(v, 2, 17) .. ends .. sub(v, 60, 69) .. sub(v, 102)
          else
            texts[n + 2] = 'R' .. sub(v, 2, 33) .. ends .. NONE .. sub(v, 60)
          end
          n = n + 2
        end
      end
      at = at + size
      if code == DONE then
        count = count + size
      else
        if code then
          done[m + 1], done[m + 2] = code, count
          m = m + 2
        end
        code, count = DONE, size
      end
    elseif op == 'extends' then
      local ttl, size = argv[at + 2], argv[at + 4] + 0
      local ends = format('%013d', now + ttl)
      at = at + 4
      for i = at + 1, at + 2 * size, 2 do
        nth = nth + 1
        local owner, round, field, v = argv[i], argv[i + 1], argv[nth + 4], rows[nth]
        if not v or #v > 4096 then quick = false break end
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        local seq, answer = sub(round, 1, 16), SAME
        local counter = sub(v, 2, 17)
        -- E1, O5: its holder's, and its next round.
        local _, digits = find(v, '^%d+', 2)
        texts[n + 1] = field
        if byte(v) == 104 then
          local until_then = sub(v, 18, 30)
          if not digits or digits < 56 or byte(v, 2) ~= 48 or #v ~= 72 + #owner or find(v, owner, 73, true) ~= 73
            or find(v, ours, 57, true) ~= 57 or seq <= sub(v, 41, 56) or sub(round, 17) > counter then
            quick = false
            break
          end
          if ends > until_then then until_then = ends end
          texts[n + 2] = 'h' .. counter .. until_then .. ttl .. seq .. ours .. owner
        else
          if not digits or digits < 117 or byte(v) ~= 72 or byte(v, 2) ~= 48 or #v ~= 133 + #owner
            or find(v, owner, 134, true) ~= 134 or find(v, ours, 118, true) ~= 118 or seq <= sub(v, 102, 117) then
            quick = false
            break
          end
          local grant, until_then, waits, version = sub(v, 18, 33), sub(v, 34, 46), sub(v, 47, 59), sub(v, 70, 101)
          if sub(round, 17) > counter then counter = sub(round, 17) end
          if ends > until_then then until_then = ends end
          if waits <= now then waits = NONE end
          if waits == NONE and version == UNWRITTEN and counter == grant then
            texts[n + 2] = 'h' .. counter .. until_then .. ttl .. seq .. ours .. owner
          else
            texts[n + 2] = 'H' .. counter .. grant .. until_then .. waits .. ttl .. version .. seq .. ours .. owner
            if version ~= UNWRITTEN then answer = { KEPT, version } end
          end
        end
        n = n + 2
        if answer == code then
          count = count + 1
        else
          if code then
            done[m + 1], done[m + 2] = code, count
            m = m + 2
          end
          code, count = answer, 1
        end
      end
      at = at + 2 * size
    elseif op == 'claims' then
      local floor, size = argv[at + 3], argv[at + 5] + 0
      if floor > top then top = floor end
      local number = top + 0
      if number + size > 9007199254740990 then quick = false break end
      local rest = format('%013d', now + argv[at + 2]) .. ours
      at = at + 5
      for i = at + 1, at + size do
        nth = nth + 1
        local field = argv[nth + 4]
        if rows[nth] then quick = false break end
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        number = number + 1
        texts[n + 1], texts[n + 2] = field, 'C' .. format('%016d', number) .. rest .. argv[i]
        n = n + 2
        if code then
          done[m + 1], done[m + 2] = code, count
          m = m + 2
        end
        code, count = number, 1
      end
      top = format('%016d', number)
      at = at + size
    elseif op == 'unclaims' then
      local size = argv[at + 2] + 0
      at = at + 2
      for i = at + 1, at + size do
        nth = nth + 1
        local owner, field, v = argv[i], argv[nth + 4], rows[nth]
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        if v and #v == 46 + #owner and #v < 4097 and #owner > 0 and find(v, owner, 47, true) then
          local _, digits = find(v, '^C%d+')
          if digits and digits > 29 then
            gone = gone or {}
            gone[#gone + 1] = field
          end
        end
      end
      at = at + size
      if code == DONE then
        count = count + size
      else
        if code then
          done[m + 1], done[m + 2] = code, count
          m = m + 2
        end
        code, count = DONE, size
      end
    elseif op == 'claim' then
      -- Those of one owner are granted one number.
      local owner, floor, size = argv[at + 2], argv[at + 4], argv[at + 6] + 0
      claimants = claimants or {}
      if claimants[owner] then quick = false break end
      claimants[owner] = true
      if floor > top then top = floor end
      if top >= '9007199254740990' then quick = false break end
      local number = top + 1
      top = format('%016d', number)
      local row = 'C' .. top .. format('%013d', now + argv[at + 3]) .. ours .. owner
      at = at + 6
      for i = 1, size do
        nth = nth + 1
        local field = argv[nth + 4]
        if rows[nth] then quick = false break end
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        texts[n + 1], texts[n + 2] = field, row
        n = n + 2
      end
      if code then
        done[m + 1], done[m + 2] = code, count
        m = m + 2
      end
      code, count = number, size
    elseif op == 'extend_claim' or op == 'release' and argv[at + 2] == 'claim' then
      local extends = op == 'extend_claim'
      local owner, ends, token, answer = argv[at + 2], nil, nil, DONE
      if extends then
        answer, token = SAME, argv[at + 4]
        ends = format('%013d', now + argv[at + 3])
        if token > top then top = token end
        at = at + 5
      else
        owner = argv[at + 3]
        at = at + 6
      end
      -- Claims of one call have the same row. The last one, whether it is the sender's, and what it becomes.
      local last_row, own, extended
      local size = argv[at] + 0
      for i = 1, size do
        nth = nth + 1
        local field, v = argv[nth + 4], rows[nth]
        if named then
          if named[field] then quick = false break end
          named[field] = true
        end
        if v and v ~= last_row then
          local _, digits = find(v, '^C%d+')
          last_row = v
          own = digits and digits > 29 and #v == 46 + #owner and #v < 4097 and find(v, owner, 47, true)
          if own and extends then
            extended = sub(v, 18, 30)
            own = extended > now and find(v, ours, 31, true) == 31
            extended = ends > extended and sub(v, 1, 17) .. ends .. sub(v, 31)
          end
        end
        if not extends then
          if v and own then
            gone = gone or {}
            gone[#gone + 1] = field
          end
        elseif v and own then
          if extended then
            texts[n + 1], texts[n + 2] = field, extended
            n = n + 2
          end
        else
          quick = false
          break
        end
      end
      if answer == code then
        count = count + size
      else
        if code then
          done[m + 1], done[m + 2] = code, count
          m = m + 2
        end
        code, count = answer, size
      end
    else
      quick = false
    end
  end
  if quick then
    if top > first then
      texts[n + 1], texts[n + 2] = 'c', top
      n = n + 2
    end
    if look and n > 0 then
      texts[n + 1], texts[n + 2] = 'i', now
      n = n + 2
    end
    -- Where the memory is full the loop knows what may be written.
    if n == 0 or type(redis.pcall('HSET', t, unpack(texts))) ~= 'table' then
      if gone then call('HDEL', t, unpack(gone)) end
      for i = 1, told and #told or 0, 2 do
        -- The waiter at the head of the queue is asked to come. An announcement only saves waiting: a user who may not
        -- publish still releases.
        local head = redis.pcall('ZRANGE', base .. 'w:' .. told[i], 0, 0)[1]
        redis.pcall('PUBLISH', base .. 'ch', told[i + 1] .. (head and '>' .. head or '') .. ' ' .. told[i])
      end
      done[m + 1], done[m + 2] = code, count
      return done
    end
  end
  if compact then
    local words, w = {}, position
    for i = 1, position do words[i] = argv[i] end
    at = position
    while at < last do
      local head = at
      if argv[at + 1] == 'acquires' then
        at = at + 7
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3], words[w + 4] = 'acquire', argv[i], argv[head + 2], argv[head + 3]
          words[w + 5], words[w + 6], words[w + 7], words[w + 8] = argv[head + 4], argv[head + 5], argv[head + 6], ''
          w = w + 8
        end
        at = at + argv[head + 7]
      elseif argv[at + 1] == 'releases' then
        at = at + 4
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3] = 'release', 'lock', argv[i]
          words[w + 4], words[w + 5], words[w + 6] = argv[head + 2], argv[head + 3], '1'
          w = w + 6
        end
        at = at + argv[head + 4]
      elseif argv[at + 1] == 'claims' then
        at = at + 5
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3] = 'claim', argv[i], argv[head + 2]
          words[w + 4], words[w + 5], words[w + 6] = argv[head + 3], argv[head + 4], '1'
          w = w + 6
        end
        at = at + argv[head + 5]
      elseif argv[at + 1] == 'unclaims' then
        at = at + 2
        for i = at + 1, at + argv[at] do
          words[w + 1], words[w + 2], words[w + 3] = 'release', 'claim', argv[i]
          words[w + 4], words[w + 5], words[w + 6] = '0', '0', '1'
          w = w + 6
        end
        at = at + argv[head + 2]
      else
        at = at + 4
        words[w + 1], words[w + 2], words[w + 3] = 'extend', argv[head + 2], argv[head + 4]
        w = w + 3
        for i = at + 1, at + 2 * argv[head + 4], 2 do
          words[w + 1], words[w + 2], words[w + 3] = argv[i], sub(argv[i + 1], 1, 16), sub(argv[i + 1], 17)
          words[w + 4] = argv[head + 3]
          w = w + 4
        end
        at = at + 2 * argv[head + 4]
      end
    end
    argv = words
  end
end
