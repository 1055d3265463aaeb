"""What the API shows, in the shapes of Alertmanager's OpenAPI. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from alerts.durations import format_duration
from alerts.models import AlertInstance
from alerts.notify.payload import figures_of, source_of
from alerts.notify.plan import group_of, ways
from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.matchers import Matcher
from alerts.routing.muting import Muting
from alerts.routing.route import Route
from alerts.routing.settings import routes_of
from alerts.routing.silence import Silence, SilenceState
from alerts.settings import AlertSettings
from alerts.v2.taken import Asked

_ORDER = (SilenceState.ACTIVE, SilenceState.PENDING, SilenceState.EXPIRED)


@dataclass(frozen=True)
class Shown:
    """What fires at ``now`` on the engine's clock, and what holds it back; it is shown on the wall clock, ``ahead``."""

    firing: Sequence[AlertInstance]
    held: Mapping[str, Muting]
    settings: AlertSettings
    now: datetime
    ahead: timedelta

    def alerts(self, wanted: Asked) -> list[dict[str, Any]]:
        """``GET /alerts``, in the order of fingerprints."""
        found = []
        for alert in sorted(self.firing, key=lambda alert: alert.fingerprint):
            reached = self._reached(alert)
            receivers = sorted({name for name, _ in reached})
            if wanted.receiver is not None and not any(map(wanted.wants_receiver, receivers)):
                continue
            status = self._status(alert, [route for _, route in reached])
            if wanted.wants(alert.labels, status):
                found.append(self._alert(alert, receivers, status))
        return found

    def groups(self, wanted: Asked) -> list[dict[str, Any]]:
        """``GET /alerts/groups``: by receiver and group, those that are left with any alert."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for alert in sorted(self.firing, key=lambda alert: alert.fingerprint):
            reached = self._reached(alert)
            receivers = sorted({name for name, _ in reached})
            for receiver in self.settings.receivers:
                for name, route in reached:
                    if name != receiver.name or not wanted.wants_receiver(name):
                        continue
                    status = self._status(alert, [route])
                    if not wanted.wants(alert.labels, status):
                        continue
                    labels = route.group_labels(alert.labels)
                    shown = {"labels": labels, "routeLabels": {}, "receiver": {"name": name}, "alerts": []}
                    group = found.setdefault(group_of(alert, receiver, route), shown)
                    group["alerts"].append(self._alert(alert, receivers, status))
        return sorted(found.values(), key=lambda group: (sorted(group["labels"].items()), group["receiver"]["name"]))

    def _reached(self, alert: AlertInstance) -> list[tuple[str, Route]]:
        reached = ways(alert, self.settings.receivers, self.settings.route)
        return [(receiver.name, route) for receiver, route in reached]

    def _status(self, alert: AlertInstance, routes: Sequence[Route]) -> dict[str, Any]:
        held = self.held.get(alert.fingerprint, Muting())
        reasons = [route.muted(self.now + self.ahead) for route in routes]
        muted = sorted({reason for reason in reasons if reason}) if reasons and all(reasons) else []
        return {
            "state": "suppressed" if held.is_silent or muted else "active",
            "silencedBy": [silence.id for silence in held.silenced_by],
            "inhibitedBy": list(held.inhibited_by),
            "mutedBy": muted,
        }

    def _alert(self, alert: AlertInstance, receivers: Sequence[str], status: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "labels": dict(alert.labels),
            "annotations": figures_of(alert) | dict(alert.annotations),
            "startsAt": instant((alert.fired_at or alert.active_since) + self.ahead),
            "endsAt": "0001-01-01T00:00:00.000Z",
            "updatedAt": instant(self.now + self.ahead),
            "generatorURL": source_of(alert, self.settings.dashboard_url),
            "fingerprint": alert.fingerprint,
            "receivers": [{"name": name} for name in receivers],
            "status": status,
        }


def silence_json(silence: Silence, now: datetime, ahead: timedelta) -> dict[str, Any]:
    """One silence."""
    return {
        "id": silence.id,
        "status": {"state": silence.state(now).value},
        "matchers": [
            {"name": one.name, "value": one.value, "isRegex": one.is_regex, "isEqual": one.is_equal}
            for one in silence.matchers
        ],
        "startsAt": instant(silence.starts_at + ahead),
        "endsAt": instant(silence.ends_at + ahead),
        "updatedAt": instant(silence.updated_at + ahead),
        "createdBy": silence.created_by,
        "comment": silence.comment,
        "annotations": {},
    }


def in_order(silences: Sequence[Silence], now: datetime) -> list[Silence]:
    """As Alertmanager lists them: active ones by their end, then pending ones by their start, then what is over."""

    def place(silence: Silence) -> tuple[int, float]:
        state = silence.state(now)
        at = (silence.starts_at if state is SilenceState.PENDING else silence.ends_at).timestamp()
        return _ORDER.index(state), -at if state is SilenceState.EXPIRED else at

    return sorted(silences, key=place)


def acknowledgement_json(one: Acknowledgement, ahead: timedelta) -> dict[str, Any]:
    """One acknowledgement."""
    return {"fingerprint": one.fingerprint, "createdBy": one.by, "comment": one.comment, "at": instant(one.at + ahead)}


def status_json(settings: AlertSettings, started: datetime, version: str) -> dict[str, Any]:
    """``GET /status``; what it says of the settings holds neither urls nor keys."""
    told = {"branch": "", "buildDate": "", "buildUser": "", "goVersion": "", "revision": "", "version": version}
    return {
        "cluster": {"status": "disabled"},
        "config": {"original": configuration(settings)},
        "uptime": instant(started),
        "versionInfo": told,
    }


def configuration(settings: AlertSettings) -> str:
    """The routes, as YAML that Alertmanager's tools read; of a receiver there is the name alone."""
    names = [receiver.name for receiver in settings.receivers]
    root = routes_of(settings.route)[-1]
    nobody = "(nobody)"

    def way(route: Route, receiver: str, further: bool, matchers: Sequence[Matcher]) -> dict[str, Any]:
        return {
            "receiver": receiver,
            **({"matchers": [str(matcher) for matcher in matchers]} if matchers else {}),
            "group_by": list(route.group_by),
            "group_wait": format_duration(route.group_wait),
            "group_interval": format_duration(max(route.group_interval, timedelta(milliseconds=1))),
            "repeat_interval": format_duration(max(route.repeat_interval, timedelta(milliseconds=1))),
            **({"continue": True} if further else {}),
        }

    def ways_of(route: Route, told: Sequence[str]) -> list[dict[str, Any]]:
        """``route`` as ways of one receiver each: side by side, or within one that has ways of its own."""
        if not route.children and route is not root:
            return [way(route, name, route.further or name != told[-1], route.matchers) for name in told]
        inner = [one for child in route.children for one in ways_of(child, _told(child, names) or [nobody])]
        if len(told) > 1:
            inner += [way(route, name, name != told[-1], ()) for name in told]
        return [{**way(route, told[0], route.further, route.matchers), **({"routes": inner} if inner else {})}]

    everybody = [name for name in _told(root, names) if name != settings.route.watchdog] or [nobody]
    return yaml.safe_dump(
        {
            "route": ways_of(root, everybody)[0],
            "receivers": [{"name": name} for name in (*names, nobody)],
            "inhibit_rules": [
                {
                    "source_matchers": list(one.source),
                    "target_matchers": list(one.target),
                    "equal": list(one.equal),
                }
                for one in settings.route.inhibit
            ],
        },
        sort_keys=False,
    )


def _told(route: Route, names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if route.tells(name))


def instant(at: datetime) -> str:
    """``at`` as Alertmanager shows it, in milliseconds."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
