"""Inhibition: while one alert fires, others that follow from it are not told.

Source of the semantics: prometheus/alertmanager ``inhibit/inhibit.go``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alerts.routing.matchers import Matchers, all_match, parse

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Inhibition:
    """Alerts that meet ``target`` are inhibited by a firing one that meets ``source`` with the same ``equal`` labels.

    A label that is absent is the same as an empty one.
    """

    source: Matchers
    target: Matchers
    equal: tuple[str, ...] = ()

    def key(self, labels: Labels) -> tuple[str, ...]:
        """What a source and its targets share."""
        return tuple(labels.get(name, "") for name in self.equal)

    @classmethod
    def of(cls, source: Iterable[str], target: Iterable[str], equal: Iterable[str]) -> Inhibition:
        """From matchers as text. ValueError."""
        return cls(tuple(map(parse, source)), tuple(map(parse, target)), tuple(equal))


#: What ships: of a broker of which nothing comes any more, its queues have nothing new to tell.
SHIPPED = (Inhibition.of(['alertname="StaleData"'], ['queue!=""'], ["broker"]),)


def inhibited(firing: Mapping[str, Labels], rules: Sequence[Inhibition]) -> dict[str, tuple[str, ...]]:
    """By fingerprint, which of the ``firing`` alerts are inhibited, and by the fingerprints of which others.

    An alert that is both source and target of a rule is inhibited by none that is both: else each would silence the
    other, and itself.
    """
    found: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        sources: dict[tuple[str, ...], list[tuple[str, bool]]] = {}
        for fingerprint, labels in firing.items():
            if all_match(rule.source, labels):
                both = all_match(rule.target, labels)
                sources.setdefault(rule.key(labels), []).append((fingerprint, both))
        if not sources:
            continue
        for fingerprint, labels in firing.items():
            by = sources.get(rule.key(labels))
            if by is None or not all_match(rule.target, labels):
                continue
            is_source = all_match(rule.source, labels)
            inhibitors = tuple(one for one, both in by if one != fingerprint and not (both and is_source))
            if inhibitors:
                found[fingerprint] = (*found.get(fingerprint, ()), *inhibitors)
    return found
