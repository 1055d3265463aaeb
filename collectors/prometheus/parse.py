"""From a page of metrics to samples, by a recipe. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from brokers.tenants import Message, Rule, tenant_of
from collectors.broker import matching
from collectors.prometheus.recipes import Recipe
from collectors.samples import METRIC_NAMES, NO_LOG, UNSPLIT, Sample, TenantShare
from lake.errors import SojournError

#: Queue and subscriber.
Key = tuple[str, str | None]
_AGES = frozenset({"oldest_age_seconds"})
_NOT_THERE = "the metrics do not tell it of this queue"
_UNTOLD = {
    **dict.fromkeys(METRIC_NAMES, "no metric of the recipe tells it"),
    **NO_LOG,
    **UNSPLIT,
}


class NotMetrics(SojournError):
    """What was answered is no page of metrics."""


def read(page: str, recipe: Recipe) -> tuple[dict[Key, dict[str, float]], dict[str, float]]:
    """(queue, subscriber) → column → value; queue → its own dead letters. NotMetrics if the page is none.

    A value that is no number (NaN), or below zero, is not told.
    """
    wanted = {metric: (column, rank) for column, names in recipe.columns.items() for rank, metric in enumerate(names)}
    cut = re.compile(recipe.partition)
    found: dict[Key, dict[str, tuple[int, float]]] = {}
    dead: dict[str, float] = {}
    try:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    except (ValueError, IndexError, KeyError) as error:
        raise NotMetrics(f"the answer is no page of metrics: {error}") from None
    for sample in samples:
        queue = sample.labels.get(recipe.queue)
        if not queue or queue in recipe.nobody or not math.isfinite(sample.value) or sample.value < 0:
            continue
        queue = cut.sub("", queue)
        if sample.name == recipe.dead:
            dead[queue] = dead.get(queue, 0.0) + sample.value
        if sample.name not in wanted:
            continue
        column, rank = wanted[sample.name]
        key = queue, sample.labels.get(recipe.subscriber) if recipe.subscriber else None
        values = found.setdefault(key, {})
        before_rank, before = values.get(column, (rank, None))
        if before is None or rank < before_rank:
            values[column] = rank, sample.value
        elif rank == before_rank:
            values[column] = rank, max(before, sample.value) if column in _AGES else before + sample.value
    return {key: {column: value for column, (_, value) in values.items()} for key, values in found.items()}, dead


def samples(
    page: str,
    recipe: Recipe,
    now: int,
    *,
    queues: Sequence[str] = (),
    dead_letters: Mapping[str, str] | None = None,
    rules: Sequence[Rule] = (),
    staleness: float = 0.0,
) -> list[Sample]:
    """A sample of each queue and subscriber that ``page`` tells of, read at ``now`` (microseconds)."""
    found, dead = read(page, recipe)
    serves = dead_letters or {}
    made = [
        _sample(key, values, recipe, now, serves.get(key[0]), rules, staleness)
        for key, values in found.items()
        if not queues or matching(key[0], queues)
    ]
    made += [
        _dead(queue, number, now, staleness) for queue, number in dead.items() if not queues or matching(queue, queues)
    ]
    return made


def _sample(
    key: Key,
    values: Mapping[str, float],
    recipe: Recipe,
    now: int,
    serves: str | None,
    rules: Sequence[Rule],
    staleness: float,
) -> Sample:
    queue, subscriber = key
    told: dict[str, Any] = {}
    missing = _UNTOLD | dict(recipe.unknown)
    for column in recipe.columns:
        lacking = [other for other in recipe.within.get(column, ()) if other not in values]
        if column not in values:
            missing[column] = _NOT_THERE
        elif lacking:
            missing[column] = f"its metric counts {', '.join(lacking)} as well, which the metrics do not tell"
        else:
            value = values[column] - sum(values[other] for other in recipe.within.get(column, ()))
            told[column] = max(0.0, value) if column in _AGES else max(0, round(value))
    if "oldest_age_seconds" not in told and told.get("depth") == 0 and told.get("in_flight") == 0:
        told["oldest_age_seconds"] = 0.0
    if serves is not None:
        told["dead_letter_for"] = serves
    return Sample(
        queue,
        now,
        subscriber,
        queue_type=recipe.title,
        staleness_seconds=staleness,
        unavailable=_reasons(missing, {*told, "queue_type", "staleness_seconds", "dead_letter_for"}),
        tenants=_tenants(queue, told, rules),
        **told,
    )


def _reasons(missing: Mapping[str, str], told: Iterable[str]) -> dict[str, str]:
    known = set(told)
    return {column: why for column, why in missing.items() if column not in known}


def _tenants(queue: str, told: Mapping[str, Any], rules: Sequence[Rule]) -> tuple[TenantShare, ...] | None:
    """Where its name says whose a queue is, all of it is theirs."""
    if not rules:
        return None
    name = tenant_of(rules, Message(queue=queue)) or "unknown"
    columns = ("depth", "in_flight", "delayed", "oldest_age_seconds")
    return (TenantShare(name, **{column: told.get(column) for column in columns}),)


def _dead(queue: str, number: float, now: int, staleness: float) -> Sample:
    """Dead letters that a queue keeps in itself."""
    told = {"depth", "queue_type", "staleness_seconds", "dead_letter_for"}
    return Sample(
        f"{queue}/$deadletterqueue",
        now,
        depth=round(number),
        dead_letter_for=queue,
        queue_type="dead letters",
        staleness_seconds=staleness,
        unavailable=_reasons(_UNTOLD, told),
    )
