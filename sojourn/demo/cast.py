"""Who plays in the demo: every process of it, as a child for the supervisor."""

from __future__ import annotations

import dataclasses
import time

from sojourn.demo import scenario
from sojourn.demo.broker import Broker
from sojourn.demo.layout import Layout
from sojourn.parts import PARTS, module, own_environment, part_child
from sojourn.settings import Settings
from sojourn.supervise.probes import free_port, http_ok
from sojourn.supervise.supervisor import Child

#: The noisy tenant has a producer of its own, as it would in life.
PRODUCERS = (tuple(tenant for tenant in scenario.TENANTS if tenant != scenario.NOISY), (scenario.NOISY,))


@dataclasses.dataclass(frozen=True, slots=True)
class Ports:
    """Where the demo's servers listen on loopback."""

    alert: int
    dashboard: int
    receiver: int

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody uses now."""
        return cls(free_port(), free_port(), free_port())


def parts(layout: Layout, broker: Broker, settings: Settings) -> dict[str, Child]:
    """The four parts, run by the very commands that a user would run alone."""
    made = {name: part_child(name, settings, layout.settings, layout.lake) for name in PARTS}
    made["collect"] = dataclasses.replace(made["collect"], ready=broker.tapped, needs=("broker",))
    made["alert"] = dataclasses.replace(made["alert"], needs=("receiver",))
    return made


def receiver(layout: Layout, ports: Ports) -> Child:
    """Whom the webhooks go to."""
    command = module("sojourn.demo.receiver", str(ports.receiver), str(layout.secret), str(layout.webhooks))
    health = http_ok(f"http://127.0.0.1:{ports.receiver}/healthz")
    return Child("receiver", command, own_environment(), ready=health)


def consumers(broker: Broker) -> list[Child]:
    """The processes that share the queue's concurrency."""
    share = scenario.CONCURRENCY // scenario.CONSUMERS
    seed = int(time.time()) * scenario.CONSUMERS
    return [
        Child(
            f"consumer-{number}",
            module("sojourn.demo.consumers", broker.url, str(share), str(seed + number)),
            own_environment(),
            needs=("broker",),
        )
        for number in range(scenario.CONSUMERS)
    ]


def producers(layout: Layout, broker: Broker, ports: Ports, plan: scenario.Scenario) -> list[Child]:
    """The processes that send; they end by themselves when the traffic does."""
    limits = f"http://127.0.0.1:{ports.alert}"
    return [
        Child(
            f"producer-{number}",
            module(
                "sojourn.demo.producers",
                *(broker.url, limits, str(layout.lake), str(number), str(plan.traffic_seconds)),
                *tenants,
            ),
            own_environment(),
            ends=True,
            needs=("broker",),
        )
        for number, tenants in enumerate(PRODUCERS)
    ]
