"""What happens in the demo, as data: who sends how much and when. No clock, no broker, no files."""

from __future__ import annotations

from dataclasses import dataclass

from lake.errors import UserError

BROKER = "nats"
STREAM = "ORDERS"
SUBJECTS = "orders.>"
DEAD_LETTERS = "ORDERS_DLQ"
DEAD_LETTER_SUBJECTS = "dead.orders.>"
CONSUMER = "workers"
TENANT_HEADER = "Tenant"

TENANTS = ("acme", "bolt", "cobalt", "dune", "ember", "fjord", "grove", "harbor")
NOISY = "grove"
CALM_RATE = 10.0  # messages/s of each tenant
SURGE_FACTOR = 12
TARGET_SECONDS = 3.0  # what the queue has to keep

CONCURRENCY = 60  # messages being processed at once, over all consumers: the broker's max_ack_pending
CONSUMERS = 2  # processes
PROCESSING_SECONDS = 0.45  # mean
CAPACITY = CONCURRENCY / PROCESSING_SECONDS  # messages/s: 133, where calm traffic is 80 and the surge 190

FAILING_ATTEMPTS = 0.02  # of all attempts
POISONED = 0.003  # messages whose every attempt fails
MOST_ATTEMPTS = 3  # then a message goes to the dead letters
RETRY_DELAY_SECONDS = 0.2

#: Shares of the traffic's time: calm, surge, and calm again. Before it everything starts, after it everything drains.
CALM_SHARE, SURGE_SHARE = 0.25, 0.45
#: Starting up, draining, flushing and reporting, about.
OVERHEAD_SECONDS = 35.0
LEAST_DURATION = 90.0
DEFAULT_DURATION = 165.0
#: How long the noisy tenant sends nothing at all once its surge has ended: its batch is through.
REST_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Phase:
    """A named phase of the traffic, in seconds from its start."""

    name: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """The demo's traffic, fitted into a duration."""

    traffic_seconds: float

    @classmethod
    def lasting(cls, duration: float) -> Scenario:
        """The scenario of a demo that takes about ``duration`` seconds in all; UserError where that is too short."""
        if duration < LEAST_DURATION:
            raise UserError(
                f"--duration {duration:g} is too short to show a surge and a recovery",
                f"give at least {LEAST_DURATION:g}",
            )
        return cls(duration - OVERHEAD_SECONDS)

    @property
    def phases(self) -> tuple[Phase, Phase, Phase]:
        """Calm, surge and calm again."""
        surge = self.traffic_seconds * CALM_SHARE
        calm = surge + self.traffic_seconds * SURGE_SHARE
        return Phase("calm", 0.0, surge), Phase("surge", surge, calm), Phase("calm again", calm, self.traffic_seconds)

    def phase(self, elapsed: float) -> str:
        """The phase ``elapsed`` seconds after the traffic's start."""
        if elapsed < 0:
            return "starting"
        return next((phase.name for phase in self.phases if elapsed < phase.ends), "draining")

    def rate(self, tenant: str, elapsed: float) -> float:
        """Messages/s that ``tenant`` wants to send ``elapsed`` seconds after the traffic's start."""
        if not 0 <= elapsed < self.traffic_seconds:
            return 0.0
        _, surge, after = self.phases
        if tenant == NOISY and surge.begins <= elapsed < surge.ends:
            return CALM_RATE * SURGE_FACTOR
        if tenant == NOISY and after.begins <= elapsed < after.begins + REST_SECONDS:
            return 0.0
        return CALM_RATE
