"""One partition's lives, told from offsets alone: pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from collectors.kafka.settings import KafkaBroker
from collectors.kafka.tap.begin import Known, begin
from collectors.kafka.tap.partition import Partition
from collectors.kafka.tap.records import Records, gather, tenant_finder
from collectors.kafka.tap.rows import Rows
from collectors.kafka.tap.settings import TapTopic

SECOND = 1_000_000
START = 1_790_000_000 * SECOND
HOUR = 3600 * SECOND


def records(*offsets: int, stamp: int | None = None) -> Records:
    """Records of these offsets, a second apart, of two tenants."""
    stamps = [START + offset * SECOND if stamp is None else stamp for offset in offsets]
    tenants = [f"t{offset % 2}" for offset in offsets]
    return Records(
        pa.array(offsets, pa.int64()),
        pa.array(stamps, pa.int64()),
        pa.array(tenants, pa.string()),
        pa.array([False] * len(offsets)),
    )


def begun(position: int = 0, told: dict[str, int] | None = None, bound: int = 100) -> Partition:
    chosen = {"billing": position} if told is None else told
    return Partition(Rows("k", "orders", "orders-0"), position, chosen, named=len(chosen) > 1, bound=bound)


def told(tables: list[pa.Table]) -> Counter[tuple[str, str | None, int]]:
    """Event type, subscriber, offset → how often."""
    return Counter(
        (row["event_type"], row["subscriber"], int(row["message_id"].rpartition("-")[2]))
        for table in tables
        for row in table.to_pylist()
    )


def ends(subscriber: str | None, *offsets: int) -> Counter[tuple[str, str | None, int]]:
    return Counter({(kind, subscriber, offset): 1 for kind in ("received", "completed") for offset in offsets})


def test_a_record_ends_when_the_committed_offset_has_passed_it() -> None:
    partition = begun()
    assert told(partition.arrived(records(0, 1, 2, 5), START + HOUR)) == Counter(
        {("enqueued", None, offset): 1 for offset in (0, 1, 2, 5)}
    )
    partition.groups["billing"].seen(2, START + 7 * SECOND)
    first = partition.ended()
    assert told(first) == ends(None, 0, 1)
    (row, *_) = first[0].to_pylist()
    assert row["occurred_at"].timestamp() == (START + 7 * SECOND) / SECOND
    assert row["tenant"] == "t0"
    assert "at the latest" in row["reason"]
    assert partition.ended() == []
    partition.groups["billing"].seen(6, START + 9 * SECOND)
    assert told(partition.ended()) == ends(None, 2, 5)
    assert partition.remembered == 0


def test_a_commit_that_is_seen_before_its_records_ends_them_when_they_come() -> None:
    partition = begun()
    partition.groups["billing"].seen(2, START)
    partition.groups["billing"].seen(4, START + SECOND)
    assert partition.ended() == []
    partition.arrived(records(0, 1, 2), START + HOUR)
    tables = partition.ended()
    assert told(tables) == ends(None, 0, 1, 2)
    at = {row["message_id"]: row["occurred_at"].timestamp() for table in tables for row in table.to_pylist()}
    assert at["orders-0-1"] == START / SECOND
    assert at["orders-0-2"] == START / SECOND + 1


def test_a_group_that_is_set_back_ends_no_record_twice() -> None:
    partition = begun()
    partition.arrived(records(*range(10)), START + HOUR)
    for committed in (6, 2, 6, 8):
        partition.groups["billing"].seen(committed, START)
    assert told(partition.ended()) == ends(None, *range(8))


def test_each_of_several_groups_ends_a_record_for_itself() -> None:
    partition = begun(told={"billing": 0, "audit": 0})
    partition.arrived(records(0, 1), START + HOUR)
    partition.groups["billing"].seen(2, START)
    partition.groups["audit"].seen(1, START)
    assert told(partition.ended()) == ends("billing", 0, 1) + ends("audit", 0)
    assert partition.remembered > 0


def test_beyond_its_bound_records_are_read_again_when_it_is_their_turn() -> None:
    partition = begun(bound=10)
    for start in range(0, 40, 5):
        partition.arrived(records(*range(start, start + 5)), START + HOUR)
    assert partition.remembered == 10
    assert partition.to_recall() is None  # full
    partition.groups["billing"].seen(33, START)
    found = told(partition.ended())
    while (start := partition.to_recall()) is not None:
        assert partition.remembered <= 10
        partition.recalled(records(*range(start, min(40, start + 4))))
        found += told(partition.ended())
    assert found == ends(None, *range(33))


def test_a_group_that_commits_much_at_once_is_told_piece_by_piece() -> None:
    partition = begun()
    for start in range(0, 50, 5):
        partition.arrived(records(*range(start, start + 5)), START + HOUR)
    for committed in (3, 6, 50):
        partition.groups["billing"].seen(committed, START)
    pieces = [told(partition.ended(20)) for _ in range(4)]
    assert [piece.total() for piece in pieces] == [40, 40, 20, 0]
    assert sum(pieces, Counter()) == ends(None, *range(50))
    assert partition.remembered == 0


def test_a_restart_reads_again_what_was_unfinished_and_tells_nothing_twice() -> None:
    partition = begun(position=8, told={"billing": 3})
    assert partition.to_recall() == 3
    partition.groups["billing"].seen(6, START)
    assert partition.ended() == []
    partition.recalled(records(2, 3, 4, 5, 6, 7, 8, 9))
    assert told(partition.ended()) == ends(None, 3, 4, 5)
    assert told(partition.arrived(records(7, 8, 9), START + HOUR)) == Counter(
        {("enqueued", None, n): 1 for n in (8, 9)}
    )
    partition.groups["billing"].seen(10, START)
    assert told(partition.ended()) == ends(None, 6, 7, 8, 9)


def test_what_retention_removes_before_a_group_has_read_it_expires() -> None:
    partition = begun()
    partition.arrived(records(*range(6)), START + HOUR)
    partition.groups["billing"].seen(2, START)
    partition.ended()
    tables, lost = partition.retained(4, START)
    assert told(tables) == Counter({("expired", None, 2): 1, ("expired", None, 3): 1})
    assert lost == 0
    partition.groups["billing"].seen(6, START)
    assert told(partition.ended()) == ends(None, 4, 5)
    assert partition.retained(6, START) == ([], 0)


def test_what_retention_removes_before_we_have_read_it_is_counted_as_lost() -> None:
    partition = begun(position=10)
    tables, lost = partition.retained(25, START)
    assert (tables, lost) == ([], 15)
    assert partition.position == 25
    watched = begun(position=10, told={"billing": 4})  # after a restart: 4 to 9 were told, and are to be read again
    assert watched.retained(7, START)[1] == 3
    assert watched.to_recall() == 7


def test_an_unread_record_expires_with_its_topic() -> None:
    partition = begun()
    partition.arrived(records(0, 1), START + HOUR)
    partition.groups["billing"].seen(1, START)
    partition.ended()
    assert told(partition.deleted(START)) == Counter({("expired", None, 1): 1})


@pytest.mark.parametrize(("off", "occurred"), [(HOUR, 0), (-HOUR, -HOUR)], ids=["ahead", "behind"])
def test_a_producers_clock_that_is_off_is_kept_but_nothing_happens_in_the_future(off: int, occurred: int) -> None:
    (table,) = begun().arrived(records(0, stamp=START + off), START)
    (row,) = table.to_pylist()
    assert row["enqueued_at"].timestamp() * SECOND == START + off
    assert row["occurred_at"].timestamp() * SECOND == START + occurred
    assert row["clock"] == "producer"


def test_ids_tell_apart_what_are_different_events_and_nothing_else() -> None:
    def ids(partition: Partition) -> list[str]:
        tables = partition.arrived(records(0, 1), START)
        for group in partition.groups.values():
            group.seen(2, START)
        return [one for table in (*tables, *partition.ended()) for one in table.column("event_id").to_pylist()]

    both = {"billing": 0, "audit": 0}
    found = ids(begun(told=both))
    assert len(set(found)) == len(found) == 10
    assert ids(begun(told=both)) == found


class _Message:
    """A record as librdkafka gives it."""

    def __init__(
        self, headers: Any = None, key: Any = None, stamp: tuple[int, int] = (1, 5), value: Any = None
    ) -> None:
        self._headers, self._key, self._stamp, self._value = headers, key, stamp, value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 3

    def timestamp(self) -> tuple[int, int]:
        return self._stamp

    def headers(self) -> Any:
        return self._headers

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value


@pytest.mark.parametrize(
    ("settings", "message", "tenant"),
    [
        ({}, _Message([("x", b"1"), ("tenant", b"acme")]), "acme"),
        ({}, _Message(None, b"key"), None),
        ({}, _Message([("tenant", None)]), None),
        ({}, _Message([("tenant", b"\xff\xfe")]), "\ufffd\ufffd"),
        ({}, _Message([("tenant", b""), ("tenant", b"a"), ("tenant", b"b")]), "a"),
        ({"tenant": "header:customer"}, _Message([("tenant", b"a"), ("customer", b"b")]), "b"),
        ({"tenant": "key:{tenant}"}, _Message([("tenant", b"a")], b"key"), "key"),
        ({"tenant": "key:{tenant}/*"}, _Message(None, b"acme/7/eu"), "acme"),
        ({"tenant": "key:{tenant}/*"}, _Message(None, None), None),
        ({"tenant": "json:customer.id"}, _Message(value=b'{"customer": {"id": 7}}'), "7"),
        ({"tenant": "json:customer.id"}, _Message(value=b"\xff"), None),
        ({"tenant": "json:customer.id"}, _Message(), None),
        ({"tenant": "queue:{tenant}-*", "queue": "acme-orders"}, _Message(None), "acme"),
        ({"tenant": []}, _Message([("tenant", b"a")], b"key"), None),
        # the older keys
        ({"tenant_header": "customer"}, _Message([("tenant", b"a"), ("customer", b"b")]), "b"),
        ({"tenant_key": True}, _Message([("other", b"a")], b"key"), "key"),
        ({"tenant_key": True}, _Message([("tenant", b"a")], b"key"), "a"),
        ({"tenant_header": None, "tenant_key": True}, _Message([("tenant", b"a")], b"key"), "key"),
        ({"tenant_header": None}, _Message([("tenant", b"a")], b"key"), None),
    ],
)
def test_the_tenant_is_where_the_rules_of_the_topic_look(settings: Any, message: _Message, tenant: str | None) -> None:
    chosen = tenant_finder(TapTopic.model_validate({"name": "orders", **settings}))
    (found,) = gather([message], {"orders": chosen}).values()
    assert found.tenants.to_pylist() == [tenant]


@pytest.mark.parametrize(
    ("stamp", "micros", "by_broker"), [((1, 5), 5000, False), ((2, 5), 5000, True), ((0, -1), None, False)]
)
def test_the_timestamps_kind_says_whose_clock_it_is(stamp: Any, micros: int | None, by_broker: bool) -> None:
    (found,) = gather([_Message(stamp=stamp)], {"orders": lambda _: None}).values()
    assert (found.stamps.to_pylist(), found.by_broker.to_pylist()) == ([micros], [by_broker])


@pytest.mark.parametrize(
    ("tap", "known", "committed", "later", "position", "told"),
    [
        ({}, None, {"g": 40}, False, 40, 40),  # where the group is
        ({}, None, {"g": 3}, False, 10, 10),  # what is gone was before our time
        ({}, None, {}, False, 90, 90),  # nobody reads it: from now on
        ({"start": "earliest"}, None, {"g": 40}, False, 10, 40),
        ({"start": "latest"}, None, {"g": 40}, False, 90, 90),
        ({"first_look_limit": 20}, None, {"g": 40}, False, 70, 70),
        ({}, None, {}, True, 10, 10),  # a partition that was added later is all new
        ({}, (60, 50), {"g": 55}, False, 60, 50),  # as bronze says
        ({}, (60, None), {"g": 55}, False, 60, 55),  # a group that is watched from now on
        ({}, (60, None), {}, False, 60, 60),
    ],
)
def test_a_partition_is_begun_where_bronze_or_its_group_is(
    tap: Any, known: Any, committed: dict[str, int], later: bool, position: int, told: int
) -> None:
    topic = TapTopic(name="orders", groups=("g",))
    broker = KafkaBroker.model_validate({"tap": tap | {"topics": [topic.model_dump()]}})
    before = Known("orders-0", 0, known[0] if known else None, {"g": known[1] if known else None})
    partition = begin(broker, topic, before, (10, 90), committed, later=later)
    assert (partition.position, partition.groups["g"].told) == (position, told)
