"""Answers of RabbitMQ 3.10.8 as they were recorded → the samples that they must become; and the pure rules alone.

Recorded: nine messages published to ``orders`` with timestamp 1795180000, four taken of which one was acknowledged, one
rejected into ``orders.dead`` and one given back; ``young`` had been declared a moment before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from collectors.rabbitmq import exposition, parse
from collectors.rabbitmq.names import queue_name
from collectors.rabbitmq.parse import Reading
from collectors.rabbitmq.rare import read_listing
from collectors.rabbitmq.topology import LONGEST_CHAIN, DeadLetters, Exchanges, served, targets
from collectors.samples import METRIC_NAMES, Sample

RECORDED = Path(__file__).parent / "recorded"
EXPECTED = json.loads((RECORDED / "expected.json").read_text())
AT = 1_795_180_100_000_000


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


class Answers:
    """Answers with what was recorded."""

    def __getattr__(self, name: str) -> Any:
        return lambda: recorded(name)


def told(samples: Sequence[Sample]) -> dict[str, dict[str, Any]]:
    found = {}
    for sample in samples:
        values = {name: getattr(sample, name) for name in METRIC_NAMES if getattr(sample, name) is not None}
        assert sample.sampled_at == AT
        assert set(METRIC_NAMES) - set(values) - {"dead_letter_for"} <= set(sample.unavailable)
        assert not set(values) & set(sample.unavailable)
        found[sample.queue] = values
    return found


def test_recorded_statistics_become_the_expected_samples() -> None:
    links = read_listing(Answers()).links  # type: ignore[arg-type]
    assert told(parse.samples(recorded("statistics"), Reading(AT, 10.0, links))) == EXPECTED["management"]


def test_recorded_metrics_become_the_expected_samples() -> None:
    listing = read_listing(Answers())  # type: ignore[arg-type]
    metrics = exposition.Exposition().read([(RECORDED / "metrics.txt").read_bytes()])
    assert metrics.nodes == listing.nodes and len(metrics.clusters) == 1
    samples = exposition.samples(metrics.queues, listing.types, Reading(AT, 5.0, listing.links), "not listed")
    assert told(samples) == EXPECTED["prometheus"]


@pytest.mark.parametrize("state", ["down", "crashed", "stopped", "nodedown"])
def test_a_queue_whose_process_is_silent_is_unread_even_with_old_numbers(state: str) -> None:
    row = {"name": "q", "vhost": "/", "type": "classic", "state": state, "messages_ready": 5}
    (sample,) = parse.samples([row | {"messages_unacknowledged": 0, "consumers": 1}], Reading(AT, 10.0))
    assert told([sample]) == {"q": {}}
    assert state in sample.unavailable["depth"]


def test_a_publisher_whose_clock_is_ahead_makes_no_negative_age() -> None:
    row = {"name": "q", "vhost": "/", "type": "classic", "messages_ready": 1, "messages_unacknowledged": 0}
    (sample,) = parse.samples([row | {"head_message_timestamp": AT // 1_000_000 + 3600}], Reading(AT, 10.0))
    assert sample.oldest_age_seconds == 0.0


def test_a_timestamp_in_milliseconds_makes_no_age_of_zero() -> None:
    row = {"name": "q", "vhost": "/", "type": "classic", "messages_ready": 1, "messages_unacknowledged": 0}
    (sample,) = parse.samples([row | {"head_message_timestamp": AT // 1000 - 60_000}], Reading(AT, 10.0))
    assert sample.oldest_age_seconds is None
    assert sample.unavailable["oldest_age_seconds"] == "the oldest message's timestamp property is not in seconds"


def test_metrics_that_are_cut_short_or_nonsense_tell_only_what_is_whole() -> None:
    text = (RECORDED / "metrics.txt").read_bytes()
    assert exposition.Exposition().read([text[:130], b"", b"\xff\xfe", b"# TYPE x gauge\n"]).queues == {}
    ready = b"# TYPE rabbitmq_detailed_queue_messages_ready gauge\nrabbitmq_detailed_queue_messages_ready{%s} %s\n"
    broken = ready % (b'vhost="/",queue="q"', b"NaN") + ready % (b'queue="q"', b"1")
    assert exposition.Exposition().read([broken]).queues == {}


def test_a_backslash_in_a_name_is_read_as_the_listing_has_it() -> None:
    line = b'rabbitmq_detailed_queue_messages_ready{vhost="/",queue="a\\\\b"} 1\n'
    text = b"# TYPE rabbitmq_detailed_queue_messages_ready gauge\n" + line
    reader = exposition.Exposition()
    assert set(reader.read([text]).queues) == {("/", "a\\\\b")}
    assert set(reader.read([text], {("/", "a\\b"): None}).queues) == {("/", "a\\b")}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (("/", "orders"), "orders"),
        (("/", "a/b"), "a/b"),
        (("shop", "orders"), "shop/orders"),
        (("/", "shop/orders"), "%2F/shop/orders"),
        (("a/b", "c"), "a%2Fb/c"),
        (("100%", "c"), "100%25/c"),
    ],
)
def test_no_two_queues_share_a_name(key: tuple[str, str], name: str) -> None:
    assert queue_name(key, {"/", "shop", "a/b", "100%"}) == name


@pytest.mark.parametrize(
    ("pattern", "key", "reached"),
    [
        ("orders.#", "orders.failed", True),
        ("orders.#", "orders", True),
        ("#", "", True),
        ("*.failed", "orders.failed", True),
        ("*.failed", "failed", False),
        ("#.failed.#", "a.b.failed", True),
        ("orders.*", "orders.a.b", False),
    ],
)
def test_topic_exchanges_route_by_words(pattern: str, key: str, reached: bool) -> None:
    exchanges = Exchanges.of(
        [{"vhost": "/", "name": "dlx", "type": "topic"}],
        [{"vhost": "/", "source": "dlx", "destination": "d", "destination_type": "queue", "routing_key": pattern}],
    )
    assert exchanges.reached("/", "dlx", frozenset((key,))) == ({"d"} if reached else set())


def test_exchanges_bound_in_a_circle_are_survived() -> None:
    bindings = [
        {"vhost": "/", "source": "a", "destination": "b", "destination_type": "exchange", "routing_key": ""},
        {"vhost": "/", "source": "b", "destination": "a", "destination_type": "exchange", "routing_key": ""},
        {"vhost": "/", "source": "b", "destination": "q", "destination_type": "queue", "routing_key": ""},
    ]
    kinds = [{"vhost": "/", "name": name, "type": "fanout"} for name in "ab"]
    assert Exchanges.of(kinds, bindings).reached("/", "a", frozenset(("k",))) == {"q"}


def test_a_chain_longer_than_the_bound_ends() -> None:
    keys = [("/", f"q{number}") for number in range(3 * LONGEST_CHAIN)]
    sources = {key: DeadLetters("", following[1], False) for key, following in pairwise(keys)}
    found = served(sources, targets(sources, keys, Exchanges()))
    assert found[keys[3]] == {keys[0]}
    assert found[keys[-1]] == set()


def test_a_dead_letter_queue_of_several_queues_serves_no_single_one() -> None:
    keys = [("/", name) for name in ("a", "b", "dead")]
    sources = {key: DeadLetters("", "dead", False) for key in keys[:2]}
    assert served(sources, targets(sources, keys, Exchanges())) == {("/", "dead"): {("/", "a"), ("/", "b")}}
