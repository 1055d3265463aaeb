"""The connections to a cluster's brokers: requests to all of them side by side. Blocks: use it in one thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from brokers.errors import ConnectionLost
from brokers.kafka.link import Link
from brokers.kafka.wire.cluster import Metadata, Node, metadata_request, read_metadata
from brokers.kafka.wire.codec import Reader, Request
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.wire.versions import Unspoken, missing
from lake.errors import SojournError, UserError

#: Leaders and topics are asked for again after so many seconds, and at once when one of them moved.
METADATA_SECONDS = 5.0
_AWAY_SECONDS = 2.0
#: Requests under way to one broker: it works on one while we read the answer to another. Each must be small enough
#: for the sockets' buffers, or both sides would wait for the other to read.
_UNDER_WAY = 2
#: Connections to each broker: it works on two requests at once, where there is more than one to make.
_LANES = 2


class Job(NamedTuple):
    """A request, and what to do with its answer."""

    request: Request
    take: Callable[[Reader], None]


class Cluster:
    """A cluster as far as it can be reached; ConnectionLost where no broker of it can."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._password: str | None = None
        self._links: dict[tuple[int, int], Link] = {}
        self._away: dict[int, tuple[float, str]] = {}
        self._known_at = float("-inf")
        self.metadata = Metadata({}, {})

    def open(self) -> None:
        """Find the cluster by any of the bootstrap addresses; what one of them lacks, another may have."""
        self.close()
        broker = self._broker
        if broker.password is not None:
            self._password = broker.password.read(f"the password of broker {broker.name!r}")
        faults: list[SojournError] = []
        for address in broker.addresses():
            try:
                link = Link(broker, Node(*address), self._password)
                try:
                    _check(broker, link)
                    self._learn(link)
                finally:
                    link.close()
                return
            except SojournError as error:
                faults.append(error)
        raise _worst(faults)

    def close(self) -> None:
        """Disconnect from all brokers."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._away.clear()

    def forget_leaders(self) -> None:
        """Something moved: ask for leaders again before the next reading."""
        self._known_at = float("-inf")

    def refresh(self) -> None:
        """Learn topics and leaders anew if what is known is old, from any broker that answers."""
        if time.monotonic() - self._known_at < METADATA_SECONDS:
            return
        for node in sorted(self.metadata.nodes, key=lambda node: node in self._away):
            with suppress(ConnectionLost):
                self._learn(self._link(node))
                return
        self.open()

    def _learn(self, link: Link) -> None:
        self.metadata = read_metadata(link.ask(metadata_request()))
        self._known_at = time.monotonic()

    def newest(self, node: int, api: int) -> int:
        """The newest version of a request that a broker speaks; −1 where it does not, or is away."""
        try:
            return self._link(node).versions.get(api, (0, -1))[1]
        except ConnectionLost:
            return -1

    def _link(self, node: int, lane: int = 0) -> Link:
        away = self._away.get(node)
        if away is not None and time.monotonic() < away[0]:
            raise ConnectionLost(away[1])
        link = self._links.get((node, lane))
        if link is not None and link.expired and not link.waiting:
            link.close()
            link = None
        if link is None:
            where = self.metadata.nodes.get(node)
            if where is None:
                raise ConnectionLost(f"broker {node} is not in the cluster now")
            try:
                link = self._links[node, lane] = Link(self._broker, where, self._password)
                _check(self._broker, link)
            except (
                SojournError
            ) as error:  # what is wrong with one node, its certificate too, ends nothing on the others
                self._drop(node)
                self._away[node] = time.monotonic() + _AWAY_SECONDS, str(error)
                raise ConnectionLost(str(error)) from None
            self._away.pop(node, None)
        return link

    def _drop(self, node: int) -> None:
        for lane in range(_LANES):
            link = self._links.pop((node, lane), None)
            if link is not None:
                link.close()

    def do(self, jobs: Mapping[int, Sequence[Job]]) -> dict[int, str]:
        """Do every broker's jobs, the brokers side by side; brokers that failed, with the reason.

        A broker that fails is asked nothing more.
        """
        failed: dict[int, str] = {}
        waiting = {
            (node, lane): deque(queue[lane::_LANES])
            for node, queue in jobs.items()
            for lane in range(min(_LANES, len(queue)))
        }
        under_way: dict[tuple[int, int], deque[Job]] = {key: deque() for key in waiting}
        for key in [key for key, link in self._links.items() if link.waiting]:
            self._links.pop(key).close()  # an earlier call was broken off: what is still to come answers nothing here
        while waiting:
            for key in list(waiting):
                node = key[0]
                if node in failed:
                    del waiting[key]
                    continue
                try:
                    link = self._link(*key)
                    if under_way[key]:
                        answer = link.receive()
                        job = under_way[key].popleft()
                        self._fill(link, waiting[key], under_way[key])
                        job.take(answer)
                    else:
                        self._fill(link, waiting[key], under_way[key])
                except ConnectionLost as error:
                    self._drop(node)
                    self.forget_leaders()
                    failed[node] = str(error)
                    del waiting[key]
                    continue
                if not waiting[key] and not under_way[key]:
                    del waiting[key]
        return failed

    @staticmethod
    def _fill(link: Link, queue: deque[Job], under_way: deque[Job]) -> None:
        while queue and len(under_way) < _UNDER_WAY:
            job = queue.popleft()
            link.send(job.request)
            under_way.append(job)


def _worst(faults: list[SojournError]) -> SojournError:
    """What is said where no address answers: what the user must fix, if there is such; only where that is all that is
    wrong can waiting not help."""
    for fault in faults:
        if isinstance(fault, Unspoken):
            return fault
    to_mend = [fault for fault in faults if isinstance(fault, UserError)]
    if len(to_mend) == len(faults):
        return to_mend[0]
    return ConnectionLost(str(to_mend[0])) if to_mend else faults[-1]


def _check(broker: KafkaBroker, link: Link) -> None:
    lacks = missing(link.versions)
    if lacks is not None:
        raise Unspoken(f"broker {broker.name!r} at {link.where} is older than Kafka 3.0 or lacks requests: {lacks}")
