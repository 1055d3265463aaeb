"""What queues go through, calm and troubled; groups of a log have a file of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from tests.alerts import group_situations
from tests.alerts.situation import CALM, LENGTH, TROUBLE, Situation, Story, calm, trouble

assert group_situations  # told by being imported


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
def a_worker_that_no_list_has_takes_each_job_as_it_comes(s: Situation) -> None:
    s.sampled(depth=1, in_flight=1, consumers=0, oldest_age_seconds=0.2)


@calm
def a_client_that_polls_is_no_consumer_to_its_broker_and_takes_every_message(s: Situation) -> None:
    s.sampled(depth=40, in_flight=2, consumers=0, acked_total=lambda at: 5 * at)


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


@trouble("NoConsumers", "NoConsumersWhileGrowing")
def nobody_consumes_what_keeps_coming_of_unknown_age(s: Situation) -> None:
    s.sampled(depth=lambda at: 500 + at, in_flight=0, consumers=0)


@trouble("NoConsumers")
def nobody_consumes_five_hundred_tasks(s: Situation) -> None:
    s.sampled(depth=500, in_flight=0, consumers=0)


@trouble("QueuePaused")
def a_queue_is_paused_while_jobs_come_and_its_workers_stay(s: Situation) -> None:
    counts = {"depth": lambda at: 40 + at // 10, "published_total": lambda at: 500 + at // 10, "acked_total": 460}
    s.sampled(**counts, oldest_age_seconds=lambda at: 90.0 + at, in_flight=0, consumers=3, status="PAUSED")


@trouble("QueuePaused")
def a_queue_is_paused_and_its_workers_are_stopped(s: Situation) -> None:
    s.sampled(depth=500, in_flight=0, consumers=0, status="PAUSED")


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


@trouble("SampledBacklogGrowing")
def a_queue_of_which_no_age_is_known_takes_longer_than_its_target(s: Situation) -> None:
    s.sampled(depth=lambda at: 100 + at, acked_total=lambda at: at, in_flight=1, consumers=1)


@trouble("SampledBacklogGrowing")
def a_queue_of_which_nothing_but_its_depth_is_known_grows(s: Situation) -> None:
    s.sampled(depth=lambda at: 100 + at)


@calm
def what_waits_in_a_queue_of_unknown_ages_is_work_for_a_second(s: Situation) -> None:
    s.sampled(depth=50, acked_total=lambda at: 50 * at, in_flight=20, consumers=1)


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


def troubled(name: str) -> Story:
    """The trouble of that name."""
    return TROUBLE[name][0]
