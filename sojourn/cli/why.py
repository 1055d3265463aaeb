"""``sojourn why QUEUE``: what makes its messages wait, in parts that add up."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lake.errors import UserError
from lake.visible import visible, visible_json, visible_lines
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, terminal_width

if TYPE_CHECKING:
    from dashboard.services.keys import QueueKey
    from lake.foretell import Foretold
    from lake.why import Part, Told
    from lake.why.reading import Query


#: Queues that are named to who names none, or one that nobody knows; tenants that a reading told of.
NAMED = 10


class Form(StrEnum):
    """How to say it."""

    TEXT = "text"
    JSON = "json"


def why(
    queue: Annotated[
        str | None, typer.Argument(help="The queue: its name, or broker/queue, or broker/queue/subscriber.")
    ] = None,
    minutes: Annotated[int, typer.Option(min=2, help="How far back to look for when it began.")] = 60,
    format: Annotated[Form, typer.Option("--format", help="Text for eyes, JSON for programs.")] = Form.TEXT,
    json_too: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Show the statements behind the figures, too.")] = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Say why first attempts on a queue wait longer than they did: how much by what, who sends more, what comes."""
    _, root = existing(config, lake)
    keys, tell = part("dashboard.services.keys"), part("lake.why").tell
    reader = part("lake.reader").Reader(root)

    def query(statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = reader.query(statement).to_pylist()
        return rows

    part("lake.state").require_finished(root, ("queue_health_now",))
    rows = query("SELECT broker, queue, subscriber FROM queue_health_now")
    names = keys.short_names(keys.QueueKey.of(row) for row in rows)
    key = None if queue is None else keys.resolve(queue, names)
    if key is None:
        what = "say which queue: `sojourn why QUEUE`" if queue is None else f"no queue is called {queue!r}"
        raise UserError(what, _there_are(sorted(names.values())))
    told = tell(query, key.broker, key.queue, key.subscriber, span=minutes * 60)
    if told is None:
        raise UserError(f"nothing is known of {queue!r} any more", "try again")
    target = part("lake.definitions").Definitions.load(root).target_seconds
    ahead = coming(query, key, told, target)
    if json_too or format is Form.JSON:
        print(visible_json(json.dumps(as_json(key, told, ahead, target), ensure_ascii=False)))
        return
    _print(key, told)
    if told.rise is None:
        print(f"Now: {visible(_now(query, key, names))}.")
        if read := _read_tenants(root, key):
            print(f"Of each tenant the broker counts {visible(read)}.")
    if said := part("dashboard.services.forecast").in_short(ahead, told.as_of, target):
        print(f"{said}.")
    if sql:
        for name, text in told.sql.items():
            print(f"\n-- {name}\n{visible_lines(text.strip())}")


def _now(query: Query, key: QueueKey, names: Mapping[QueueKey, str]) -> str:
    """How the queue stands, as the overview says it: what can be said where nothing can of why."""
    asked, overview = part("dashboard.queries"), part("dashboard.services.overview")
    health, totals, noisy = ([dict(row) for row in query(sql)] for sql in (asked.HEALTH, asked.TOTALS, asked.NOISY))
    cards = overview.queue_cards(health, totals, noisy, (), datetime.now(UTC), names)
    found: str = next((card.sentence for card in cards if card.key == key), "gone")
    return found


def _read_tenants(root: Path, key: QueueKey) -> str:
    """What the broker's newest reading tells of the largest tenants, where no message events do; else nothing."""
    now = datetime.now(UTC)
    shares = part("lake.shares").newest_shares(root, key.broker, key.queue, key.subscriber, now)
    if shares is None:
        return ""
    said = part("dashboard.services.say")
    told = [f"{one['tenant']} {said.count(one['depth'])} waiting{_oldest(one, said)}" for one in shares.tenants[:NAMED]]
    more = len(shares.tenants) - NAMED
    return ", ".join(told) + (f", and {more:,} more" if more > 0 else "")


def _oldest(share: Mapping[str, Any], said: Any) -> str:
    seconds = share["oldest_age_seconds"]
    return "" if seconds is None or not share["depth"] else f" (oldest {said.duration(seconds)})"


def _there_are(names: Sequence[str]) -> str:
    """Which queues can be named."""
    if not names:
        return "none has been seen yet; `sojourn doctor` says why"
    more = f" and {len(names) - NAMED:,} more, which `sojourn top` shows" if len(names) > NAMED else ""
    return f"there are: {', '.join(names[:NAMED])}{more}"


def coming(query: Query, key: QueueKey, told: Told, target: float) -> Foretold:
    """What is foretold of the queue that is ``told`` of, as of the same instant; ``target`` in seconds."""
    ahead = part("lake.foretell")
    asked = ahead.Asked(key.broker, key.queue, key.subscriber, told.as_of, told.ready, told.margin)
    found: Foretold = ahead.foretell(query, asked, target)
    return found


def as_json(key: QueueKey, told: Told, ahead: Foretold, target: float) -> dict[str, Any]:
    """Everything that is known, for programs: seconds, messages and messages a second; null is unknown."""
    rise, behind = told.rise, part("lake.why").behind
    return {
        "broker": key.broker,
        "queue": key.queue,
        "subscriber": key.subscriber or None,
        "as_of": told.as_of.isoformat(),
        "ready": told.ready,
        "coverage": told.coverage,
        "reason": told.reason or None,
        "rise": None
        if rise is None
        else {
            "begun": datetime.fromtimestamp(rise.begun, UTC).isoformat(),
            "wait_before_seconds": rise.wait_before,
            "wait_seconds": rise.wait,
            "rise_seconds": rise.seconds,
            "starts_per_second": rise.pace,
            "parts": [
                {
                    "cause": each.cause.value,
                    "seconds": each.seconds,
                    "messages": each.messages,
                    "sql": behind(each.cause),
                }
                | _measures(each, told.partition)
                for each in rise.parts
            ],
        },
        "limits": [
            {
                "tenant": one.tenant,
                "actuator": one.actuator,
                "since": datetime.fromtimestamp(one.begun, UTC).isoformat(),
                "until": datetime.fromtimestamp(one.ended, UTC).isoformat(),
                "per_second": None if one.in_queue else one.rate,
                "waits_in_queue": one.in_queue,
            }
            for one in told.holds
        ],
        "tenants": [{"tenant": t.tenant, "before_per_second": t.before, "per_second": t.since} for t in told.tenants],
        "foretold": part("dashboard.services.forecast").as_json(ahead, target),
        "sql": dict(told.sql),
    }


def _measures(each: Part, partition: str) -> dict[str, Any]:
    if each.now is None:
        return {}
    if each.cause is part("lake.why").Cause.PARTITION:
        return {"partition": partition, "of_arrivals": each.before, "of_waiting": each.now}
    return {"before": each.before, "now": each.now}


def _print(key: QueueKey, told: Told) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    words = part("dashboard.services.why")
    print(f"{visible(key.full)}: {words.headline(told)}")
    if told.rise is None or not told.rise.parts:
        return
    table = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for line in words.lines(told):
        table.add_row(Text(line.cause), Text(line.words), Text(visible(line.because, 400)))
    text = io.StringIO()
    Console(file=text, width=terminal_width() or 80, no_color=True).print(table)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
    for note in words.notes(told):
        print(visible(note))
