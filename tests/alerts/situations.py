"""What queues go through, calm and troubled, as the records that collectors would write, and what rules see of it.

Each situation is a broker of its own. What the views hold of it is what the reference counts, which the views are held
to; so rules are tried on rows as they come, and not on rows that somebody thought of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.rules.expression import schema_of
from tests.reference.reference import Reference

Row = dict[str, Any]

#: Every situation is watched for so many seconds: closely at first, then at longer intervals.
LENGTH = 1800
INSTANTS = (*range(5, 60, 10), *range(60, LENGTH, 240))
#: Data older than this is stale.
STALE_AFTER = 30
_VIEWS = ("tenant_backlog", "queue_health", "attempt_age", "concurrency")


@dataclass
class Situation:
    """A broker's records; every instant is in seconds since ``START``."""

    name: str
    events: list[Row]
    samples: list[Row]
    start: datetime

    def event(self, event_type: str, message: object, at: float, *, enqueued: float = 0, **more: Any) -> None:
        """``message`` was ``event_type`` at ``at``."""
        row = {
            "event_type": event_type,
            "broker": self.name,
            "queue": "orders",
            "subscriber": None,
            "tenant": "acme",
            "message_id": str(message),
            "enqueued_at": self.start + timedelta(seconds=enqueued),
            "occurred_at": self.start + timedelta(seconds=at),
        }
        self.events.append({**row, **more})

    def job(self, message: object, at: float, *, wait: float = 0.1, takes: float | None = 0.1) -> None:
        """A message enqueued at ``at``, begun ``wait`` later, and done if it ``takes`` a known time."""
        self.event("enqueued", message, at, enqueued=at)
        self.event("received", message, at + wait, enqueued=at, attempt=1)
        if takes is not None:
            self.event("completed", message, at + wait + takes, enqueued=at, attempt=1, processing_seconds=takes)

    def sample(self, at: float, queue: str = "orders", **more: Any) -> None:
        """The broker was read at ``at``."""
        row = {"sampled_at": self.start + timedelta(seconds=at), "broker": self.name, "queue": queue}
        self.samples.append({**row, "subscriber": None, "source": "sampler", **more})

    def sampled(self, until: int = LENGTH, **more: Any) -> None:
        """The broker was read every ten seconds; what is given as a function depends on the time."""
        for at in range(0, until, 10):
            self.sample(at, **{name: value(at) if callable(value) else value for name, value in more.items()})

    def rows(self, at: int) -> dict[str, list[Row]]:
        """What the engine and the four views show at ``at``."""
        now = self.start + timedelta(seconds=at)
        events = [event for event in self.events if event["occurred_at"] <= now]
        samples = [sample for sample in self.samples if sample["sampled_at"] <= now]
        instants = [event["occurred_at"] for event in events] + [sample["sampled_at"] for sample in samples]
        if not instants:
            return {}
        age = (now - max(instants)).total_seconds()
        freshness = {"broker": self.name, "as_of": max(instants), "age_seconds": age}
        reference = Reference(events, samples)
        views = {f"{view}_now": getattr(reference, view)(now=True) for view in _VIEWS}
        newest = samples[-1:] if samples and samples[-1].get("tenants") else []
        views["sampled_tenants"] = [{**sample, **share} for sample in newest for share in sample["tenants"]]
        return views | {"data_freshness": [freshness | {"stale": age > STALE_AFTER, "sampled": bool(samples)}]}


def table(view: str, rows: list[Row]) -> pa.Table:
    """``rows`` of the reference as the view has them."""
    schema = schema_of(view)
    names = [name for name in schema.names if name != "histogram"]
    flat = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], schema=flat)


Story = Callable[[Situation], None]
CALM: dict[str, Story] = {}
TROUBLE: dict[str, tuple[Story, frozenset[str]]] = {}


def calm(story: Story) -> Story:
    """Nothing that anybody must be woken for."""
    CALM[story.__name__] = story
    return story


def trouble(*alerts: str) -> Callable[[Story], Story]:
    """What must fire ``alerts`` in the end."""

    def noted(story: Story) -> Story:
        TROUBLE[story.__name__] = story, frozenset(alerts)
        return story

    return noted


def _work(s: Situation, until: int = LENGTH, every: int = 20) -> None:
    for at in range(0, until, every):
        s.job(f"job-{at}", at)


@calm
def an_application_that_reports_for_itself_falls_idle(s: Situation) -> None:
    _work(s, 60)


@calm
def a_sampled_queue_is_idle(s: Situation) -> None:
    _work(s, 60)
    s.sampled(depth=0, in_flight=0, consumers=2, acked_total=3)


@calm
def one_message_comes_and_goes(s: Situation) -> None:
    s.job("only", 30)
    s.sampled(depth=0, in_flight=0, consumers=1, acked_total=lambda at: int(at > 30))


@calm
def a_single_job_takes_31_seconds(s: Situation) -> None:
    s.job("long", 5, takes=31)
    s.sampled(depth=0, in_flight=lambda at: int(5 <= at < 36), consumers=1)


@calm
def a_job_takes_half_an_hour_while_others_wait(s: Situation) -> None:
    s.job("long", 5, takes=None)
    for at in range(60, LENGTH, 600):
        s.event("enqueued", at, at, enqueued=at)
    waiting = lambda at: len([t for t in range(60, LENGTH, 600) if t <= at])  # noqa: E731
    s.sampled(depth=waiting, in_flight=1, in_flight_limit=1, consumers=1, acked_total=0)


@calm
def a_sampled_job_takes_half_an_hour_while_others_wait(s: Situation) -> None:
    s.sampled(depth=3, in_flight=1, in_flight_limit=1, consumers=1, acked_total=0, oldest_age_seconds=lambda at: at)


@calm
def everything_has_just_started(s: Situation) -> None:
    for n in range(5):
        s.job(n, n, wait=35)
    s.sampled(
        depth=lambda at: 5 if at < 40 else 0,
        in_flight=0,
        consumers=lambda at: int(at > 30),
        acked_total=lambda at: 5 if at >= 40 else 0,
    )


@calm
def a_tap_starts_beside_a_queue_that_was_full(s: Situation) -> None:
    _work(s, every=60)
    s.sampled(depth=500, in_flight=0, consumers=2, acked_total=lambda at: at)


@calm
def producers_report_and_consumers_do_not(s: Situation) -> None:
    for at in range(0, LENGTH, 20):
        s.event("enqueued", at, at, enqueued=at)


@calm
def producers_report_and_consumers_do_not_of_a_sampled_queue(s: Situation) -> None:
    for at in range(0, LENGTH, 20):
        s.event("enqueued", at, at, enqueued=at)
    s.sampled(depth=0, in_flight=0, consumers=2, acked_total=lambda at: at // 20)


@calm
def a_queue_that_is_no_longer_used_holds_a_few(s: Situation) -> None:
    s.sampled(depth=3, in_flight=0, consumers=0, acked_total=100, oldest_age_seconds=lambda at: 9e5 + at)


@calm
def a_group_that_was_given_up_is_overtaken_by_retention(s: Situation) -> None:
    s.sampled(depth=100, consumers=0, status="LOST", acked_total=5, oldest_age_seconds=9e5)


@calm
def a_poison_message_is_tried_again_and_again(s: Situation) -> None:
    _work(s)
    s.event("enqueued", "poison", 1, enqueued=1)
    for attempt, at in enumerate(range(2, LENGTH, 30), 1):
        s.event("received", "poison", at, enqueued=1, attempt=attempt)
        s.event("failed", "poison", at + 1, enqueued=1, attempt=attempt, processing_seconds=1.0)
    s.sampled(depth=1, in_flight=0, consumers=1, acked_total=lambda at: at // 20)


@calm
def a_message_is_put_off_for_an_hour(s: Situation) -> None:
    s.event("enqueued", "later", 1, enqueued=1)
    s.event("received", "later", 2, enqueued=1, attempt=1)
    s.event("delayed", "later", 3, enqueued=1, attempt=1)
    s.sampled(depth=0, in_flight=0, delayed=1, consumers=1)


@calm
def a_dead_letter_queue_is_left_alone(s: Situation) -> None:
    s.sampled(queue="orders.dead", depth=0, in_flight=0, consumers=0, dead_letter_for="orders")


@calm
def a_night_is_quiet_between_two_jobs(s: Situation) -> None:
    s.job("first", 5)
    s.job("second", LENGTH - 100)
    s.sampled(depth=0, in_flight=0, consumers=1)


@trouble("StaleData")
def the_collector_of_a_broker_dies(s: Situation) -> None:
    """Messages came and went; a few were on their way when it died."""
    _work(s, 580)
    for n in range(3):
        s.event("enqueued", n, 585 + n, enqueued=585 + n)
    s.sampled(600, depth=lambda at: 3 if at > 587 else 0, in_flight=0, consumers=1)


@trouble("QueueStalled")
def the_consumers_of_a_queue_are_gone(s: Situation) -> None:
    _work(s, 580)
    for at in range(600, LENGTH, 20):
        s.event("enqueued", at, at, enqueued=at)
    s.sampled(depth=lambda at: max(0, (at - 580) // 20), in_flight=0)


@trouble("QueueStalled")
def the_consumers_of_an_application_that_reports_for_itself_are_gone(s: Situation) -> None:
    _work(s, 580)
    for at in range(600, LENGTH, 20):
        s.event("enqueued", at, at, enqueued=at)


@trouble("ConsumersStuck", "BusyButDead")
def consumers_hold_all_they_may_and_complete_nothing(s: Situation) -> None:
    _work(s, 300)
    for n in range(20):
        s.job(f"stuck-{n}", 310 + n, takes=None)
    for at in range(340, LENGTH, 20):
        s.event("enqueued", at, at, enqueued=at)
    waiting = lambda at: len([t for t in range(340, LENGTH, 20) if t <= at])  # noqa: E731
    s.sampled(
        depth=waiting,
        in_flight=lambda at: max(0, min(20, at - 310)),
        in_flight_limit=20,
        consumers=2,
        acked_total=lambda at: min(15, at // 20),
    )


@trouble("FirstAttemptAgeHigh", "QueueBacklogged")
def everybody_waits_for_a_first_attempt(s: Situation) -> None:
    for at in range(0, LENGTH, 20):
        s.job(at, at, wait=90)
    s.sampled(depth=lambda at: min(5, at // 20 + 1), in_flight=0)


@trouble("DeadLetterQueueNotEmpty")
def a_dead_letter_queue_holds_ten_thousand(s: Situation) -> None:
    _work(s)
    s.sampled(depth=0, in_flight=0, consumers=1)
    s.sampled(queue="orders.dead", depth=10_000, in_flight=0, consumers=0, dead_letter_for="orders")


@trouble("DeadLetterQueueNotEmpty")
def a_dead_letter_queue_that_is_only_sampled_holds_one(s: Situation) -> None:
    s.sampled(queue="orders.dead", depth=1, dead_letter_for="orders")


@trouble("DrainTooLong")
def a_queue_is_drained_in_nine_hours(s: Situation) -> None:
    s.sampled(
        depth=lambda at: 33_000 - at,
        in_flight=10,
        consumers=5,
        acked_total=lambda at: at,
        oldest_age_seconds=900.0,
    )


@trouble("InFlightLimitNear")
def one_slot_of_120_000_is_free(s: Situation) -> None:
    s.sampled(depth=0, in_flight=119_999, in_flight_limit=120_000, acked_total=lambda at: at)


@trouble("NoPollingHeadroom")
def no_poll_comes_back_empty(s: Situation) -> None:
    s.sampled(depth=5, in_flight=1, acked_total=lambda at: at, polls_total=lambda at: 10 + at, empty_polls_total=7)


@trouble("NoConsumers", "NoConsumersWhileGrowing")
def nobody_consumes_what_keeps_coming(s: Situation) -> None:
    s.sampled(depth=lambda at: 500 + at, in_flight=0, consumers=0, oldest_age_seconds=lambda at: 100 + at)


@trouble("NoConsumers")
def nobody_consumes_five_hundred_tasks(s: Situation) -> None:
    s.sampled(depth=500, in_flight=0, consumers=0)


@trouble("SampledQueueStalled")
def consumers_of_a_sampled_queue_take_nothing(s: Situation) -> None:
    s.sampled(depth=40, in_flight=0, consumers=3, acked_total=70)


@trouble("SampledTenantStuck")
def a_tenant_of_a_sampled_queue_is_passed_over(s: Situation) -> None:
    waits = {"tenant": "acme", "depth": 4, "in_flight": 0}
    works = {"tenant": "grove", "depth": 5, "in_flight": 2, "oldest_age_seconds": 5.0}
    told = lambda at: [waits | {"oldest_age_seconds": 120.0 + at}, works]  # noqa: E731
    s.sampled(depth=9, in_flight=2, acked_total=lambda at: at, tenants=told)


@trouble("NothingAcknowledged")
def the_depth_of_a_queue_does_not_move(s: Situation) -> None:
    s.sampled(depth=500)


@trouble("SampledBacklogGrowing")
def a_sampled_queue_grows(s: Situation) -> None:
    s.sampled(depth=lambda at: 100 + at, acked_total=lambda at: at, in_flight=1, oldest_age_seconds=100.0)


@trouble("ConsumerNotOk", "MessagesLost")
def retention_overtakes_a_group_that_reads(s: Situation) -> None:
    s.sampled(depth=100, consumers=2, status="LOST", acked_total=lambda at: at)


@trouble("ConsumerNotOk")
def a_group_of_a_sampled_topic_stops(s: Situation) -> None:
    s.sampled(depth=lambda at: 100 + at, consumers=0, status=lambda at: "STOP" if at > 75 else None, acked_total=5)


@trouble("ConsumerNotOk")
def a_group_of_a_sampled_topic_holds_its_membership_and_hangs(s: Situation) -> None:
    s.sampled(depth=lambda at: 100 + at, consumers=2, status="STALL", acked_total=lambda at: at // 600)


@trouble("ConsumerNotOk")
def a_group_is_rewound(s: Situation) -> None:
    s.sampled(depth=lambda at: max(0, 900 - at), consumers=2, status="REWIND", acked_total=lambda at: at)


@trouble("MessagesDeletedUnread")
def retention_overtakes_a_group_that_goes_on_at_once(s: Situation) -> None:
    s.sampled(depth=3, consumers=2, status="OK", acked_total=lambda at: at, lost_total=lambda at: 46 * (at >= 300))


@trouble("RetentionNear")
def retention_is_about_to_overtake_a_group(s: Situation) -> None:
    s.sampled(
        depth=10_000,
        consumers=2,
        status="WARN",
        acked_total=lambda at: at,
        oldest_age_seconds=3600.0,
        retention_margin=lambda at: max(1, 900 - at),
    )


@trouble("RetentionNear")
def retention_is_at_what_is_unread_and_no_age_is_known(s: Situation) -> None:
    s.sampled(depth=10_000, consumers=2, status="WARN", acked_total=lambda at: at, retention_margin=0)


@trouble("TransactionHangs", "ConsumerNotOk")
def a_transaction_hangs_before_a_group_that_reads_committed_records(s: Situation) -> None:
    s.sampled(
        depth=0,
        consumers=2,
        status=lambda at: "BLOCKED" if at > 75 else "OK",
        acked_total=90,
        transactional_lag=lambda at: 10 * at,
        transactional_age_seconds=lambda at: float(at),
    )


@calm
def transactions_are_open_for_a_while_and_end(s: Situation) -> None:
    s.sampled(
        depth=5,
        consumers=2,
        status="OK",
        acked_total=lambda at: at,
        transactional_lag=lambda at: at % 600,
        transactional_age_seconds=lambda at: float(at % 600),
    )


@trouble("BusyButDead")
def a_sampled_queue_is_at_its_limit_and_nothing_completes(s: Situation) -> None:
    s.sampled(depth=30, in_flight=20, in_flight_limit=20, consumers=2, acked_total=70)


@trouble("SampledLeakedInFlight")
def slots_of_a_sampled_queue_leak(s: Situation) -> None:
    s.sampled(
        depth=0,
        in_flight=200,
        consumers=2,
        acked_total=lambda at: at,
        visibility_timeout_seconds=30.0,
        redelivered_total=9,
    )


@trouble("LowCoverage")
def events_tell_of_half_of_what_is_there(s: Situation) -> None:
    for message in range(20):
        s.event("enqueued", message, 1, enqueued=1)
        if message < 10:
            s.event("received", message, 2, enqueued=1, attempt=1)
    s.sampled(depth=30, in_flight=10)


@trouble("HalfInstrumented")
def only_producers_report(s: Situation) -> None:
    producers_report_and_consumers_do_not(s)


@trouble("NoEvents")
def nothing_more_is_heard_of_an_application(s: Situation) -> None:
    an_application_that_reports_for_itself_falls_idle(s)


def situations(start: datetime) -> Iterator[Situation]:
    """Every situation, told."""
    for story in (*CALM.values(), *(story for story, _ in TROUBLE.values())):
        situation = Situation(story.__name__, [], [], start)
        story(situation)
        yield situation
