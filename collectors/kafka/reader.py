"""One cycle of reading: groups, what they committed, **then** where partitions end, then the messages at the heads.

In that order a group cannot have committed past an end that is read later: lag is never negative by construction.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from brokers.errors import ConnectionLost
from brokers.kafka.wire.codec import Reader, Request
from collectors.kafka.beginnings import Beginnings
from collectors.kafka.cluster import Cluster, Job
from collectors.kafka.errors import MOVED, NO_SUCH_GROUP, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, words
from collectors.kafka.offset_timestamps import OffsetTimestamps
from collectors.kafka.reading import REBALANCING, SHARE, Found, GroupReading, Head, Place, Reading, matches, wanted
from collectors.kafka.settings import KafkaBroker
from collectors.kafka.transactions import Transactions
from collectors.kafka.wire.groups import (
    LIST_GROUPS,
    Committed,
    Listed,
    Members,
    describe_request,
    list_groups_request,
    offset_fetch_request,
    read_classic_members,
    read_consumer_members,
    read_list_groups,
    read_offset_fetch,
)
from collectors.kafka.wire.offsets import EARLIEST, LATEST, list_offsets_request, read_list_offsets
from collectors.kafka.wire.others import (
    DESCRIBE_SHARE_GROUP_OFFSETS,
    describe_share_request,
    describe_streams_request,
    read_share_members,
    read_share_offsets,
    read_streams_members,
    share_offsets_request,
)

log = logging.getLogger(__name__)

Item = TypeVar("Item")

_GROUPS_AT_ONCE = 100
_PARTITIONS_AT_ONCE = 1500
#: Members change seldom; they are asked for again after so many seconds, and at once when a group's state changed.
MEMBERS_SECONDS = 5.0
NO_LEADER = 5
_COORDINATOR_MOVES = 16
#: Kind of group → how its members are asked for, and read. Classic ones, and those of brokers that tell no kind: "".
_DESCRIBED: dict[str, tuple[Callable[[list[str]], Request], Callable[[Reader], dict[str, Members | int]]]] = {
    "": (lambda names: describe_request(names, classic=True), read_classic_members),
    "consumer": (lambda names: describe_request(names, classic=False), read_consumer_members),
    SHARE: (describe_share_request, read_share_members),
    "streams": (describe_streams_request, read_streams_members),
}
#: Whose heads the first records of open transactions are; no group has this name.
_TRANSACTIONS = ""


class ClusterReader:
    """Reads one cluster again and again. Blocks: use it in one thread.

    ``clock`` tells milliseconds since 1970, ``ticks`` milliseconds on a clock that is never set.
    """

    def __init__(
        self,
        broker: KafkaBroker,
        cluster: Cluster | None = None,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        ticks: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._broker = broker
        self.cluster = cluster or Cluster(broker)
        self._clock, self._ticks = clock, ticks
        self._transactions = Transactions(broker.status.patience // 2)
        self._beginnings = Beginnings(broker.uncommitted)
        self._offset_timestamps = OffsetTimestamps(self.cluster, broker.head_bytes)
        self._identities: dict[str, bytes] = {}
        self.made_anew = False  # a topic was deleted and made again since the last reading
        self._coordinators: dict[str, tuple[int, Listed]] = {}
        self._members: dict[str, tuple[float, str, Members | str]] = {}
        self._topics_of: dict[str, Mapping[str, Mapping[int, int]]] = {}
        self._starts: dict[Place, int] = {}
        self._complaints: set[str] = set()
        self._unlisted = ""  # why some node's groups are not known

    def open(self) -> None:
        """Connect; ConnectionLost, CredentialsRefused or UserError if we are not served."""
        self.cluster.open()
        self._offset_timestamps.forget()

    def close(self) -> None:
        """Disconnect."""
        self.cluster.close()

    def forget_offset_timestamps(self) -> None:
        """Read the messages at the heads of groups again, even of groups that have not moved."""
        self._offset_timestamps.forget()

    def read(self) -> Reading:
        """Everything once; ConnectionLost if no broker answers."""
        self.cluster.refresh()
        self._notice_new_topics()
        partitions = self._partitions()
        groups = self._groups(partitions)
        return self._rest(partitions, groups)

    def _notice_new_topics(self) -> None:
        identities = {name: topic.identity for name, topic in self.cluster.metadata.topics.items()}
        known, self.made_anew = self._identities, False
        if any(known.get(name, identity) != identity for name, identity in identities.items()):
            self._offset_timestamps.forget()
            self._starts.clear()
            self._transactions.forget()
            self._beginnings.forget()
            self.made_anew = True
        self._identities = identities

    def _partitions(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(topic.leaders)
            for name, topic in self.cluster.metadata.topics.items()
            if topic.leaders and not topic.internal and not name.startswith("__") and wanted(name, self._broker.topics)
        }

    # Groups

    def _groups(self, partitions: Mapping[str, tuple[int, ...]]) -> tuple[GroupReading, ...]:
        silent = self._list()
        by_node: dict[int, list[Listed]] = defaultdict(list)
        for name, (node, listed) in self._coordinators.items():
            if name not in silent:
                by_node[node].append(listed)
        committed: dict[str, Committed] = {}
        jobs: dict[int, list[Job]] = {}
        for node, some in by_node.items():
            jobs[node] = self._member_jobs(node, some) + self._offset_jobs(node, some, committed)
        failed = self.cluster.do(jobs)
        found = []
        for name, (node, listed) in self._coordinators.items():
            if (answer := committed.get(name)) is None:
                reason = silent.get(name) or failed.get(node, "the broker did not tell the group's offsets")
                before = self._topics_of.get(name, {})
                found.append(GroupReading(name, listed.state, reason, before, failed=reason))
            elif answer.error == NO_SUCH_GROUP:
                continue
            else:
                found.append(self._group(listed, answer, partitions))
        self._topics_of = {group.name: group.committed for group in found}
        return tuple(found)

    def _offset_jobs(self, node: int, groups: list[Listed], committed: dict[str, Committed]) -> list[Job]:
        """What is to be asked about how far groups are; the answers are put into ``committed``."""
        shares = [group.name for group in groups if group.kind == SHARE]
        others = [group.name for group in groups if group.kind != SHARE]
        jobs = [
            Job(offset_fetch_request(part), lambda answer: committed.update(read_offset_fetch(answer)))
            for part in _parts(others, _GROUPS_AT_ONCE)
        ]
        newest = self.cluster.newest(node, DESCRIBE_SHARE_GROUP_OFFSETS) if shares else -1
        if newest < 0:
            committed.update(dict.fromkeys(shares, Committed(UNSUPPORTED_VERSION)))
            return jobs
        requests = [share_offsets_request(part, newest) for part in _parts(shares, _GROUPS_AT_ONCE)]
        version = requests[0].version
        return jobs + [
            Job(request, lambda answer: committed.update(read_share_offsets(answer, version))) for request in requests
        ]

    def _list(self) -> dict[str, str]:
        """Learn which groups there are and who coordinates them; those whose coordinator is silent, with the reason."""
        told: dict[int, list[Listed]] = {}
        failed: dict[int, str] = {}

        def job(node: int) -> Job:
            request = list_groups_request(self.cluster.newest(node, LIST_GROUPS))

            def take(answer: Reader) -> None:
                error, groups = read_list_groups(answer, request.version)
                if error:
                    failed[node] = words(error)
                else:
                    told[node] = groups

            return Job(request, take)

        away = self.cluster.do({node: [job(node)] for node in self.cluster.metadata.nodes})
        if away.keys() >= self.cluster.metadata.nodes.keys():
            raise ConnectionLost(next(iter(away.values()), "the cluster has no brokers"))
        failed |= away
        self._unlisted = _not_asked(failed, len(self.cluster.metadata.nodes))
        found: dict[str, tuple[int, Listed]] = {}
        for node, groups in told.items():
            for group in groups:
                if wanted(group.name, self._broker.groups):
                    found[group.name] = node, group
        silent: dict[str, str] = {}
        missing = sorted(self._coordinators.keys() - found.keys())
        gone = self._gone(missing, list(told))
        for name in missing:
            if name not in gone:
                found[name] = self._coordinators[name]
                silent[name] = failed.get(found[name][0], words(_COORDINATOR_MOVES))
        self._coordinators = dict(sorted(found.items()))
        self._members = {name: was for name, was in self._members.items() if name in found}
        self._complaints &= found.keys()
        return silent

    def _gone(self, names: list[str], nodes: list[int]) -> set[str]:
        """Groups that are listed no more because they were deleted, as their coordinator says: while coordinators
        change, nobody lists a group that is there."""
        gone: set[str] = set()

        def take(answer: Reader) -> None:
            gone.update(name for name, said in read_classic_members(answer).items() if said == NO_SUCH_GROUP)

        parts = [describe_request(part, classic=True) for part in _parts(names, _GROUPS_AT_ONCE)]
        self.cluster.do({node: [Job(request, take) for request in parts] for node in nodes})
        return gone

    def _member_jobs(self, node: int, groups: list[Listed]) -> list[Job]:
        """What is to be asked about members: only of groups that have some, and not each cycle."""
        now = time.monotonic()
        due: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            known = self._members.get(group.name)
            if group.state in ("Empty", "Dead"):
                self._members[group.name] = now, group.state, Members(0, {})
            elif known is None or known[1] != group.state or now - known[0] >= MEMBERS_SECONDS:
                due[group.kind if group.kind in _DESCRIBED else ""].append(group.name)
        states = {group.name: group.state for group in groups}

        def take(answers: Mapping[str, Members | int]) -> None:
            for name, answer in answers.items():
                said = words(answer) if isinstance(answer, int) else answer
                self._members[name] = now, states.get(name, ""), said

        def job(request: Request, read: Callable[[Reader], dict[str, Members | int]]) -> Job:
            return Job(request, lambda answer: take(read(answer)))

        jobs = []
        for kind, names in due.items():
            request, read = _DESCRIBED[kind]
            for part in _parts(names, _GROUPS_AT_ONCE):
                asked = request(part)
                if self.cluster.newest(node, asked.api) >= asked.version:
                    jobs.append(job(asked, read))
        return jobs

    def _group(self, listed: Listed, answer: Committed, partitions: Mapping[str, tuple[int, ...]]) -> GroupReading:
        members = self._members.get(listed.name, (0.0, "", "the broker did not tell the group's members"))[2]
        offsets = {topic: told for topic, told in answer.offsets.items() if topic in partitions}
        for topic in self._assigned(listed, members):
            if topic in partitions:
                offsets.setdefault(topic, {})
        if any(topic not in self.cluster.metadata.topics for topic in answer.offsets):
            self.cluster.forget_leaders()  # a topic just created, or one that was deleted: its rows are left out
        errors = {place: words(error) for place, error in answer.errors.items()}
        failed = words(answer.error) if answer.error else None
        if failed is not None:
            offsets = dict(self._topics_of.get(listed.name, {}))
            if not offsets and listed.name not in self._complaints:
                self._complaints.add(listed.name)
                log.warning("group %s cannot be sampled: %s", listed.name, failed)
        else:
            self._complaints.discard(listed.name)
        return GroupReading(listed.name, listed.state, members, offsets, errors, failed, listed.kind, answer.lags)

    def _assigned(self, listed: Listed, members: Members | str) -> Iterable[str]:
        """Topics that a group's members are to read, whether or not anything is committed. While that is decided anew,
        or not told, those that it was seen to read without having committed."""
        if isinstance(members, Members) and not (listed.state in REBALANCING and members.total > 0):
            return members.by_topic
        before = self._topics_of.get(listed.name, {})
        return [topic for topic, told in before.items() if not told]

    # Ends, starts and heads

    def _rest(self, partitions: dict[str, tuple[int, ...]], groups: tuple[GroupReading, ...]) -> Reading:
        read = {topic for group in groups for topic in group.committed}
        if not self._broker.unread_topics:
            partitions = {topic: parts for topic, parts in partitions.items() if topic in read}
        ends = self._offsets(_places(partitions), LATEST)
        partitions = _without_absent(partitions, ends)
        stable_ends = self._offsets(_places(partitions), LATEST, stable=True)
        at, tick = self._clock(), self._ticks()  # every record before the ends was written by now, if clocks agree
        hung = self._transactions.see(ends, stable_ends, tick)
        assumed = self._beginnings.see(partitions, groups, ends, self._first_offsets)
        followers, behind = self._behind(partitions, groups, ends, stable_ends, assumed)
        followers[_TRANSACTIONS] = {
            place: Head(*place, stable)
            for place, stable in stable_ends.items()
            if isinstance(stable, int) and isinstance(end := ends.get(place), int) and stable < end
        }
        starts: dict[Place, int | str] = {}
        stamps: Mapping[Head, Found] = {}
        if self._broker.lag_in_time:
            stamps = self._offset_timestamps.read(followers, ends, self._leader, starts, at, tick)
        starts |= self._offsets((place for place in behind if place not in starts), EARLIEST)
        self._starts = {place: start for place, start in starts.items() if isinstance(start, int)}
        if self._broker.lag_in_time:
            # Where retention overtook a group, it goes on at the first message that is left.
            moved = set()
            for places in followers.values():
                for place, head in places.items():
                    start, end = self._starts.get(place, 0), ends.get(place)
                    if head.offset < start and isinstance(end, int) and start < end:
                        moved.add(Head(*place, start))
            if moved:
                stamps = self._offset_timestamps.read_more(moved, self._leader, starts)
        told = ends, stable_ends, starts, stamps, assumed, hung, tick, self._unlisted
        return Reading(at, partitions, groups, *told)

    def _first_offsets(self, places: Iterable[Place]) -> dict[Place, int | str]:
        return self._offsets(places, EARLIEST)

    def _stable(self, group: GroupReading) -> bool:
        return matches(group.name, self._broker.read_committed)

    def _behind(
        self,
        partitions: Mapping[str, tuple[int, ...]],
        groups: tuple[GroupReading, ...],
        ends: Mapping[Place, int | str],
        stable_ends: Mapping[Place, int | str],
        assumed: Mapping[str, Mapping[Place, int]],
    ) -> tuple[dict[str, dict[Place, Head]], set[Place]]:
        """Group → partition → head with messages before it, and the partitions whose first offset matters."""
        followers: dict[str, dict[Place, Head]] = {}
        behind: set[Place] = set()
        for group in groups:
            heads = followers[group.name] = {}
            limits = stable_ends if self._stable(group) else ends
            begins = assumed.get(group.name, {})
            for topic, offsets in group.committed.items():
                for partition in partitions.get(topic, ()):
                    place = topic, partition
                    end, offset = limits.get(place), offsets.get(partition, -1)
                    if offset < 0:
                        offset = begins.get(place, -1)
                    if not isinstance(end, int) or offset >= end:
                        continue
                    behind.add(place)
                    if offset >= 0:
                        first = max(offset, self._starts.get(place, 0))
                        if first < end:
                            heads[place] = Head(topic, partition, first)
        return followers, behind

    def _leader(self, topic: str, partition: int) -> int:
        known = self.cluster.metadata.topics.get(topic)
        return known.leaders.get(partition, -1) if known is not None else -1

    def _offsets(self, places: Iterable[Place], which: int, *, stable: bool = False) -> dict[Place, int | str]:
        """A partition's next, stable or first offset, or why it is unknown."""
        found: dict[Place, int | str] = {}
        by_node: dict[int, list[Place]] = defaultdict(list)
        for place in places:
            by_node[self._leader(*place)].append(place)
        found.update(dict.fromkeys(by_node.pop(-1, ()), words(NO_LEADER)))

        def take(answer: Reader) -> None:
            for topic, partitions in read_list_offsets(answer).items():
                for partition, (error, offset) in partitions.items():
                    found[topic, partition] = words(error) if error else offset
                    if error in MOVED:
                        self.cluster.forget_leaders()

        jobs = {
            node: [
                Job(list_offsets_request(_by_topic(part), which, stable=stable), take)
                for part in _parts(some, _PARTITIONS_AT_ONCE)
            ]
            for node, some in by_node.items()
        }
        for node, reason in self.cluster.do(jobs).items():
            for place in by_node[node]:
                found.setdefault(place, reason)
        return found


def _not_asked(failed: Mapping[int, str], of: int) -> str:
    """Why groups may be missing, of which each is listed by its own coordinator alone."""
    if not failed:
        return ""
    return f"{len(failed)} of {of} brokers did not list their groups: {next(iter(failed.values()))}"


def _places(partitions: Mapping[str, tuple[int, ...]]) -> Iterator[Place]:
    return ((topic, partition) for topic, parts in partitions.items() for partition in parts)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in places:
        topics[topic].append(partition)
    return topics


def _without_absent(
    partitions: dict[str, tuple[int, ...]], ends: Mapping[Place, int | str]
) -> dict[str, tuple[int, ...]]:
    """Topics of which not even the leaders know anything are just being made, or gone: they are left out."""
    absent = words(UNKNOWN_TOPIC)
    return {
        topic: parts
        for topic, parts in partitions.items()
        if any(ends.get((topic, partition)) != absent for partition in parts)
    }


def _parts(items: list[Item], size: int) -> Iterator[list[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
