"""Under which names spans stand: those of the broker and the queue that are sampled, so that one queue has one row.

A span names the kind of broker and its queue, often the server's address. Which of ``[[collect.brokers]]`` that is
follows, in this order, from

1. the first of ``receive.joins`` that fits, then ``receive.names``;
2. the server's address: host and port, or the host alone where the port is another of its services;
3. there being one such broker alone;
4. the queue: of several brokers, the one whose newest samples show a queue of that name.

Where nothing tells, the events stand under the kind's own name, and ``sojourn doctor`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from collectors.broker import Broker, matching
from collectors.receive.attributes import SYSTEMS
from collectors.receive.settings import JoinSettings

_LOOPBACK = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Watched:
    """A broker of ``[[collect.brokers]]``: the kinds that spans may call it, and where it listens."""

    name: str
    systems: frozenset[str]
    addresses: frozenset[tuple[str, int]]


def watched(brokers: Iterable[Broker]) -> list[Watched]:
    """``brokers`` as spans may speak of them."""
    return [
        Watched(one.name, one.systems(), frozenset((_host(host), port) for host, port in one.addresses()))
        for one in brokers
    ]


def nothing_shown() -> Collection[tuple[str, str]]:
    """No samples at all."""
    return ()


class Joins:
    """Names of brokers and queues for what spans call them; ``shown`` gives (broker, queue) of the newest samples."""

    def __init__(
        self,
        rules: Sequence[JoinSettings] = (),
        names: Mapping[str, str] | None = None,
        brokers: Sequence[Watched] = (),
        shown: Callable[[], Collection[tuple[str, str]]] = nothing_shown,
    ) -> None:
        self._rules = rules
        self._names = names or {}
        self._brokers = brokers
        self._shown = shown

    def of(self, system: str, host: str | None, port: int | None, queue: str) -> tuple[str, str, bool]:
        """(broker, queue, whether that is for good): false where samples may still tell which broker it is."""
        for rule in self._rules:
            if rule.system == system and _serves(rule.server, host, port) and matching(queue, (rule.queue,)):
                return rule.broker, rule.as_queue or queue, True
        if system in self._names:
            return self._names[system], queue, True
        kind = SYSTEMS.get(system, system)
        able = [one for one in self._brokers if kind in one.systems]
        for chosen in (_by_address(able, host, port), able):
            if len(chosen) == 1:
                return chosen[0].name, queue, True
        if not able:
            return kind, queue, True
        shown = self._shown()
        holding = [one.name for one in able if (one.name, queue) in shown]
        return (holding[0], queue, True) if len(holding) == 1 else (kind, queue, False)


def _host(host: str) -> str:
    host = host.lower().strip("[]")
    return _LOOPBACK.get(host, host)


def _serves(server: str | None, host: str | None, port: int | None) -> bool:
    """Whether a rule for ``server`` (host or host:port) is one for a span of ``host`` and ``port``."""
    if server is None:
        return True
    if host is None:
        return False
    name, _, number = server.rpartition(":") if not server.endswith("]") and ":" in server else (server, "", "")
    return _host(name) == _host(host) and number in ("", str(port))


def _by_address(brokers: Sequence[Watched], host: str | None, port: int | None) -> list[Watched]:
    """Those of ``brokers`` that listen at ``host``: at ``port`` too, where one of them does."""
    if host is None:
        return []
    host = _host(host)
    exactly = [one for one in brokers if port is not None and (host, port) in one.addresses]
    return exactly or [one for one in brokers if any(host == its for its, _ in one.addresses)]
