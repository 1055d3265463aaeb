"""The publish-latency probe on a real node: it measures, it says when publishers are blocked, it leaves nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from collectors.rabbitmq import probe as probes
from collectors.rabbitmq.probe import Probe
from collectors.rabbitmq.settings import RabbitBroker
from collectors.samples import METRIC_NAMES, Sample
from tests.collectors.rabbitmq.conftest import Make
from tests.collectors.rabbitmq.reading import opened, read, read_until
from tests.support.rabbitmq import RabbitServer
from tests.support.waiting import wait_until


@pytest.fixture
def probing(rabbit: RabbitServer, broker: Make) -> Iterator[Callable[..., Probe]]:
    """Starts a probe; stops all at the end."""
    started: list[Probe] = []

    def start(**changes: object) -> Probe:
        probe = Probe(broker(amqp_url=rabbit.amqp_url, probe={"interval": 0.05, "timeout": 1}, **changes))
        started.append(probe)
        probe.start()
        return probe

    yield start
    for probe in started:
        probe.stop()


def until(probe: Probe, enough: Callable[[Sample], bool]) -> Sample:
    return wait_until(lambda: sample if enough(sample := probe.sample(0)) else None, "the probe to tell")


def own_queues(rabbit: RabbitServer) -> list[str]:
    names = (queue["name"] for queue in rabbit.api("GET", "queues?columns=name,vhost&disable_stats=true"))
    return [name for name in names if name.startswith("sojourn.probe")]


def test_it_measures_the_round_trip_and_leaves_nothing(rabbit: RabbitServer, probing: Callable[..., Probe]) -> None:
    probe = probing()
    sample = until(probe, lambda sample: sample.publish_latency_seconds is not None)
    assert sample.state == "running"
    assert sample.publish_latency_seconds is not None and 0 < sample.publish_latency_seconds < 5
    unknown = {name for name in METRIC_NAMES if getattr(sample, name) is None}
    assert unknown == set(sample.unavailable)
    assert len(own_queues(rabbit)) == 1
    probe.stop()
    wait_until(lambda: not own_queues(rabbit), "the probe's queue to go")


def test_a_node_low_on_memory_blocks_the_probe_and_the_probe_says_so(
    rabbit: RabbitServer, probing: Callable[..., Probe]
) -> None:
    probe = probing()
    until(probe, lambda sample: sample.publish_latency_seconds is not None)
    rabbit.ctl("set_vm_memory_high_watermark", "absolute", "1000")
    try:
        sample = until(probe, lambda sample: sample.state == "blocked")
        assert sample.publish_latency_seconds is None
        assert "low on memory" in sample.unavailable["publish_latency_seconds"]
    finally:
        rabbit.ctl("set_vm_memory_high_watermark", "0.4")
    until(probe, lambda sample: sample.state == "running" and sample.publish_latency_seconds is not None)


async def test_the_sampler_never_waits_for_the_probe_and_shows_it_as_a_row(rabbit: RabbitServer, broker: Make) -> None:
    unreachable = broker(amqp_url="amqp://127.0.0.1:1")
    async with opened(unreachable) as source:
        row = (await read(source))["sojourn.probe"]
    assert row.state is None and "cannot publish" in row.unavailable["publish_latency_seconds"]
    async with opened(broker(amqp_url=rabbit.amqp_url, probe={"interval": 0.05})) as source:
        found = await read_until(source, lambda found: found["sojourn.probe"].publish_latency_seconds is not None)
    assert not any(name.startswith("sojourn.probe.") for name in found)


def test_a_user_who_may_not_declare_is_a_reason(rabbit: RabbitServer, probing: Callable[..., Probe]) -> None:
    rabbit.add_user("powerless", "pw", "monitoring", default="^$")
    probe = probing(user="powerless", password="pw")
    until(probe, lambda sample: "ACCESS_REFUSED" in sample.unavailable.get("publish_latency_seconds", ""))


def test_a_permission_for_its_own_queues_alone_is_enough(rabbit: RabbitServer, probing: Callable[..., Probe]) -> None:
    rabbit.add_user("prober", "pw", "monitoring")
    rights = {"configure": r"^sojourn\.probe\.", "write": r"^amq\.default$", "read": "^$"}
    rabbit.api("PUT", "permissions/%2F/prober", rights)
    until(probing(user="prober", password="pw"), lambda sample: sample.publish_latency_seconds is not None)


def test_a_thread_that_was_slow_to_end_does_not_go_on_beside_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_PATIENCE", 0.01)
    goes_on = threading.Event()
    probe = Probe(RabbitBroker(amqp_url="amqp://127.0.0.1:1", name="slow-to-end"))
    monkeypatch.setattr(probe, "_converse", lambda stopping: goes_on.wait(10))
    probe.start()
    slow = probe._thread
    probe.stop()
    probe.start()
    assert slow is not None
    goes_on.set()
    slow.join(10)
    probe.stop()
    assert not slow.is_alive()
