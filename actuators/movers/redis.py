"""Moving messages between Redis streams, and between lists as Celery has them. Each step is one script: atomic.

Nobody sees a message twice, or not at all, whenever the mover is killed. Both keys must be on one server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from actuators.base import Refused
from actuators.movers.base import TRACE, Choice, Message, Moved, MoverSettings, Trace
from brokers import tenants
from brokers.redis.link import Link
from brokers.redis.resp import Refusal
from brokers.redis.settings import RedisServer
from lake.errors import SojournError

#: Entries that are looked at in one step.
_PAGE = 500

# Whether an entry is behind what every group was delivered, and the newest of what they were.
_BORDER = """
local function border(key)
  local most, seq = '0', 0
  if redis.call('EXISTS', key) == 0 then return '0-0' end
  local highest, rest = -1, -1
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    for i = 1, #group, 2 do
      if group[i] == 'last-delivered-id' then
        local ms, n = string.match(group[i + 1], '(%d+)%-(%d+)')
        ms, n = tonumber(ms), tonumber(n)
        if ms > highest or (ms == highest and n > rest) then highest, rest = ms, n end
      end
    end
  end
  if highest < 0 then return '0-0' end
  return string.format('%.0f-%.0f', highest, rest)
end
local function carry(from, to, id, trace)
  local ms, n = string.match(id, '(%d+)%-(%d+)')
  local bms, bn = string.match(border(from), '(%d+)%-(%d+)')
  ms, n, bms, bn = tonumber(ms), tonumber(n), tonumber(bms), tonumber(bn)
  if ms < bms or (ms == bms and n <= bn) then return 0 end
  local found = redis.call('XRANGE', from, id, id)
  if #found == 0 then return 0 end
  local fields, traced = found[1][2], false
  for i = 1, #fields, 2 do if fields[i] == ARGV[1] then traced = true end end
  if not traced then fields[#fields + 1] = ARGV[1]; fields[#fields + 1] = trace end
  if to ~= '' then redis.call('XADD', to, '*', unpack(fields)) end
  redis.call('XDEL', from, id)
  return 1
end
"""
# KEYS: from, to ("" to drop). ARGV: name of the trace, then id, trace, id, trace …
_MOVE = (
    _BORDER
    + """
local moved = 0
for i = 2, #ARGV, 2 do moved = moved + carry(KEYS[1], KEYS[2] or '', ARGV[i], ARGV[i + 1]) end
return moved
"""
)
# KEYS: aside, home. ARGV: name of the trace, names of the tenant's field, newest id at home that was looked at, how
# many go back, how many are late, then id, trace of each, then the tenants. What came to home since is late as well.
_BACK = (
    _BORDER
    + """
local back, late = 2 * tonumber(ARGV[4]), 2 * tonumber(ARGV[5])
local ours, names = {}, cjson.decode(ARGV[2])
for i = 6 + back + late, #ARGV do ours[ARGV[i]] = true end
for i = 6 + back, 5 + back + late, 2 do carry(KEYS[2], KEYS[1], ARGV[i], ARGV[i + 1]) end
for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '(' .. ARGV[3], '+')) do
  local fields = entry[2]
  for i = 1, #fields, 2 do
    if names[string.lower(fields[i])] and ours[fields[i + 1]] then
      local told = {id = KEYS[2] .. '-' .. entry[1], from = KEYS[2], address = entry[1], at = ''}
      told['enqueued_at'] = tonumber(string.match(entry[1], '(%d+)%-')) / 1000
      carry(KEYS[2], KEYS[1], entry[1], cjson.encode(told))
    end
  end
end
local moved = 0
for i = 6, 5 + back, 2 do moved = moved + carry(KEYS[1], KEYS[2], ARGV[i], ARGV[i + 1]) end
return moved
"""
)
_BORDER_OF = _BORDER + "return border(KEYS[1])"


class RedisMoverSettings(MoverSettings, RedisServer):
    """Which server. Queues are keys of streams; what groups have delivered is never moved."""

    kind: Literal["redis_stream"] = "redis_stream"
    tenant: Annotated[tenants.TenantRules, tenants.only("header")] = Field(
        default=(tenants.parse("header:tenant"),), description="the entry's field that names its tenant: header:NAME"
    )


class RedisListSettings(MoverSettings, RedisServer):
    """Which server. Queues are keys of lists, the oldest at their right end, as Celery's are; messages are not touched
    at all. ``header`` of a tenant's rule looks into the JSON's ``headers``, ``json`` into all of it."""

    kind: Literal["redis_list"] = "redis_list"
    tenant: Annotated[tenants.TenantRules, tenants.only("header", "json")] = Field(
        default=(tenants.parse("header:tenant"),), description="where a message names its tenant"
    )


class _Redis:
    def __init__(self, settings: RedisMoverSettings | RedisListSettings) -> None:
        self._settings = settings

    def _asked(self, *command: str | int | bytes) -> Any:
        try:
            with Link(self._settings) as link:
                return link.demand(*command)
        except Refusal as refusal:
            kind = Refused if refusal.code in ("CROSSSLOT", "WRONGTYPE", "NOPERM", "READONLY") else SojournError
            raise kind(f"Redis {self._settings.name!r} refuses: {refusal}") from None

    def _page(self, found: Sequence[Any], choose: Choice, most: int, skip: int) -> list[Any]:
        chosen = [one for one in found if choose(one[0])]
        return chosen[skip : skip + most]


class RedisStreamMover(_Redis):
    """Carries entries of streams; a batch is one script."""

    _NAME: ClassVar[str] = TRACE

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""
        found, looked = self._waiting(source, choose, most, skip)
        return Moved(self._run(_MOVE, [source, target], [self._NAME, *_flat(found)]) if found else 0, looked)

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""
        ahead, looked = self._waiting(aside, choose, max(1, most), 0)
        if not ahead:
            return Moved(0, looked)
        found, first = ahead[:most], dict[str | None, tuple[int, int]]()
        for one, trace in ahead:
            origin = Trace.of(trace)
            came = "" if origin is None or origin.origin != home else origin.address
            first.setdefault(one.tenant, _number(came))
        newest = self._newest(home)
        late, _ = self._waiting(
            home,
            lambda one: one.tenant in first and first[one.tenant] < _number(one.id) and TRACE not in one.headers,
            1 << 30,
            0,
        )
        late = [(one, trace) for one, trace in late if _number(one.id) <= _number(newest)]
        numbers = [newest, str(len(found)), str(len(late))]
        named = [tenant for tenant in first if tenant is not None]
        fields = json.dumps({rule.text.lower(): True for rule in self._settings.tenant})
        arguments = [self._NAME, fields, *numbers, *_flat(found), *_flat(late), *named]
        return Moved(self._run(_BACK, [aside, home], arguments), looked)

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        return len(self._waiting(queue, choose, most, 0)[0])

    def _newest(self, key: str) -> str:
        """The newest id that the stream has given."""
        if not self._asked("EXISTS", key):
            return "0-0"
        told = self._asked("XINFO", "STREAM", key)
        return str(dict(zip(told[::2], told[1::2], strict=True))[b"last-generated-id"].decode())

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        found, _ = self._waiting(source, choose, most, 0)
        return self._run(_MOVE, [source], [self._NAME, *_flat(found)]) if found else 0

    def waiting(self, queue: str) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        return int(self._asked("XLEN", queue))

    def _run(self, script: str, keys: list[str], arguments: list[str]) -> int:
        return int(self._asked("EVAL", script, len(keys), *keys, *arguments))

    def _waiting(self, key: str, choose: Choice, most: int, skip: int) -> tuple[list[tuple[Message, str]], int]:
        """The chosen entries that no group was delivered, with their traces."""
        at = "(" + self._asked("EVAL", _BORDER_OF, 1, key).decode()
        found: list[tuple[Message, str]] = []
        looked = 0
        while len(found) < most + skip:
            page = self._asked("XRANGE", key, at, "+", "COUNT", _PAGE)
            found += [(one, trace) for one, trace in (self._read(key, *entry) for entry in page) if choose(one)]
            looked += len(page)
            if len(page) < _PAGE:
                break
            at = "(" + page[-1][0].decode()
        return found[skip : skip + most], looked

    def _read(self, key: str, id: bytes, fields: list[bytes]) -> tuple[Message, str]:
        names = [field.decode("utf-8", "replace") for field in fields]
        headers = dict(zip(names[::2], names[1::2], strict=True))
        trace = Trace.of(headers.get(TRACE))
        enqueued = int(id.split(b"-")[0]) / 1000 if trace is None else trace.enqueued_at
        tenant = tenants.tenant_of(self._settings.tenant, tenants.Message(headers=headers))
        message = Message(id.decode(), tenant, enqueued, headers)
        trace = trace or Trace.now(f"{key}-{message.id}", key, message.id, enqueued, {})
        return message, trace.text()


def _number(id: str) -> tuple[int, int]:
    high, _, low = id.partition("-")
    return (int(high), int(low)) if high.isdecimal() and low.isdecimal() else (0, 0)


def _flat(found: Sequence[tuple[Message, str]]) -> list[str]:
    return [part for message, trace in found for part in (message.id, trace)]


# KEYS: from, to (none: dropped). ARGV: the messages, the oldest first. The oldest of equal ones is taken.
_LISTS = """
local moved = 0
for i = 1, #ARGV do
  if redis.call('LREM', KEYS[1], -1, ARGV[i]) == 1 then
    if KEYS[2] then redis.call('LPUSH', KEYS[2], ARGV[i]) end
    moved = moved + 1
  end
end
return moved
"""


class RedisListMover(_Redis):
    """Carries elements of lists from right to right: what is popped is nobody else's any more."""

    def move(self, source: str, target: str, choose: Choice, most: int, *, skip: int = 0) -> Moved:
        """See :class:`actuators.movers.base.Mover`."""
        found, looked = self._waiting(source, choose, most, skip)
        return Moved(self._run([source, target], found), looked)

    def give_back(self, aside: str, home: str, choose: Choice, most: int) -> Moved:
        """See :class:`actuators.movers.base.Mover`; lists do not tell when what came: what goes back goes behind."""
        found, looked = self._waiting(aside, choose, most, 0)
        return Moved(self._run([aside, home], found), looked)

    def count(self, queue: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        return len(self._waiting(queue, choose, most, 0)[0])

    def drop(self, source: str, choose: Choice, most: int) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        return self._run([source], self._waiting(source, choose, most, 0)[0])

    def waiting(self, queue: str) -> int:
        """See :class:`actuators.movers.base.Mover`."""
        return int(self._asked("LLEN", queue))

    def _run(self, keys: list[str], found: list[bytes]) -> int:
        return int(self._asked("EVAL", _LISTS, len(keys), *keys, *found)) if found else 0

    def _waiting(self, key: str, choose: Choice, most: int, skip: int) -> tuple[list[bytes], int]:
        found: list[bytes] = []
        looked, length = 0, self.waiting(key)
        while len(found) < most + skip and looked < length:
            page = self._asked("LRANGE", key, -looked - _PAGE, -looked - 1)
            found += [one for one in reversed(page) if choose(self._read(one))]
            looked += len(page)
            if not page:
                break
        return found[skip : skip + most], looked

    def _read(self, element: bytes) -> Message:
        document: Any = None
        try:
            document = json.loads(element)
            headers = document.get("headers") or {}
            plain = {str(name): str(value) for name, value in headers.items() if value is not None}
        except (ValueError, AttributeError, RecursionError):
            plain = {}
        at = plain.get("enqueued_at", "")
        known = float(at) if at.replace(".", "", 1).isdecimal() else None
        enqueued = known if known is not None and known <= time.time() else None
        tenant = tenants.tenant_of(self._settings.tenant, tenants.Message(headers=plain, document=document))
        return Message(plain.get("id", ""), tenant, enqueued, plain)
