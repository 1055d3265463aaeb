"""What a broker will tell, found by reading it once: which numbers are known of its queues, and why others are not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lake.errors import SojournError
from sojourn.cli.options import part

#: Seconds in which a broker must have been read once.
READ_SECONDS = 20.0
#: Columns of samples that are told of, by the words for them.
COLUMNS = {
    "depth": "depth",
    "in flight": "in_flight",
    "delayed": "delayed",
    "retries": "retrying",
    "age": "oldest_age_seconds",
    "age of first attempts": "oldest_first_attempt_age_seconds",
    "consumers": "consumers",
    "messages acknowledged": "acked_total",
}
#: Words for what is 0 of a queue that holds nothing, whether or not it will be told once something waits there.
_OF_MESSAGES = frozenset({"age", "age of first attempts"})


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Of one broker's queues: what is known of any, why the rest is not, which could not be read, how many there are.

    ``unknown`` is word → the reason that most of the queues have.
    """

    queues: int
    dead_letters: int
    known: tuple[str, ...]
    unknown: dict[str, str]
    unread: dict[str, str]


def read_once(settings: Any, broker: Any) -> Sequence[Any]:
    """Samples of one reading of ``broker``; ``settings`` are the whole section. SojournError where it cannot be read.

    Nothing is written anywhere: RabbitMQ's probe, which declares a queue, is left out.
    """
    if getattr(broker, "amqp_url", None):
        broker = broker.model_copy(update={"amqp_url": None})
    context = part("collectors.context").Context(
        settings, cast(Any, None), part("collectors.selfmetrics").SelfMetrics(), part("collectors.board").Board()
    )
    sampler = part("collectors.sampler").Sampler
    made = part("collectors.registry").factory(broker.kind)(broker.model_copy(update={"sample": True}), context)
    source = next(one.source for one in made if isinstance(one, sampler))

    async def work() -> Sequence[Any]:
        try:
            async with asyncio.timeout(READ_SECONDS):
                await source.open()
                return cast(Sequence[Any], await source.read())
        except TimeoutError:
            raise SojournError(f"it was not read within {READ_SECONDS:g} s") from None
        finally:
            await source.close()

    return asyncio.run(work())


def knowledge(samples: Sequence[Any]) -> Knowledge:
    """What ``samples`` of one reading tell."""
    was_read = part("collectors.samples").was_read
    unread = {one.queue: next(iter(one.unavailable.values()), "unknown") for one in samples if not was_read(one)}
    queues = [one for one in samples if one.dead_letter_for is None and was_read(one)]
    holding = [one for one in queues if one.depth or one.in_flight] or queues
    known, unknown = [], {}
    for word, column in COLUMNS.items():
        telling = holding if word in _OF_MESSAGES else queues
        if any(getattr(one, column) is not None for one in telling):
            known.append(word)
        elif telling:
            reasons = Counter(one.unavailable.get(column, "not told") for one in telling)
            unknown[word] = reasons.most_common(1)[0][0]
    if any(one.tenants is not None for one in queues):
        known.append("tenants")
    elif queues:
        told = next((one.unavailable["tenants"] for one in queues if "tenants" in one.unavailable), None)
        unknown["tenants"] = (
            told or "no rule finds one in samples (docs/brokers/tenants.md); a tap, spans or our client do"
        )
    dead = sum(one.dead_letter_for is not None for one in samples)
    return Knowledge(len(queues), dead, tuple(known), unknown, unread)


def told(found: Knowledge) -> Iterator[tuple[bool, str]]:
    """(whether it is a trouble, what is said) for each line about one broker."""
    if found.queues:
        letters = f", {found.dead_letters} of dead letters" if found.dead_letters else ", none of dead letters"
        yield False, f"{found.queues} queue{'' if found.queues == 1 else 's'}{letters}; known: {', '.join(found.known)}"
    elif not found.unread:
        yield True, "no queue is there, or none that this user may see"
    if found.unknown:
        yield False, "unknown: " + "; ".join(f"{word} – {why}" for word, why in found.unknown.items())
    if found.unread:
        name, why = next(iter(found.unread.items()))
        more = f", and {len(found.unread) - 1} more" if len(found.unread) > 1 else ""
        yield True, f"cannot be read: {name} – {why}{more}"
