"""What is simulated: a shared queue, its servers and tenants, and the policy that watches it. Read from TOML."""

from __future__ import annotations

import random
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from alerts.control.settings import PolicySettings
from lab.order import ORDERS
from lake.errors import UserError

#: The shipped policy.
SHIPPED = PolicySettings(name="shipped")


@dataclass(frozen=True, slots=True)
class Phase:
    """From second ``at`` on a tenant offers ``rate`` messages/s, by a Poisson process that heeds nobody (open loop)."""

    at: float
    rate: float


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. ``suspect`` ones are reported apart from the quiet ones; no policy may limit an ``innocent`` one.

    ``service_mean`` (seconds) is its messages' own where it differs; ``poison`` the part of them that always fail;
    ``weight`` its share in a fair order.
    """

    name: str
    phases: tuple[Phase, ...]
    suspect: bool = False
    innocent: bool = True
    service_mean: float | None = None
    poison: float = 0.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Failing:
    """From ``start`` to ``end`` the ``part`` of all attempts fail; each message is tried ``attempts`` times at most."""

    start: float = 0.0
    end: float = 0.0
    part: float = 0.0
    attempts: int = 5


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message as it came, ``at`` seconds from the beginning, and how long each attempt at it took (seconds).

    All attempts but the last failed. Its producer had it at ``offered`` where that was earlier.
    """

    at: float
    tenant: str
    work: tuple[float, ...]
    offered: float | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the scenario: with or without control, on how many servers, in which order they take messages.

    ``order`` is a name in :data:`lab.order.ORDERS`: ``arrival``, ``fair`` (start-time fair queueing over tenants, as
    ``sojourn.FairConsumer`` does), ``round_robin`` (by deficit) or ``quiet_first`` (the rule of SQS fair queues).
    ``entitled``: producers keep to what they are entitled to while the queue is congested, by
    :mod:`alerts.laws.entitlement`, and with ``glances`` the broker is asked how many messages wait beside the pipeline
    of metrics (:mod:`alerts.control.depth`). ``policy`` is one of its own, in place of the scenario's.
    """

    name: str
    controlled: bool
    servers: int
    order: str = "arrival"
    entitled: bool = False
    glances: bool = False
    policy: PolicySettings | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a simulation needs but its seed. Times in seconds, rates in messages/s.

    Tenants that begin ``together`` count as one to the policy.
    ``target_seconds`` is the lake's, for policies that name none; ``lag_seconds`` is how long metrics and limits
    together take to arrive, ``window_seconds`` the rates' window.
    Figures count messages whose first attempt falls within ``measure``, and what is completed by its end, or by
    ``done_by``. Where there is a ``trace``, it says what comes in place of rates and drawn service times. During
    ``outage`` nothing is worked on; from each instant of ``slowdowns`` on all service times are so many times as long,
    and from each of ``scaling`` there are so many servers more.
    """

    title: str
    duration: float
    tenants: tuple[Tenant, ...]
    variants: tuple[Variant, ...]
    service: str
    service_mean: float
    policy: PolicySettings = SHIPPED
    target_seconds: float = 3.0
    window_seconds: int = 60
    lag_seconds: float = 1.0
    producer: str = "hold"
    measure: tuple[float, float] = (0.0, float("inf"))
    outage: tuple[float, float] | None = None
    slowdowns: tuple[tuple[float, float], ...] = ()
    scaling: tuple[tuple[float, int], ...] = ()
    failing: Failing = Failing()
    trace: tuple[Arrival, ...] = ()
    done_by: float | None = None
    together: bool = False

    @property
    def target(self) -> float:
        """The oldest age of quiet tenants that is to be kept (seconds)."""
        return self.policy.target_seconds or self.target_seconds


_SERVICE = ("exponential", "constant", "lognormal")
#: The ways that every scenario is run unless it names its own; the first does nothing.
VARIANTS: tuple[dict[str, Any], ...] = (
    {"name": "no control"},
    {"name": "fair order", "order": "fair"},
    {"name": "round robin", "order": "round_robin"},
    {"name": "quiet first", "order": "quiet_first"},
    {"name": "entitled", "entitled": True},
    {"name": "controlled", "controlled": True},
)


def names() -> list[str]:
    """The scenarios that come with the lab."""
    folder = resources.files("lab") / "scenarios"
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name_or_path: str | Path) -> Scenario:
    """The scenario of that name, or in the file at that path. Raises UserError."""
    try:
        if str(name_or_path) in names():
            text = (resources.files("lab") / "scenarios" / f"{name_or_path}.toml").read_text(encoding="utf-8")
        else:
            text = Path(name_or_path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"there is no scenario {str(name_or_path)!r}", f"name a TOML file, or one of {', '.join(names())}"
        ) from error
    try:
        return parse(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name_or_path} is not TOML: {error}", "fix the file") from error
    except KeyError as error:
        raise UserError(
            f"{name_or_path} lacks {error}", "compare it with lab/scenarios/noisy-neighbour.toml"
        ) from error
    except (TypeError, ValueError) as error:
        raise UserError(f"{name_or_path} cannot be simulated: {error}", "fix the file") from error


def parse(document: Mapping[str, Any]) -> Scenario:
    """A scenario from a parsed document. KeyError, TypeError or ValueError where it is none."""
    document = dict(document)
    service = document.pop("service")
    policy = document.pop("policy", {})
    servers = int(document.pop("servers"))
    tenants = tuple(tenant for entry in document.pop("tenants") for tenant in _tenants(entry))
    variants = document.pop("variants", VARIANTS)
    scenario = Scenario(
        title=document.pop("title"),
        duration=float(document.pop("duration_seconds")),
        tenants=tenants,
        variants=tuple(Variant(**{"servers": servers, "controlled": False} | entry) for entry in variants),
        service=service["distribution"],
        service_mean=float(service["mean_seconds"]),
        policy=PolicySettings(name="shipped", **policy),
    )
    if scenario.policy.counts:
        raise ValueError(f"the law {scenario.policy.law!r} is of messages in hand, which are not simulated")
    known = {field.name for field in fields(Scenario)} - {"trace", "done_by"}
    unknown = set(document) - known
    if unknown:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))}")
    changes: dict[str, Any] = dict(document)
    if "failing" in changes:
        changes["failing"] = Failing(**changes["failing"])
    for name, parse_value in (("slowdowns", float), ("scaling", int)):
        if name in changes:
            changes[name] = tuple((float(at), parse_value(value)) for at, value in changes[name])
    for span in {"measure", "outage"} & set(changes):
        start, end = changes[span]
        changes[span] = (float(start), float(end))
    return _checked(replace(scenario, **changes))


def resampled(scenario: Scenario, seed: int) -> Scenario:
    """``scenario`` with service times drawn anew, with replacement, from those of the same tenant; 0: as they were.
    A scenario without a trace is as it is

    B. Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    if seed == 0 or not scenario.trace:
        return scenario
    source = random.Random(f"{seed}/work")
    known: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for arrival in scenario.trace:
        known[arrival.tenant].append(arrival.work)
    return replace(scenario, trace=tuple(replace(one, work=source.choice(known[one.tenant])) for one in scenario.trace))


def _tenants(entry: Mapping[str, Any]) -> list[Tenant]:
    phases = tuple(Phase(float(phase["at"]), float(phase["rate"])) for phase in entry["phases"])
    count = int(entry.get("count", 1))
    suspect = bool(entry.get("suspect", False))
    service_mean = entry.get("service_mean_seconds")
    tenant = Tenant(
        entry["name"],
        phases,
        suspect,
        innocent=bool(entry.get("innocent", not suspect)),
        service_mean=None if service_mean is None else float(service_mean),
        poison=float(entry.get("poison", 0.0)),
        weight=float(entry.get("weight", 1.0)),
    )
    return [tenant] if count == 1 else [replace(tenant, name=f"{tenant.name}-{i}") for i in range(count)]


def _checked(scenario: Scenario) -> Scenario:
    if scenario.service not in _SERVICE:
        raise ValueError(f"service.distribution is {scenario.service!r}, not one of {', '.join(_SERVICE)}")
    if scenario.producer not in ("hold", "shed"):
        raise ValueError(f"producer is {scenario.producer!r}: a limited producer can hold or shed its messages")
    if not 0 < scenario.duration <= 1e6 or scenario.service_mean <= 0 or min(v.servers for v in scenario.variants) < 1:
        raise ValueError("duration, service time and servers must be above 0")
    for variant in scenario.variants:
        if variant.order not in ORDERS:
            raise ValueError(f"the order of {variant.name} is {variant.order!r}, not one of {', '.join(ORDERS)}")
    for tenant in scenario.tenants:
        starts = [phase.at for phase in tenant.phases]
        if starts != sorted(starts) or any(phase.rate < 0 for phase in tenant.phases):
            raise ValueError(f"the phases of {tenant.name} must be in order, and no rate below 0")
    return scenario
