-- === the operations of every day ===
-- Written out in one loop, without functions of their own. Operations with the same fields come as a group: its fields
-- once, then how many, then what is each one's own. What they leave in the counter and in the index is written once.

local answers, answered = {}, 0
local last = #argv
-- The group at hand: what is left of it, its fields, and of its owner: the key, the grant, whether releases are marked.
local op, left = false, 0
local kind, owner, ttl, floor, clamp, token, expiry, mine, grant, exists, marked, kept, marks, score
while position < last do
  local usual = true
  if left == 0 then
    op, clamp = argv[position + 1], false
    if op == 'acquire' then
      position, left = position + 1, 1
    elseif op == 'extend' then
      ttl, left = argv[position + 2], argv[position + 3] + 0
      position = position + 3
    elseif op == 'claim' or op == 'extend_claim' then
      owner, ttl, left = argv[position + 2], argv[position + 3], argv[position + 6] + 0
      mine = owner_prefix .. owner
      score = format('%.0f', at + ttl)
      kept = call('PTTL', mine)
      if op == 'claim' then
        floor, clamp = number_of(argv[position + 4]), number_of(argv[position + 5])
        grant = kept ~= -2 and number_of(call('HGET', mine, 'grant') or 0) or 0
      else
        token = number_of(argv[position + 4])
      end
      -- Whether anything of this owner's was released: asked once, and of each key only then.
      exists, marked = kept ~= -2, false
      if exists then marked = call('HLEN', mine) > call('HEXISTS', mine, 'grant') end
      position = position + 6
    elseif op == 'confirm' then
      kind, owner, token, expiry, left =
        argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5], argv[position + 6] + 0
      mine = owner_prefix .. owner
      position = position + 6
    elseif op == 'release' then
      kind, owner, ttl, left = argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5] + 0
      mine, marks = owner_prefix .. owner, {}
      position = position + 5
    else
      usual = false
    end
  end

  local answer
  if usual then
    left = left - 1
    local key = argv[position + 1]
    local name = lock_prefix .. key
    local holder, ahead = false, -1
    local taken = false
    if op == 'claim' and votes and not (marked and call('HEXISTS', mine, 'r:' .. key) == 1) then
      taken = call('SET', name, owner, 'NX', 'PX', ttl)
    end
    if not taken then
      -- What stands there, whoever wrote it.
      holder = redis.pcall('GET', name)
      if type(holder) == 'table' then
        -- A stranger's hash or list under a raw key is held by somebody, too; any other error ends the call.
        if not string.find(holder.err or '', 'WRONGTYPE', 1, true) then call('GET', name) end
        holder = '(not a string)'
      end
    end

    if op == 'release' then
      position = position + 1
      -- First: after one write Redis lets the others pass even when its memory is full.
      if holder == owner then call('DEL', name) end
      local n = #marks
      marks[n + 1], marks[n + 2] = 'r:' .. key, '1'
      if left == 0 then
        call('HSET', mine, unpack(marks))
        local keep = number_of(ttl)
        if keep > MARKER_MS then keep = MARKER_MS end
        if call('PTTL', mine) < keep then call('PEXPIRE', mine, format('%.0f', keep)) end
      end
      local who = owner
      if kind == 'claim' then
        if not holder or holder == owner then
          taken_out[gone + 1] = key
          gone = gone + 1
        end
      else
        local record = record_prefix .. key
        local r = redis.pcall('HMGET', record, 'owner', 'released')
        if r.err then r = misfit(r, record) end
        -- Once: a release sent again does not make the memory longer.
        if r[1] == owner and r[2] ~= '1' then
          call('HSET', record, 'released', '1')
          call('PEXPIRE', record, ttl)
          if gone > 0 then settle_index() end
          added[adds + 1], added[adds + 2] = format('%.0f', at + ttl), key
          adds = adds + 2
        end
        -- Whoever is first in line is asked to come.
        local first = redis.pcall('ZRANGE', base .. 'w:' .. key, 0, 0)[1]
        if first then who = who .. '>' .. first end
      end
      -- An announcement only saves waiting: a user who may not publish still releases.
      redis.pcall('PUBLISH', channel, who .. ' ' .. key)
      answer = 0

    elseif op == 'claim' then
      position = position + 1
      if votes and (taken or holder == owner and not (marked and call('HEXISTS', mine, 'r:' .. key) == 1)) then
        if grant == 0 then
          if not counter then
            written = number_of(call('HGET', node, 'counter') or 0)
            counter = written
          end
          grant = (counter > floor and counter or floor) + 1
          if grant > counter then counter = grant end
          call('HSET', mine, 'grant', format('%.0f', grant))
        end
        if kept < ttl + GRANT_SLACK_MS then
          kept = ttl + GRANT_SLACK_MS
          call('PEXPIRE', mine, format('%.0f', kept))
        end
        if not taken and call('PTTL', name) < number_of(ttl) then call('PEXPIRE', name, ttl) end
        if gone > 0 then settle_index() end
        added[adds + 1], added[adds + 2] = score, key
        adds, sweep = adds + 2, true
        answer = grant
      end

    elseif op == 'extend_claim' then
      position = position + 1
      if votes and holder == owner and not (marked and call('HEXISTS', mine, 'r:' .. key) == 1) then
        -- First: it is allowed when the memory is full, and after one write Redis lets the others pass.
        call('PEXPIRE', name, ttl)
        if not counter then
          written = number_of(call('HGET', node, 'counter') or 0)
          counter = written
        end
        if token > counter then counter = token end
        if exists and kept < ttl + GRANT_SLACK_MS then
          kept = ttl + GRANT_SLACK_MS
          call('PEXPIRE', mine, format('%.0f', kept))
        end
        if gone > 0 then settle_index() end
        added[adds + 1], added[adds + 2] = score, key
        adds, sweep = adds + 2, true
        answer = -1
      end

    elseif op == 'confirm' then
      position = position + 1
      local raised, given = number_of(token), false
      if votes and kind == 'claim' then
        local of = call('HMGET', mine, 'grant', 'r:' .. key)
        given = holder == owner and not of[2] and number_of(of[1] or 0)
      elseif votes then
        local record = record_prefix .. key
        local r = redis.pcall('HMGET', record, 'owner', 'released', 'inc', 'grant', 'counter')
        if r.err then r = misfit(r, record) end
        if r[1] == owner and (r[3] or '') == inc and r[2] ~= '1' and r[2] ~= '2'
          and (holder == owner or not holder and expiry == 'o') then
          given = number_of(r[4] or 0)
          if given <= raised and raised > number_of(r[5] or 0) then call('HSET', record, 'counter', token) end
        end
      end
      if given and given > raised then
        answer = { LARGER, given }
      elseif given then
        if not counter then
          written = number_of(call('HGET', node, 'counter') or 0)
          counter = written
        end
        if raised > counter then counter = raised end
        answer = 0
      end

    else
      -- A named lock is acquired or extended.
      local extends, seq, take, ticket = op == 'extend', '0', nil, ''
      local record = record_prefix .. key
      owner = argv[position + 2]
      if extends then
        seq, token, take = argv[position + 3], number_of(argv[position + 4]), argv[position + 5]
        position = position + 5
      else
        ttl, floor, take = argv[position + 3], number_of(argv[position + 4]), argv[position + 5]
        clamp, ticket = number_of(argv[position + 6]), argv[position + 7]
        position = position + (ticket == '' and 7 or 9)
      end
      if votes then
        local r
        if extends then
          r = redis.pcall('HMGET', record, 'owner', 'seq', 'released', 'counter', 'token', 'rev', 'inc', 'ttl')
        else
          r = redis.pcall('HMGET', record, 'owner', 'seq', 'released', 'counter', 'token', 'rev', 'inc', 'grant', 'body')
        end
        if r.err then r, holder = misfit(r, record), MISFIT end
        local of, released = r[1], r[3] == '1'
        local named = of and (r[7] or '') == inc
        local own, free = named and of == owner, false
        if own then
          free = not released and r[3] ~= '2' and (not holder or holder == owner)
            and (not extends or number_of(seq) > number_of(r[2] or 0))
        elseif take == 's' then
          free = not holder or holder == owner
        else
          -- O1, the take rule: no foreign value, and the record names nobody, or is released, or is exactly what was seen.
          free = (not holder or holder == of)
            and (not named or released or take == 'o' .. (r[2] or '0') .. ' ' .. #of .. ' ' .. of .. (r[7] or ''))
        end
        if ticket ~= '' and not own then
          -- Only the other script has lines.
          ahead = queue(key, ticket, argv[position - 1])
          if argv[position] == '1' and ahead > 0 then free = false end
        end
        -- Whether this owner has been released here (N4). A record that is still its owner's needs no such question:
        -- whoever is released or broken is so in the record, too.
        if free and not own and call('HEXISTS', owner_prefix .. owner, 'r:' .. key) == 1 then free = false end

        if free then
          if ticket ~= '' then leave(key, ticket) end
          local count = number_of(r[4] or 0)
          -- The node's counter is never below a record's.
          if not counter and not (own and (not extends or token <= count)) then
            written = number_of(call('HGET', node, 'counter') or 0)
            counter = written
          end
          -- What the next token of this lock is above: its record's counter or, without a record, the node's, which is
          -- above every token that was ever given away here. A record of another incarnation may be older than the
          -- node's admission.
          local known = count
          if not named and counter > known then known = counter end
          local first
          if not extends then
            if own then
              first = number_of(r[8] or 0)
            else
              first = (known > floor and known or floor) + 1
              known, token = first, first
            end
            -- The key shows its owner for at least `ttl` from now.
            if holder ~= owner then
              call('SET', name, owner, 'PX', ttl)
            elseif call('PTTL', name) < number_of(ttl) then
              call('PEXPIRE', name, ttl)
            end
            -- A number alone says a grant from 1 on: 0 stands for done.
            if first == 0 or r[5] or r[6] or r[9] and r[9] ~= '' then
              answer = { GRANTED, first, number_of(r[5] or 0), number_of(r[6] or 0), r[9] or '' }
            else
              answer = first
            end
          else
            -- First, and not by SET: it is allowed when the memory is full, and after one write Redis lets the others pass.
            if holder == owner then call('PEXPIRE', name, ttl) else call('SET', name, owner, 'PX', ttl) end
            if own and (holder or take ~= 's') then
              if token > count then
                call('HSET', record, 'seq', seq, 'ttl', ttl, 'counter', format('%.0f', token))
              elseif ttl ~= r[8] then
                call('HSET', record, 'seq', seq, 'ttl', ttl)
              else
                call('HSET', record, 'seq', seq)
              end
              if r[5] then answer = { KEPT, number_of(r[5]), number_of(r[6] or 0) } else answer = -1 end
            else
              -- What is written anew is no vote in this round: a foreign client may have come and left while the key
              -- was gone.
              first = own and number_of(call('HGET', record, 'grant') or 0) or token
              if token > known then known = token end
              answer = { HEALED, number_of(r[5] or 0), number_of(r[6] or 0) }
            end
          end
          if counter and (extends or not own) and token > counter then counter = token end
          if first and (extends or not own) then
            call('HSET', record, 'owner', owner, 'seq', seq, 'ttl', ttl, 'grant', format('%.0f', first),
              'released', '0', 'counter', format('%.0f', known), 'inc', inc)
            -- Only released records have an end, and only theirs is in the index.
            if released then call('PERSIST', record) end
            if released or not r[4] then
              if gone > 0 then settle_index() end
              added[adds + 1], added[adds + 2] = '+inf', key
              adds = adds + 2
            end
          end
        end
      end
    end

    if not answer then
      if votes then
        answer = { REFUSED, view(key, holder, clamp, ahead) }
      else
        answer = { UNADMITTED }
      end
    end
  end

  if not usual or position >= last then
    -- Before any other operation, and at the end.
    if counter and counter > written then
      call('HSET', node, 'counter', format('%.0f', counter))
      written = counter
    end
    if adds > 0 or gone > 0 then settle_index() end
  end
  if not usual then
    position = position + 1
    answer = rare(op)
  end
  answered = answered + 1
  answers[answered] = answer
end
if guard == '' then return { 1, at, answers } end
return { 1, at, answers, standing, marker[1] or '', marker[3] or '' }
