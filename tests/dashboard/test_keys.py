from __future__ import annotations

from dashboard.services.keys import QueueKey, concerns, resolve, short_names

ORDERS = QueueKey("nats", "orders")
ELSEWHERE = QueueKey("kafka", "orders")
BILLING = QueueKey("kafka", "events", "billing")


def test_a_queue_that_only_one_has_is_called_by_its_plain_name() -> None:
    assert short_names([ORDERS, BILLING]) == {ORDERS: "orders", BILLING: "events"}


def test_queues_of_the_same_name_are_told_apart() -> None:
    assert short_names([ORDERS, ELSEWHERE]) == {ORDERS: "nats/orders", ELSEWHERE: "kafka/orders"}


def test_a_queue_whose_plain_name_is_anothers_full_name_keeps_its_full_one() -> None:
    sly = QueueKey("redis", "nats/orders")
    assert short_names([ORDERS, sly])[sly] == "redis/nats/orders"


def test_an_address_may_use_the_short_the_full_or_the_plain_name() -> None:
    names = short_names([ORDERS, ELSEWHERE, BILLING])
    assert resolve("kafka/orders", names) == ELSEWHERE
    assert resolve("events", names) == BILLING
    assert resolve("kafka/events/billing", names) == BILLING
    assert resolve("orders", names) == ELSEWHERE  # ambiguous: the first by name
    assert resolve("nothing", names) is None


def test_an_alert_without_a_broker_label_concerns_the_queue_of_any_broker() -> None:
    assert concerns({"queue": "orders"}, ORDERS)
    assert concerns({"queue": "orders", "broker": "nats", "subscriber": None}, ORDERS)
    assert not concerns({"queue": "orders", "broker": "kafka"}, ORDERS)
    assert not concerns({"alertname": "Watchdog"}, ORDERS)
