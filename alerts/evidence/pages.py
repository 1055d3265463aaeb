"""Notifications as they are sent: written anew at each attempt, from what is the case then and what is known of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from alerts.engine import Snapshot
from alerts.evidence.exemplars import Exemplar, Exemplars, Key, Reading, queues_of
from alerts.evidence.facts import Facts
from alerts.models import AlertInstance
from alerts.notify.links import links
from alerts.notify.payload import alert_of, common, encoded
from alerts.notify.plan import Notice
from alerts.rules.templates import humanize_duration
from lake.clock import ZERO

#: How long (seconds) a page is held back for what waits longest; its next attempt, or the next page, has it then.
PATIENCE = 0.25
#: Alerts of one notification that get evidence of their own.
MOST_ALERTS = 20


class Pages:
    """Rewrites the bodies that the outbox holds. Belongs to the sender's event loop."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        facts: Facts,
        exemplars: Exemplars,
        templates: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._snapshot, self._facts, self._exemplars, self._templates = snapshot, facts, exemplars, templates
        self._known: tuple[Snapshot | None, dict[str, AlertInstance]] = None, {}

    async def refreshed(self, body: str) -> str:
        """``body``, a group in Alertmanager's format, with annotations as they are now. Whom it tells of what stays.

        What is over meanwhile, and what other programs sent, stays as it was written.
        """
        payload = json.loads(body)
        firing = [alert for alert in payload["alerts"] if alert["status"] == "firing"]
        if not firing:
            return body
        _, current = self._current()
        wanted = [one for one in firing if one["fingerprint"] in current and "queue" in one["labels"]][:MOST_ALERTS]
        reading = await self._reading(queues_of(one["labels"] for one in wanted)) if wanted else None
        snapshot, current = self._current()
        for alert in firing:
            known = current.get(alert["fingerprint"])
            if known is not None:
                notice = Notice(known, None, snapshot.freshness.as_of)
                alert["annotations"] = alert_of(notice, "", templates=self._templates)["annotations"]
        for alert in wanted:
            alert["annotations"] = self._evidence(alert["labels"], reading, snapshot.ahead) | alert["annotations"]
            self._link(alert, reading)
        payload["commonAnnotations"] = common(alert["annotations"] for alert in payload["alerts"])
        return encoded(payload)

    async def _reading(self, queues: set[Key]) -> Reading | None:
        """What waits longest in ``queues``; an earlier look where the new one takes too long, None where there is
        none."""
        asked = asyncio.wrap_future(self._exemplars.reading(queues))
        try:
            return await asyncio.wait_for(asyncio.shield(asked), PATIENCE)
        except TimeoutError:
            last = self._exemplars.last
            return last if last is not None and last.tells_of(queues) else None

    def _current(self) -> tuple[Snapshot, dict[str, AlertInstance]]:
        snapshot = self._snapshot()
        if self._known[0] is not snapshot:
            self._known = snapshot, {alert.fingerprint: alert for alert in snapshot.firing()}
        return snapshot, self._known[1]

    def _evidence(self, labels: Mapping[str, str], reading: Reading | None, ahead: timedelta = ZERO) -> dict[str, str]:
        told = self._facts.of(labels, ahead)
        if reading is None:
            return told | {"exemplars_unknown": "the events were not read in time"}
        found = reading.of(labels)
        if not found:
            return told | {"exemplars_unknown": reading.why_not(labels)}
        told["exemplars"] = "; ".join(map(_told, found))
        oldest = self._facts.oldest_age(labels)
        if reading.since is not None and (oldest is None or oldest > found[0].seconds + 1):
            told["exemplars"] += f" (of events since {reading.since:%H:%M:%S} UTC; older messages may wait)"
        return told

    def _link(self, alert: dict[str, Any], reading: Reading | None) -> None:
        """Links may name the alert's fingerprint, and the message and the trace that waited longest."""
        more = {"fingerprint": alert["fingerprint"]}
        found = reading.of(alert["labels"]) if reading is not None else ()
        if found:
            more["message_id"] = found[0].message_id
        if traced := next((one.trace_id for one in found if one.trace_id), None):
            more["trace_id"] = traced
        alert["annotations"] = links(self._templates, {**more, **alert["labels"]}) | alert["annotations"]


def _told(one: Exemplar) -> str:
    trace = f", trace {one.trace_id}" if one.trace_id else ""
    return f"{one.message_id} ({'waits' if one.waits else 'waited'} {humanize_duration(one.seconds)}{trace})"
