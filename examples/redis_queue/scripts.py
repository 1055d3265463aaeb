"""The recipe's steps as Lua: Redis runs each whole, so that no crash of ours can leave a message in two places or none.

Keys of one shard, all in one hash slot by their braces:

==========================================  =================================================================
``<prefix>.QUEUE.{<queue>.<shard>}``        sorted set of waiting and delayed ids; score = due, in milliseconds
``<prefix>.UNACK.{<queue>.<shard>}.0``      sorted set of ids that a consumer holds; score = its deadline
``<prefix>.MSG.{<queue>.<shard>}.0``        hash: id → the message, JSON
``<prefix>.SINCE.{<queue>.<shard>}``        sorted set of all ids; score = when first due, kept over deliveries
==========================================  =================================================================

The first three are the dyno-queues recipe. The fourth is ours: a message that is delivered again is scored by the
deadline that it missed, and without it nobody could tell how long it has really waited.
"""

from __future__ import annotations

#: The server's clock, in whole milliseconds, as every score is.
_NOW = "local t = redis.call('TIME')\nlocal now = t[1] * 1000 + math.floor(t[2] / 1000)\n"

#: KEYS: queue, unack, messages, since. ARGV: id, payload as JSON, delay in ms, priority 0 (first) … 99.
#: 1, or 0 if the id is there already: pushing again does nothing, so that a producer may repeat what it is unsure of.
#: Doubles of today's milliseconds are 2^-12 apart: room for hundredths.
PUSH = (
    _NOW
    + """
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return 0 end
local due = now + tonumber(ARGV[3])
local message = '{"id":' .. cjson.encode(ARGV[1]) .. ',"payload":' .. ARGV[2] .. ',"timeout":' .. ARGV[3]
  .. ',"priority":' .. ARGV[4] .. ',"enqueuedAt":' .. string.format('%.0f', now) .. '}'
redis.call('HSET', KEYS[3], ARGV[1], message)
redis.call('ZADD', KEYS[1], string.format('%.2f', due + tonumber(ARGV[4]) / 100), ARGV[1])
redis.call('ZADD', KEYS[4], string.format('%.0f', due), ARGV[1])
return 1
"""
)

#: KEYS as above. ARGV: how many, ms until the deadline. The deadline, and the messages as JSON, the earliest due first.
POLL = (
    _NOW
    + """
local taken = {}
local deadline = string.format('%.0f', now + tonumber(ARGV[2]))
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now + 1), 'LIMIT', 0, ARGV[1])
for _, id in ipairs(due) do
  redis.call('ZREM', KEYS[1], id)
  local message = redis.call('HGET', KEYS[3], id)
  if message then
    redis.call('ZADD', KEYS[2], deadline, id)
    taken[#taken + 1] = message
  else
    redis.call('ZREM', KEYS[4], id)
  end
end
return {deadline, taken}
"""
)

#: KEYS as above. ARGV: id, the deadline that poll gave. 1 if the message is gone now; 0 if it is held by that deadline
#: no more: it was swept, and waits again or is another consumer's.
ACK = """
local deadline = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not deadline or tonumber(deadline) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
return 1
"""

#: KEYS as above. ARGV: how many at most. How many went back: those whose deadline is over, scored by it.
SWEEP = (
    _NOW
    + """
local over = string.format('%.0f', now)
local overdue = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', over, 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #overdue, 2 do
  redis.call('ZREM', KEYS[2], overdue[i])
  if redis.call('HEXISTS', KEYS[3], overdue[i]) == 1 then
    redis.call('ZADD', KEYS[1], overdue[i + 1], overdue[i])
  else
    redis.call('ZREM', KEYS[4], overdue[i])
  end
end
return #overdue / 2
"""
)
