-- What wrk does, and says when it is done: one line of JSON.
--
-- Arguments, after `--`: how many milliseconds are between two requests of a connection, how many seconds requests are
-- made for, every how many of them is a write (0: none).
--
-- With 0 milliseconds wrk is what it is by itself, a closed loop: each connection asks again as soon as it has its answer.
-- Else each connection, which must have a thread of its own, asks by a timetable. wrk cannot send a request before the last
-- one was answered, so what a slow server holds up is sent late; but it is counted from when it was due. Where the
-- connection was free by then, it is counted from when it was sent: wrk's timers are late by up to a millisecond, and that
-- is not the server's doing.

local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } moment; int clock_gettime(int, moment *);")
local MONOTONIC = 1
local at = ffi.new("moment")

local function now_us()
  ffi.C.clock_gettime(MONOTONIC, at)
  return tonumber(at.s) * 1e6 + tonumber(at.ns) / 1e3
end

-- Later than any run lasts.
local NEVER_MS = 3600 * 1000

local window_us, every = 0, 0
local write

local begun = 0

-- Of each thread, read by `done`, which runs in a state of its own. Times are in microseconds.
period_us, broken_off = 0, 0
late, took = {}, {}
-- When the next request is due, when none is due any more, when the last one was due (nil once it is answered).
due, last, pending = nil, nil, nil

local free_us, sent_us

local function answered()
  local now = now_us()
  late[#late + 1] = math.floor(now - pending)
  took[#took + 1] = math.floor(now - sent_us)
  pending, free_us = nil, now
end

local function wait_ms()
  local now = now_us()
  if not due then
    due, last, free_us = now + phase * period_us, now + window_us, now
  end
  if due >= last then
    return NEVER_MS
  end
  return math.max(0, math.ceil((due - now) / 1e3))
end

function init(arguments)
  period_us, window_us = tonumber(arguments[1]) * 1e3, tonumber(arguments[2]) * 1e6
  every = tonumber(arguments[3])
  write = wrk.format("POST", nil, { ["content-type"] = "application/json" }, '{"text":"a row by wrk"}')
  if period_us > 0 then
    response, delay = answered, wait_ms
  end
end

function request()
  -- Before there is a timetable wrk tries what this returns, and sends nothing.
  if period_us > 0 and due then
    -- wrk connects anew where a connection breaks, and asks at once.
    broken_off = broken_off + (pending and 1 or 0)
    sent_us = now_us()
    pending = free_us > due and due or sent_us
    due = due + period_us
  end
  begun = begun + 1
  if every > 0 and begun % every == 0 then
    return write
  end
  return wrk.format()
end

local threads = {}

-- Connections that begin together are spread over the time between two requests.
function setup(thread)
  thread:set("phase", math.random())
  table.insert(threads, thread)
end

-- The ages of what was due and has no answer.
local function unanswered(thread, ended, into)
  local pending, due, last = thread:get("pending"), thread:get("due"), thread:get("last")
  local period_us = thread:get("period_us")
  if pending then
    into[#into + 1] = math.floor(ended - pending)
  end
  while due and due < last do
    into[#into + 1] = math.floor(ended - due)
    due = due + period_us
  end
end

function done(summary, latency, _)
  local ended, all = now_us(), { late = {}, took = {}, unanswered = {} }
  local broken_off = 0
  for _, thread in ipairs(threads) do
    broken_off = broken_off + thread:get("broken_off")
    for _, name in ipairs({ "late", "took" }) do
      for _, value in ipairs(thread:get(name)) do
        table.insert(all[name], value)
      end
    end
    unanswered(thread, ended, all.unanswered)
  end
  local errors = summary.errors
  local fields = {
    { "duration_us", summary.duration },
    { "answered", summary.requests },
    { "bad_status", errors.status },
    { "broken", errors.connect + errors.read + errors.write + broken_off },
    { "p50_us", latency:percentile(50) },
    { "max_us", latency.max },
  }
  for number, field in ipairs(fields) do
    fields[number] = string.format('"%s":%.0f', field[1], field[2])
  end
  for _, name in ipairs({ "late", "took", "unanswered" }) do
    table.insert(fields, string.format('"%s_us":[%s]', name, table.concat(all[name], ",")))
  end
  io.write("\n{", table.concat(fields, ","), "}\n")
end
