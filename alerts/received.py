"""Alerts that other programs sent, as the engine remembers its own: they fire until their end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from alerts.evaluate import RuleMemory
from alerts.models import AlertInstance, AlertState
from alerts.state import Tracked, Transition
from alerts.store.given import ReceivedAlert

#: The group of rules under which they are remembered; no rule file may have one of that name.
GROUP = "(received)"
Key = tuple[str, str]


def step_received(
    memories: Mapping[Key, RuleMemory], received: Mapping[str, ReceivedAlert], now: datetime
) -> tuple[dict[Key, RuleMemory], list[Transition]]:
    """What is remembered of them at ``now``, by group and name of the alert, and what changed."""
    known = {
        fingerprint: tracked.alert
        for (group, _), memory in memories.items()
        if group == GROUP
        for fingerprint, tracked in memory.alerts.items()
    }
    firing = firing_of(received, now)
    transitions = [
        Transition(alert, AlertState.INACTIVE, AlertState.FIRING, "another program sent it")
        for key, alert in firing.items()
        if key not in known
    ]
    for key, alert in known.items():
        if key not in firing:
            reason = "its sender says so, or no longer repeats it"
            transitions.append(
                Transition(replace(alert, state=AlertState.INACTIVE), alert.state, AlertState.INACTIVE, reason)
            )
    alerts: dict[Key, dict[str, Tracked]] = {}
    for key, alert in firing.items():
        alerts.setdefault((GROUP, alert.rule), {})[key] = Tracked(alert)
    return {key: RuleMemory(tracked) for key, tracked in alerts.items()}, transitions


def firing_of(received: Mapping[str, ReceivedAlert], now: datetime) -> dict[str, AlertInstance]:
    """Those that fire at ``now``, by fingerprint."""
    return {key: _instance(key, one) for key, one in received.items() if one.ends_at > now}


def next_end(received: Mapping[str, ReceivedAlert], now: datetime) -> datetime | None:
    """When the next of them ends unless it is repeated."""
    return min((one.ends_at for one in received.values() if one.ends_at > now), default=None)


def _instance(key: str, one: ReceivedAlert) -> AlertInstance:
    name = one.labels.get("alertname", "")
    return AlertInstance(
        rule=name,
        group=GROUP,
        labels=one.labels,
        annotations=one.annotations,
        value=None,
        state=AlertState.FIRING,
        active_since=one.starts_at,
        fired_at=one.starts_at,
        fingerprint=key,
        generator_url=one.generator_url,
    )
