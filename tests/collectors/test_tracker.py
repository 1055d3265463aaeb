"""Messages tracked from any sequence of what a broker may say: each receipt once, no end without its beginning."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from collectors.nats.parse import MAX_DELIVERIES, NAKED, TERMINATED, Acknowledged, Advisory
from collectors.nats.pending import CHUNK, PendingMessages
from collectors.nats.tracker import MessageTracker, Subscription
from collectors.records import Event

HOLD = 250_000


def tracker() -> MessageTracker:
    out: list[Event] = []
    made = MessageTracker("q", PendingMessages(1 << 20), out, hold=HOLD)
    made.subscribe({"work": Subscription(None)})
    return made


def ack(sequence: int, deliveries: int, at: int) -> Acknowledged:
    return Acknowledged("S", "work", sequence, deliveries, at, 0.001)


def advisory(kind: str, sequence: int, deliveries: int, at: int) -> Advisory:
    return Advisory(kind, "S", "work", sequence, deliveries, at, None)


steps = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "look", "release", "ack", "nak", "term", "max", "settle"]),
        st.integers(1, 6),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_is_told_in_whatever_order_each_event_comes_once_and_sums_balance(
    told: list[tuple[str, int, int]],
) -> None:
    tested, now = tracker(), 1_000_000_000
    for what, sequence, number in told:
        now += 100_000
        if what == "arrive":
            tested.arrived(sequence, now, "s", "t")
        elif what == "look":
            tested.looked("work", sequence, now)
        elif what == "release":
            tested.release(now)
        elif what == "ack":
            tested.acknowledged(ack(sequence, number, now))
        elif what == "settle":
            tested.settle("work", tested.unfinished("work", sequence, 100), now, removed=number > 2)
        else:
            kind = {"nak": NAKED, "term": TERMINATED, "max": MAX_DELIVERIES}[what]
            tested.advised(advisory(kind, sequence, number, now))
    keys = Counter((e.event_type, e.message_id, e.attempt) for e in tested.out if e.event_type != "failed")
    assert set(keys.values()) <= {1}
    ends = Counter(e.message_id for e in tested.out if e.event_type in ("completed", "dead_lettered", "expired"))
    begins = Counter(e.message_id for e in tested.out if e.event_type == "enqueued")
    assert set(ends.values()) <= {1}
    assert set(begins.values()) <= {1}
    assert set(ends) <= set(begins)
    assert len(tested.pending) == len(begins) - len(ends)
    for message, number in Counter(e.message_id for e in tested.out if e.event_type == "received").items():
        attempts = [e.attempt for e in tested.out if e.event_type == "received" and e.message_id == message]
        assert attempts == list(range(1, number + 1))


def test_a_receipt_is_held_for_the_exact_time_and_then_told_by_its_bound() -> None:
    tested = tracker()
    tested.arrived(1, 0, "s", "t")
    tested.arrived(2, 0, "s", "t")
    tested.looked("work", 2, 1_000_000)
    tested.release(1_000_000 + HOLD - 1)
    tested.acknowledged(ack(1, 1, 999_000))
    tested.release(1_000_000 + HOLD)
    received = {e.message_id: e for e in tested.out if e.event_type == "received"}
    assert (received["1"].occurred_at, received["1"].reason) == (999_000, None)
    assert received["2"].occurred_at == 1_000_000
    assert received["2"].reason is not None
    assert not tested.holding


def test_attempts_that_nobody_showed_are_told_before_the_one_that_ended() -> None:
    tested = tracker()
    tested.arrived(1, 0, "s", "t")
    tested.acknowledged(ack(1, 3, 5_000_000))
    assert [(e.event_type, e.attempt) for e in tested.out] == [
        ("enqueued", None),
        ("received", 1),
        ("received", 2),
        ("received", 3),
        ("completed", 3),
    ]


def test_consumers_that_share_by_subject_each_get_their_own_arrivals() -> None:
    tested = MessageTracker("q", PendingMessages(1 << 20), [], hold=HOLD)
    tested.subscribe({"a": Subscription("a", ("s.a",)), "b": Subscription("b", ("s.b.*",))})
    tested.arrived(1, 0, "s.a", None)
    tested.arrived(2, 0, "s.b.1", None)
    assert [(e.message_id, e.subscriber) for e in tested.out] == [("1", "a"), ("2", "b")]


def test_what_waits_while_nobody_consumes_waits_for_the_first_who_comes() -> None:
    tested = MessageTracker("q", PendingMessages(1 << 20), [], hold=HOLD)
    tested.subscribe({})
    tested.arrived(1, 0, "s", "t")
    tested.subscribe({"work": Subscription("work")})
    tested.acknowledged(ack(1, 1, 5))
    assert [(e.event_type, e.subscriber) for e in tested.out] == [
        ("enqueued", None),
        ("received", "work"),
        ("completed", "work"),
    ]


def test_pending_messages_forget_forgets_the_finished_and_stays_within_its_bound() -> None:
    pending = PendingMessages(3 * CHUNK)
    for sequence in range(1, 10 * CHUNK):
        pending.enqueue(sequence, sequence, "t", (None,))
        pending.finish(sequence, None)
    assert len(pending) == 0
    assert len(pending._chunks) <= 1
    for sequence in range(10 * CHUNK, 15 * CHUNK):
        pending.enqueue(sequence, sequence, "t", (None,))
    assert len(pending) == 3 * CHUNK
    assert pending.forgotten == 2 * CHUNK
    assert pending.facts(15 * CHUNK - 1) == (15 * CHUNK - 1, "t")
