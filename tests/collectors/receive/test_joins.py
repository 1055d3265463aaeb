"""One queue has one name: spans stand under the broker and the queue that are sampled."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from collectors.receive.joins import Joins, watched
from collectors.receive.memory import Memory
from collectors.receive.spans import SpanReader
from collectors.settings import CollectSettings
from tests.collectors.receive.support import named, read, request_of

CELERY = {"messaging__system": None, "messaging__operation__type": None, "messaging__destination__name": None}


def joins(shown: Any = (), **settings: Any) -> Joins:
    """Joins as the receiver makes them; ``shown``: (broker, queue) of the newest samples."""
    chosen = CollectSettings.model_validate(settings)
    return Joins(chosen.receive.joins, chosen.receive.names, watched(chosen.brokers), lambda: shown)


REDIS = {"kind": "redis", "name": "redis-eu", "url": "redis://10.0.0.5:6379/0"}
RABBIT = {"kind": "rabbitmq", "name": "rabbit-eu", "url": "http://10.0.0.6:15672"}


@pytest.mark.parametrize(
    ("brokers", "where", "broker"),
    [
        ([], ("celery", None, None), "celery"),
        ([], ("aws.sqs", None, None), "sqs"),
        ([REDIS], ("celery", None, None), "redis-eu"),
        ([REDIS | {"streams": {}}], ("celery", None, None), "celery"),  # nobody searches it for Celery's queues
        ([RABBIT], ("celery", None, None), "rabbit-eu"),
        ([RABBIT], ("rabbitmq", "an-alias", 5672), "rabbit-eu"),  # one of its kind, whatever it is called there
        ([RABBIT, REDIS], ("rabbitmq", None, None), "rabbit-eu"),
        ([RABBIT, REDIS], ("celery", None, None), "celery"),  # either could carry it
        ([RABBIT, REDIS], ("celery", "10.0.0.5", 6379), "redis-eu"),
        ([RABBIT, RABBIT | {"name": "b", "url": "http://10.0.0.7:15672"}], ("rabbitmq", "10.0.0.7", 5672), "b"),
        ([REDIS, REDIS | {"name": "b", "url": "redis://10.0.0.5:6380"}], ("redis", "10.0.0.5", 6380), "b"),
        ([REDIS, REDIS | {"name": "b", "url": "redis://10.0.0.5:6380"}], ("redis", "10.0.0.5", None), "redis"),
        ([REDIS | {"name": "a", "url": "redis://127.0.0.1"}, REDIS], ("celery", "localhost", 6379), "a"),
    ],
)
def test_spans_join_the_broker_that_is_watched(brokers: Any, where: Any, broker: str) -> None:
    assert joins(brokers=brokers).of(*where, "orders")[:2] == (broker, "orders")


def test_of_several_brokers_the_one_whose_samples_show_the_queue_has_it() -> None:
    shown = {("rabbit-eu", "mails"), ("redis-eu", "orders"), ("redis-eu", "both"), ("rabbit-eu", "both")}
    found = joins(shown, brokers=[RABBIT, REDIS])
    assert found.of("celery", None, None, "orders") == ("redis-eu", "orders", True)
    assert found.of("celery", None, None, "mails") == ("rabbit-eu", "mails", True)
    assert found.of("celery", None, None, "both") == ("celery", "both", False)
    assert found.of("celery", None, None, "new") == ("celery", "new", False)


def test_what_settings_say_comes_first() -> None:
    rules = [
        {"system": "celery", "queue": "mail.*", "broker": "rabbit-eu", "as_queue": "mails"},
        {"system": "celery", "server": "cache:6379", "broker": "redis-eu"},
        {"system": "celery", "broker": "other"},
    ]
    found = joins(brokers=[RABBIT, REDIS], receive={"joins": rules, "names": {"kafka": "log"}})
    assert found.of("celery", None, None, "mail.new") == ("rabbit-eu", "mails", True)
    assert found.of("celery", "cache", 6379, "orders") == ("redis-eu", "orders", True)
    assert found.of("celery", "cache", 6380, "orders") == ("other", "orders", True)
    assert found.of("kafka", "k", 9092, "orders") == ("log", "orders", True)


def test_a_join_needs_a_server_that_is_one() -> None:
    with pytest.raises(ValidationError, match="host or host:port"):
        joins(receive={"joins": [{"system": "celery", "server": "redis://x", "broker": "b"}]})


def test_a_message_ends_where_it_was_enqueued_though_its_queue_was_found_meanwhile() -> None:
    shown: set[tuple[str, str]] = set()
    reader = SpanReader(Memory(100), joins(shown, brokers=[RABBIT, REDIS]), 100)
    celery = CELERY | {"messaging__destination": "orders"}
    sent = request_of(("send", 1, celery | {"celery__action": "apply_async", "messaging__message_id": "m1"}))
    assert [row["broker"] for row in named(read(sent, reader))] == ["celery"]
    shown.add(("redis-eu", "orders"))
    run = celery | {"celery__action": "run", "parent": 1, "remote": True, "messaging__message_id": "m1", "at": 5}
    later = request_of(
        ("process", 2, run),
        ("send", 3, celery | {"celery__action": "apply_async", "messaging__message_id": "m2", "trace": 2}),
    )
    told = [(row["event_type"], row["broker"]) for row in named(read(later, reader))]
    assert told == [("enqueued", "redis-eu"), ("received", "celery"), ("completed", "celery")]


def test_celerys_own_queues_are_left_out() -> None:
    own = [
        {"messaging__destination__name": name}
        for name in ("celery@host.celery.pidbox", "celeryev.1f2", "0a1b.reply.celery.pidbox", "reply.celery.pidbox")
    ]
    told = read(request_of(*(("send", number + 1, one) for number, one in enumerate(own))))
    assert (named(told), told.ignored) == ([], len(own))
