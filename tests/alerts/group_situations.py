"""What groups of a log go through: they stop, hang, go back, are overtaken by retention, wait for transactions."""

from __future__ import annotations

from tests.alerts.situation import Situation, calm, trouble


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
