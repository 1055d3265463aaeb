"""The alerts of a rule between two evaluations, of which only what changed is an object of Python's.

In most rounds a rule's rows are those of the round before, with other numbers. Their alerts then stay as they are, and
the numbers stay in the columns of the answer until somebody looks. What this does is :func:`alerts.state.step`, which
says what is meant, without walking all rows; a property test holds one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import overload

import numpy as np
import numpy.typing as npt

from alerts.answer import Answer, Identities, Places
from alerts.models import AlertInstance, AlertState
from alerts.rules.model import Rule
from alerts.rules.templates import Annotations
from alerts.state import (
    Resolved,
    Row,
    Tracked,
    Transition,
    appeared,
    check_limit,
    matched,
    pending_since,
    step,
    twice,
    unmatched,
)

Fingerprints = npt.NDArray[np.object_]


class Columns(Mapping[str, Tracked]):
    """Alerts by fingerprint, each as of the newest answer; nothing changes in one of these, and any thread may read it.

    ``unread`` are the same alerts with the numbers that they had when their state changed. ``fingerprints`` has one for
    each row of ``answer``; alerts that are not among them have no row any more. ``pending_since`` is no
    later than :func:`alerts.state.pending_since` has it.
    """

    __slots__ = ("_places", "answer", "fingerprints", "pending_since", "rule", "unread")

    def __init__(
        self,
        rule: Rule,
        answer: Answer,
        fingerprints: Fingerprints,
        unread: dict[str, Tracked],
        since: datetime | None,
    ) -> None:
        self.rule, self.answer, self.fingerprints = rule, answer, fingerprints
        self.unread, self.pending_since = unread, since
        self._places: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.unread)

    def __iter__(self) -> Iterator[str]:
        return iter(self.unread)

    def __getitem__(self, fingerprint: str) -> Tracked:
        known = self.unread[fingerprint]
        place = self.places.get(fingerprint)
        return known if place is None else self._read(known, place)

    @property
    def places(self) -> dict[str, int]:
        """Which row each fingerprint has."""
        if self._places is None:
            self._places = {fingerprint: place for place, fingerprint in enumerate(self.fingerprints.tolist())}
        return self._places

    def _read(self, known: Tracked, place: int) -> Tracked:
        value, extra = self.answer.numbers(place)
        alert = known.alert
        row = Row(alert.labels, alert.fingerprint, value, extra)
        annotations = Annotations(self.rule.annotations, row.labels, value, extra)
        newest = replace(alert, value=value, annotations=annotations, inputs=extra)
        return Tracked(newest, None, known.paused)


class Instances(Sequence[AlertInstance]):
    """The alerts of a rule, for readers: made when looked at."""

    __slots__ = ("_alerts",)

    def __init__(self, alerts: Mapping[str, Tracked]) -> None:
        self._alerts = alerts

    def __len__(self) -> int:
        return len(self._alerts)

    def __iter__(self) -> Iterator[AlertInstance]:
        return (tracked.alert for tracked in self._alerts.values())

    def unread(self) -> Iterator[AlertInstance]:
        """With the numbers that each had when its state changed."""
        alerts = self._alerts
        return (one.alert for one in (alerts.unread if isinstance(alerts, Columns) else alerts).values())

    def firing(self) -> Iterator[AlertInstance]:
        """Those that fire."""
        return (self._alerts[alert.fingerprint].alert for alert in self.unread() if alert.state.is_firing)

    @overload
    def __getitem__(self, place: int) -> AlertInstance: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[AlertInstance]: ...
    def __getitem__(self, place: int | slice) -> AlertInstance | Sequence[AlertInstance]:
        if isinstance(place, slice):
            return [*self][place]
        return self._alerts[[*self._alerts][place]].alert

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


def firing(alerts: Sequence[AlertInstance]) -> Iterator[AlertInstance]:
    """Those of ``alerts`` that fire; the others are not made for it."""
    if not isinstance(alerts, Instances):
        return (alert for alert in alerts if alert.state.is_firing)
    return alerts.firing()


def unread(alerts: Sequence[AlertInstance]) -> Iterator[AlertInstance]:
    """``alerts`` for who looks at labels and states alone: numbers may be old."""
    return alerts.unread() if isinstance(alerts, Instances) else iter(alerts)


def advance(
    previous: Mapping[str, Tracked],
    answer: Answer,
    rule: Rule,
    identities: Identities,
    now: datetime,
    *,
    keep_firing: bool = False,
    resolved: Resolved | None = None,
) -> tuple[Columns, list[Transition]]:
    """As :func:`alerts.state.step` over the rows of ``answer``, which raises the same and finds the same.

    What it finds may come in another order.
    """
    if not isinstance(previous, Columns) or previous.answer.names != answer.names:
        rows = answer.rows(rule, identities)
        current, transitions = step(previous, rows, rule, now, keep_firing=keep_firing, resolved=resolved)
        fingerprints = np.array([row.fingerprint for row in rows], np.object_)
        return Columns(rule, answer, fingerprints, current, pending_since(current.values())), transitions
    check_limit(rule, answer.count)
    is_due = previous.pending_since is not None and now - previous.pending_since >= rule.hold
    if not is_due and len(previous) == answer.count and answer.has_labels_of(previous.answer):
        return Columns(rule, answer, previous.fingerprints, previous.unread, previous.pending_since), []
    return _changed(previous, answer, rule, identities, now, is_due=is_due, keep_firing=keep_firing, resolved=resolved)


def _changed(
    previous: Columns,
    answer: Answer,
    rule: Rule,
    identities: Identities,
    now: datetime,
    *,
    is_due: bool,
    keep_firing: bool,
    resolved: Resolved | None,
) -> tuple[Columns, list[Transition]]:
    """Rows came or went, or one that pends may have to fire: what is neither is left alone."""
    places = answer.places_in(previous.answer)
    _check_each_once(places, answer, rule, identities)
    is_new = places < 0
    fingerprints = np.empty(answer.count, np.object_)
    fingerprints[~is_new] = previous.fingerprints[places[~is_new]]
    looked_at = {int(place): answer.row(int(place), rule, identities) for place in np.flatnonzero(is_new)}
    there = set(fingerprints[~is_new].tolist())
    for place, row in looked_at.items():
        if row.fingerprint in there:
            raise twice(row)
        there.add(row.fingerprint)
        fingerprints[place] = row.fingerprint
    if is_due:
        for place, fingerprint in enumerate(fingerprints.tolist()):
            known = previous.unread.get(fingerprint)
            if known is not None and known.alert.state is AlertState.PENDING:
                looked_at[place] = answer.row(place, rule, identities)
    unread, transitions = dict(previous.unread), list[Transition]()
    for _, row in sorted(looked_at.items()):
        before = unread.get(row.fingerprint)
        unread[row.fingerprint], moved = matched(before, row, rule, now) if before else appeared(row, rule, now)
        transitions += [moved] if moved else []
    for gone in previous.unread.keys() - there:
        kept, moved = unmatched(previous[gone], rule, now, keep_firing=keep_firing, resolved=resolved)
        if kept:
            unread[gone] = kept
        else:
            del unread[gone]
        transitions += [moved] if moved else []
    # Who no longer pends may have been the first: until that would have fired, nothing depends on it.
    changed = [previous.pending_since, pending_since(unread[row.fingerprint] for row in looked_at.values())]
    since = pending_since(unread.values()) if is_due else min((at for at in changed if at), default=None)
    return Columns(rule, answer, fingerprints, unread, since), transitions


def _check_each_once(places: Places, answer: Answer, rule: Rule, identities: Identities) -> None:
    """RuleError where two rows have the labels of one row before."""
    seen, first = np.unique(places[places >= 0], return_index=True)
    known = np.flatnonzero(places >= 0)
    if len(seen) < len(known):
        again = np.delete(known, first)[0]
        raise twice(answer.row(int(again), rule, identities))
