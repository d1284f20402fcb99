-- === the operations of every day ===
-- Written out in one loop, without functions of their own. Operations with the same fields come as a group: its fields
-- once, then how many, then what is each one's own.

local last = #argv
local answers, answered
while true do
  answers, answered = {}, 0
  local nth = 2
  -- The group at hand: what is left of it, and its fields.
  local op, left = false, 0
  local kind, owner, ttl, floor, clamp, token, expiry, marked, kept
  -- The grants of those who claim in this call.
  local shared
  while position < last or left > 0 do
    local answer
    local usual = true
    if left == 0 then
      op = argv[position + 1]
      if op == 'acquire' then
        position, left = position + 1, 1
      elseif op == 'extend' then
        ttl, left = argv[position + 2], argv[position + 3] + 0
        position = position + 3
      elseif op == 'claim' then
        owner, ttl, floor, clamp, left =
          argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5], argv[position + 6] + 0
        position = position + 6
      elseif op == 'extend_claim' then
        owner, ttl, token, left = argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5] + 0
        position = position + 5
      elseif op == 'confirm' then
        kind, owner, token, expiry, left =
          argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5], argv[position + 6] + 0
        position = position + 6
      elseif op == 'release' then
        kind, owner, marked, kept, left =
          argv[position + 2], argv[position + 3], argv[position + 4], argv[position + 5], argv[position + 6] + 0
        position = position + 6
      else
        usual = false
      end
    end

    if usual then
      left = left - 1
      nth = nth + 1
      local field = argv[nth + 4]
      local v = changed[field]
      if v == nil then v = long(rows[nth]) end
      local key, ahead = sub(field, 2), -1
      local state, named, of = judge(v)
      local plain = raw and plain_of(key)

      if op == 'release' then
        if plain == owner then hide(key) end
        if kind == 'claim' then
          if state == 67 and of == owner then changed[field] = false end
        elseif v and (byte(v) == 72 or byte(v) == 66) and sub(v, 134) == owner then
          -- Its numbers are not looked at: one that makes no sense stays so.
          release(key, v, marked, kept, sub(v, 118, 133) == inc)
        end
        answer = DONE

      elseif op == 'acquire' then
        nth = nth + 1
        local body_field = argv[nth + 4]
        local body = changed[body_field]
        if body == nil then body = rows[nth] end
        -- What is known of it may make no sense: then it is not known what was left.
        local torn = body and (#body ~= 55 or not find(body, '^%d+$')
          or sub(body, 1, 13) > now and (sub(body, 14, 29) > LAST or sub(body, 30, 45) > '9007199254740991'))
        body = kept_of(body)
        owner, ttl = argv[position + 1], argv[position + 2]
        -- The least grant.
        local shown = argv[position + 3]
        local take, waits, ticket = argv[position + 4], argv[position + 6], argv[position + 7]
        clamp = argv[position + 5]
        position = position + (ticket == '' and 7 or 9)
        if votes then
          local own, free, above = named and state ~= 67 and of == owner, false, nil
          if own then
            -- A1: what is over here is never granted again.
            free = state == 72 and (not plain or plain == owner)
          else
            free = may_take(v, state, named, of, take, plain)
            if ticket ~= '' then
              -- Only the other script has queues.
              ahead = queue(key, ticket, argv[position - 1])
              if argv[position] == '1' and ahead > 0 then free = false end
            end
            if free then
              above = base_of(v, state, named)
              if above >= LAST or shown > LAST then answer = UNCOUNTED elseif full then answer = FULL end
            end
          end
          local text
          if free and not answer and (body or torn) then
            text = body and text_of(key, body)
            if not text then answer = BARE end
          end
          if answer then
            -- Refused for a reason of its own.
          elseif free then
            local others = NONE
            if ticket ~= '' then
              if not own then pass_by(key, ticket, argv[position - 1]) end
              others = leave(key, ticket)
            end
            if own then
              -- A2: nothing is written.
              answer = { GRANTED, sub(v, 18, 33), body and sub(body, 14, 45) or '', text }
            else
              local until_then = NONE
              if state and state ~= 67 then until_then = sub(v, 47, 59) end
              if others > until_then then until_then = others end
              if until_then <= now then until_then = NONE end
              if above >= shown then shown = format('%016d', above + 1) end
              changed[field] = 'H' .. shown .. shown .. later(ttl) .. until_then .. ttl
                .. (body and sub(body, 14, 45) or UNWRITTEN) .. FIRST .. inc .. owner
              if body then
                if sub(body, 1, 13) ~= NEVER then changed[body_field] = NEVER .. sub(body, 14) end
                answer = { GRANTED, shown, sub(body, 14, 45), text }
              else
                answer = shown + 0
              end
              if raw then show(key, owner, ttl) end
            end
          else
            answer = refuse(key, v, state, named, ahead, clamp, waits)
          end
        end

      elseif op == 'claim' then
        if votes then
          if state == 67 and named and sub(v, 18, 30) > now then
            if of == owner and (not plain or plain == owner) then answer = sub(v, 2, 17) + 0 end
          elseif state ~= false and not plain
            and not ((state == 72 or state == 66) and named and sub(v, 34, 46) > now) then
            -- What was known of this one: `c` was below what is shared, unless its row has gone in this call.
            local known = changed[field] == false and c or FIRST
            if state and state ~= 67 then known = sub(v, 2, 17) end
            shared = shared or {}
            local shown = shared[owner]
            if not shown or shown < known or shown <= floor then
              local above = c
              if known > above then above = known end
              if floor > above then above = floor end
              shown = above < LAST and format('%016d', above + 1)
            end
            if not counts or not shown then
              answer = UNCOUNTED
            elseif full then
              answer = FULL
            else
              shared[owner] = shown
              if shown > c then c = shown end
              changed[field] = 'C' .. shown .. later(ttl) .. inc .. owner
              if raw then show(key, owner, ttl) end
              answer = shown + 0
            end
          end
          if not answer and state == 67 and sub(v, 18, 30) > later(clamp) then
            -- N10: clocks are set back.
            v = sub(v, 1, 17) .. later(clamp) .. sub(v, 31)
            changed[field] = v
            if plain and plain == of then lives[key] = clamp + 0 end
          end
        end

      elseif op == 'extend_claim' then
        if votes and state == 67 and named and of == owner and sub(v, 18, 30) > now and (not raw or plain == owner) then
          if counts then
            local until_then = later(ttl)
            if until_then > sub(v, 18, 30) then changed[field] = sub(v, 1, 17) .. until_then .. sub(v, 31) end
            if token > c then c = token end
            if raw then show(key, owner, ttl) end
            answer = SAME
          else
            answer = UNCOUNTED
          end
        end

      elseif op == 'confirm' then
        if votes and named and of == owner then
          if kind == 'claim' then
            if state == 67 and sub(v, 18, 30) > now and (not raw or plain == owner) then
              if sub(v, 2, 17) > token then
                answer = { LARGER, sub(v, 2, 17) }
              elseif not counts then
                answer = UNCOUNTED
              else
                if token > c then c = token end
                answer = DONE
              end
            end
          elseif is_held(v, state, plain, owner, expiry) then
            if sub(v, 18, 33) > token then
              answer = { LARGER, sub(v, 18, 33) }
            else
              if token > sub(v, 2, 17) then changed[field] = 'H' .. token .. sub(v, 18) end
              answer = DONE
            end
          end
        end

      else
        -- A named lock is extended.
        owner = argv[position + 1]
        local seq, take = argv[position + 2], argv[position + 4]
        token = argv[position + 3]
        position = position + 4
        if votes then
          local counter, until_then = token, later(ttl)
          if named and state ~= 67 and of == owner then
            -- E2: what is over here is never extended. O5: rounds grow.
            if state == 72 and seq > sub(v, 102, 117) and (not plain or plain == owner) then
              if sub(v, 2, 17) > counter then counter = sub(v, 2, 17) end
              if sub(v, 34, 46) > until_then then until_then = sub(v, 34, 46) end
              local version, waits = sub(v, 70, 101), sub(v, 47, 59)
              if waits <= now then waits = NONE end
              changed[field] = 'H' .. counter .. sub(v, 18, 33) .. until_then .. waits .. ttl .. version .. seq .. sub(v, 118)
              -- A foreign client may have come and left while the key was gone.
              if raw and take == 's' and not plain then
                answer = { HEALED, version }
              elseif version == UNWRITTEN then
                answer = SAME
              else
                answer = { KEPT, version }
              end
              if raw then show(key, owner, ttl) end
            end
          elseif not (named and state ~= 67 and sub(v, 2, 17) > token)
            and may_take(v, state, named, of, take, plain) then
            -- E3: nothing of this lease stands here, and no other was granted since that we know of.
            if counts or named and state ~= 67 then
              local above, waits = base_of(v, state, named), NONE
              if above > counter then counter = above end
              if state and state ~= 67 then waits = sub(v, 47, 59) end
              local version = keep_body(key)
              changed[field] = 'H' .. counter .. token .. until_then .. waits .. ttl .. version .. seq .. inc .. owner
              answer = { HEALED, version }
              if raw then show(key, owner, ttl) end
            else
              answer = UNCOUNTED
            end
          end
        end
      end

      if not answer then
        if votes then
          answer = look(REFUSED, key, v, state, named)
        else
          answer = UNADMITTED
        end
      end
    else
      position = position + 1
      answer = rare(op)
    end
    answered = answered + 1
    answers[answered] = answer
  end
  if flush() then break end
  -- Once more, with what is new refused: as it was when the call began.
  position, left, c = 6 + given, 0, stands
  changed, plains, lives, told, shared = {}, {}, {}, nil, nil
end
if guard == '' then return { 1, now + 0, answers } end
return { 1, now + 0, answers, standing, marker or '', config or '' }
