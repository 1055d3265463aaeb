"""The ``[alert.control]`` section: which policies may act on what alerts name, within which bounds."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from actuators.registry import AnySettings
from alerts.control.actuators import LIMITS_API
from alerts.control.actuators.spillover import SpilloverSettings
from alerts.control.depth.registry import AnyDepth
from alerts.control.flows import Place, cycle
from alerts.laws import capacity, entitlement, registry
from alerts.laws.bounds import Bounds
from alerts.laws.law import Agreed
from alerts.laws.limits import Terms
from lake.definitions import LONGEST_LEASE_SECONDS
from sojourn.client.groups import Patterns

#: The kind of actuator that bounds what a consumer has in hand.
IN_HAND = "nats_max_ack_pending"


class PolicySettings(BaseModel):
    """One policy. Rules name it in their ``actions``. Rates are messages/s, times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="the name that rules give in `actions`")
    law: str = Field(
        default="aimd",
        description="`aimd` adapts the limit while the alert lasts, `rate_limit` keeps it, "
        "`inverse_backlog` lowers it in proportion to the quiet tenants' oldest age; others are judged by a signal of "
        "their own (docs/laws.md). `kind` is read as `law`, too",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="the law's own options (docs/laws.md)")
    actuator: str = Field(
        default=LIMITS_API,
        description="what puts a limit in force: `limits_api`, which `sojourn.Limits` asks, or one of `actuators`",
    )
    mode: Literal["dry_run", "approve", "auto"] = Field(
        default="dry_run",
        description="`dry_run` decides and journals, and puts nothing in force; `approve` proposes, and acts on what "
        "`sojourn actions approve` agrees to; `auto` acts. `dry_run = false` is read as `auto`, too",
    )
    confirm: tuple[str, ...] = Field(
        default=(),
        description="rules of which one must fire for the same queue before a first limit: a second signal",
    )
    early: bool = Field(
        default=False,
        description="acts on an alert that still pends, and on who has most of what waits (the rule TenantFillsQueue, "
        "evaluated only then): a rule's `for` spares people a page, and harm is seen twice all the same",
    )
    rate: float | None = Field(default=None, gt=0, description="base rate; default: the tenant's fair share")
    share: float = Field(default=1.0, gt=0, le=10, description="base = this × completion rate ÷ active tenants")
    floor: float = Field(default=1.0, gt=0, description="no limit goes below")
    ceiling: float = Field(default=10_000.0, gt=0, description="a limit that reaches it is released")
    max_step: float = Field(default=0.5, gt=0, le=1, description="largest part of a limit that one decision changes")
    burst_seconds: float = Field(default=1.0, ge=0, le=60, description="burst = this × rate, at least one message")
    priority: Literal["P1", "P2", "P3"] = Field(
        default="P2", description="gains: P1 +15/s −20 %, P2 +10/s −40 %, P3 +5/s −60 %"
    )
    target_seconds: float | None = Field(
        default=None, gt=0, description="quiet tenants' oldest age to keep; default: the lake's target"
    )
    cooldown_seconds: float = Field(default=15.0, ge=0, description="time that a change has to act before the next")
    lease_seconds: float = Field(
        default=60.0,
        ge=1,
        le=LONGEST_LEASE_SECONDS,
        description="a limit that is not renewed ends after this; renewed at half of it",
    )
    release_margin: float = Field(
        default=0.25, ge=0, description="released when the limit exceeds the tenant's arrivals by this part of them"
    )
    drain_seconds: float = Field(
        default=60.0, gt=0, description="a limit leaves room for the backlog to be gone by then"
    )
    hold_seconds: float = Field(
        default=300.0, ge=0, description="how long a limit outlives its alert while the queue is not calm"
    )
    effect_seconds: float = Field(default=15.0, gt=0, description="by then arrivals must have followed the limit")
    revoke_seconds: float = Field(
        default=3600.0, ge=0, description="how long an operator's revoke keeps the policy off"
    )
    min_coverage: float = Field(
        default=0.8, ge=0, le=1, description="acts only where events show this part of the queue"
    )
    max_staleness_seconds: float = Field(default=15.0, gt=0, description="acts only on events and samples this fresh")
    max_limits: int = Field(default=20, ge=1, le=10_000, description="most tenants limited at once by this policy")

    @model_validator(mode="before")
    @classmethod
    def _reads_earlier_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        values = dict(values)
        if "kind" in values:
            if "law" in values:
                raise ValueError("`kind` and `law` say the same twice: leave `kind` out")
            values["law"] = values.pop("kind")
        if "dry_run" not in values:
            return values
        dry_run = values.pop("dry_run")
        if "mode" in values:
            raise ValueError("`dry_run` and `mode` say the same twice: leave `dry_run` out")
        if not isinstance(dry_run, bool):
            raise ValueError(f"dry_run is {dry_run!r}, neither true nor false")
        return values | {"mode": "dry_run" if dry_run else "auto"}

    @model_validator(mode="after")
    def _floor_below_ceiling(self) -> Self:
        if self.floor > self.ceiling:
            raise ValueError(f"policy {self.name}: floor {self.floor:g} is above ceiling {self.ceiling:g}")
        return self

    @model_validator(mode="after")
    def _law_is_known(self) -> Self:
        try:
            own = registry.make(self.law, self.options)
            if own is not None:
                own.check(Agreed(self.bounds, self.priority))
        except ValueError as error:
            raise ValueError(f"policy {self.name}: {error}") from None
        return self

    @property
    def counts(self) -> bool:
        """Whether its limits are messages in hand at once, not rates."""
        return self.law in registry.LAWS and bool(registry.law_class(self.law).counts)

    @property
    def bounds(self) -> Bounds:
        """What every limit keeps to."""
        return Bounds(self.floor, self.ceiling, self.max_step)

    def terms(self, target_seconds: float) -> Terms:
        """These settings as the laws take them; ``target_seconds`` is the lake's."""
        return Terms(
            law=self.law,
            priority=self.priority,
            bounds=self.bounds,
            cooldown_seconds=self.cooldown_seconds,
            lease_seconds=self.lease_seconds,
            min_coverage=self.min_coverage,
            max_staleness_seconds=self.max_staleness_seconds,
            target_seconds=self.target_seconds or target_seconds,
            rate=self.rate,
            share=self.share,
            release_margin=self.release_margin,
            drain_seconds=self.drain_seconds,
            hold_seconds=self.hold_seconds,
            effect_seconds=self.effect_seconds,
            own=registry.make(self.law, self.options),
        )


_TERMS = entitlement.Terms()


class EntitlementSettings(BaseModel):
    """What a tenant of a queue may send whatever the others do. It binds only while the queue is congested."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: str = Field(min_length=1, description="the broker, as the collector names it")
    queue: str = Field(min_length=1, description="queue, topic or stream")
    tenant: str = Field(
        default="*",
        min_length=1,
        description="whom it is for; `*`: each that has none of its own; "
        "`acme-*`: a group, all whose names begin so, that counts as one tenant",
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        description="messages/s; default: learnt – the max-min share, and at least the 99th percentile of its own past",
    )
    burst_seconds: float = Field(default=1.0, ge=0, le=60, description="burst = this × rate, at least one message")
    enter_seconds: float = Field(
        default=_TERMS.enter_seconds, gt=0, description="congested once messages wait longer than this"
    )
    exit_seconds: float = Field(
        default=_TERMS.exit_seconds, ge=0, description="no longer, once they wait less and nobody is held back"
    )
    lease_seconds: float = Field(default=10.0, ge=1, le=600, description="the bit ends after this unless it is renewed")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        self.terms()
        return self

    def terms(self) -> entitlement.Terms:
        """These settings as the law takes them."""
        return entitlement.Terms(
            enter_seconds=self.enter_seconds, exit_seconds=self.exit_seconds, lease_seconds=self.lease_seconds
        )


class CapacitySettings(BaseModel):
    """A queue whose consumers are scaled by what `GET /v1/capacity` says of it. Times are seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: str = Field(min_length=1, description="the broker, as the collector names it")
    queue: str = Field(min_length=1, description="queue, topic or stream")
    subscriber: str = Field(default="", description="whose consumers; default: the queue's only ones")
    drain_seconds: float = Field(default=300.0, gt=0, description="a backlog is to be gone by then")
    per_consumer: int = Field(default=1, ge=1, description="messages that one consumer works on at once")
    fewest: int = Field(default=1, ge=0, description="no fewer consumers are advised")
    partitions: int | None = Field(
        default=None, ge=1, description="no more consumers are advised: of those beyond the partitions none has work"
    )
    service_seconds: float | None = Field(
        default=None, gt=0, description="work for one message; default: measured, the mean over the window"
    )
    least_gain: float = Field(
        default=0.25,
        ge=0,
        lt=1,
        description="no scaling out where an added consumer brought less than this part of one's throughput",
    )
    forget_seconds: float = Field(default=1800.0, gt=0, description="so long no scaling out is tried again after that")
    min_coverage: float = Field(default=0.8, ge=0, le=1, description="says nothing where events show less of the queue")

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        self.terms(60.0)
        return self

    @property
    def place(self) -> tuple[str, str, str]:
        """Broker, queue, subscriber."""
        return self.broker, self.queue, self.subscriber

    def terms(self, window_seconds: float) -> capacity.Terms:
        """These settings as the law takes them; ``window_seconds`` is the rates'."""
        return capacity.Terms(
            drain_seconds=self.drain_seconds,
            per_consumer=self.per_consumer,
            fewest=self.fewest,
            partitions=self.partitions,
            least_gain=self.least_gain,
            window_seconds=window_seconds,
            forget_seconds=self.forget_seconds,
        )


class GroupSettings(BaseModel):
    """Tenants of a queue that count as one to rules and policies: NoisyGroup names them, they are limited as one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: str = Field(min_length=1, description="the broker, as the collector names it")
    queue: str = Field(min_length=1, description="queue, topic or stream")
    names: tuple[str, ...] = Field(
        default=(), description="declared groups: `acme-*` is everybody whose name begins so; the longest counts"
    )
    together: bool = Field(
        default=True,
        description="names that begin to send together, eight or more within two seconds and far from chance, are one",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        Patterns(self.names)
        if not self.names and not self.together:
            raise ValueError(f"a group of {self.broker}/{self.queue} needs names, or together = true")
        return self


class FlowSettings(BaseModel):
    """Whoever consumes ``queue`` produces to these queues: a limit on one of them slows the consumers of ``queue``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: str = Field(min_length=1, description="the broker, as the collector names it")
    queue: str = Field(min_length=1, description="queue, topic or stream whose consumers produce")
    to: tuple[str, ...] = Field(min_length=1, description="what they produce to; `broker/queue` on another broker")

    @property
    def edges(self) -> list[tuple[Place, Place]]:
        """Each flow as (from, to)."""
        places = (name.split("/", 1) if "/" in name else [self.broker, name] for name in self.to)
        return [((self.broker, self.queue), (broker, queue)) for broker, queue in places]


def to_compare(settings: ControlSettings) -> list[PolicySettings]:
    """The policies of ``settings``, and every shipped law of shares with its defaults that is not among them."""
    shipped = [PolicySettings(name="shipped", law=law) for law in registry.SHARES]
    own = [one.model_copy(update={"name": "", "mode": "dry_run"}) for one in settings.policies]
    policies = [one for one in settings.policies if not one.counts]  # what consumers have in hand is not simulated
    return [*policies, *(one for one in shipped if one.model_copy(update={"name": ""}) not in own)]


class ControlSettings(BaseModel):
    """What may be acted on. The default decides and journals what it would do, and does nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    policies: tuple[PolicySettings, ...] = Field(
        default=(PolicySettings(name="throttle-noisy"),), description="the policies that rules may name"
    )
    actuators: tuple[AnySettings, ...] = Field(
        default=(), description="what else may put limits in force: mirrors of them, and settings of brokers"
    )
    spillovers: tuple[SpilloverSettings, ...] = Field(
        default=(), description="queues beside which a limited tenant's excess waits, and comes back when all is calm"
    )
    entitlements: tuple[EntitlementSettings, ...] = Field(
        default=(), description="what tenants may send whatever the others do; the first of a queue sets its times"
    )
    depth: tuple[AnyDepth, ...] = Field(
        default=(),
        description="brokers that are asked themselves how many messages wait in queues with entitlements, up to ten "
        "times a second beside the pipeline of metrics",
    )
    capacity: tuple[CapacitySettings, ...] = Field(
        default=(), description="queues whose consumers are scaled: how many there should be is told"
    )
    groups: tuple[GroupSettings, ...] = Field(
        default=(), description="tenants that count as one, by queue; without any, NoisyGroup is not evaluated"
    )
    flows: tuple[FlowSettings, ...] = Field(
        default=(), description="the topology: which queues' consumers produce to which; circles are refused"
    )
    token_env: str | None = Field(
        default=None,
        description="environment variable with the limits API's bearer token; default: the alert section's",
    )
    keda_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="where `capacity` is served as KEDA's external scaler (gRPC), with the limits API's token; "
        "0 = any free one; default: it is not",
    )
    max_waiters: int = Field(default=1000, ge=1, description="most long polls held at once; more are answered at once")

    @model_validator(mode="after")
    def _runs_in_no_circle(self) -> Self:
        found = cycle(edge for flow in self.flows for edge in flow.edges)
        if found is not None:
            way = " → ".join(f"{broker}/{queue}" for broker, queue in found)
            raise ValueError(f"backpressure would run in a circle: {way}; a limit in it would slow those who drain it")
        return self

    @model_validator(mode="after")
    def _actuators_are_known(self) -> Self:
        names = [LIMITS_API, *(one.name for one in self.actuators), *(one.name for one in self.spillovers)]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two actuators are called {doubled[0]!r}")
        for policy in self.policies:
            if policy.actuator not in names:
                raise ValueError(f"policy {policy.name}: there is no actuator {policy.actuator!r}")
        bound = {one.name for one in self.actuators if getattr(one, "kind", "") == IN_HAND}
        for policy in self.policies:
            if policy.counts and policy.mode != "dry_run" and policy.actuator not in bound:
                raise ValueError(
                    f"policy {policy.name}: {policy.law} bounds messages in hand, which an actuator of kind {IN_HAND} "
                    f"does, and {policy.actuator!r} does not; a dry run tells what it would say"
                )
        for name in bound:  # the stricter of two limits counts, and a rate is no stricter than a number
            if len({one.counts for one in self.policies if one.actuator == name and one.mode != "dry_run"}) > 1:
                raise ValueError(f"policies of rates and of messages in hand share the actuator {name!r}")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [policy.name for policy in self.policies]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"two policies are called {doubled[0]!r}")
        scopes = [(one.broker, one.queue, one.tenant) for one in self.entitlements]
        if twice := sorted({scope for scope in scopes if scopes.count(scope) > 1}):
            raise ValueError(f"two entitlements are for {'/'.join(twice[0])}")
        asked = [one.name for one in self.depth]
        if thrice := sorted({name for name in asked if asked.count(name) > 1}):
            raise ValueError(f"two of depth are for {thrice[0]}")
        grouped = [(one.broker, one.queue) for one in self.groups]
        if again := sorted({place for place in grouped if grouped.count(place) > 1}):
            raise ValueError(f"two of groups are for {'/'.join(again[0])}")
        scaled = [one.place for one in self.capacity]
        if doubly := sorted({place for place in scaled if scaled.count(place) > 1}):
            raise ValueError(f"two of capacity are for {'/'.join(filter(None, doubly[0]))}")
        return self
