"""``sojourn maintain``: one round of upkeep over the lake, and what it did."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lake.errors import UserError
from sojourn.cli.options import ConfigOption, LakeOption, existing, part

if TYPE_CHECKING:
    from spark_analytics.maintenance.routine import Done
    from spark_analytics.maintenance.sizes import Size

#: A running analysis keeps the lake, too, for seconds at a time.
LOCK_SECONDS = 60.0


def maintain(
    config: ConfigOption = None,
    lake: LakeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    vacuum_hours: Annotated[
        int | None,
        typer.Option(min=1, help="Remove replaced files this old, in hours [default: [analyze] replaced_kept_hours]."),
    ] = None,
) -> None:
    """Roll history up, drop what is kept no longer, merge small files, remove replaced ones and old log entries."""
    settings, root = existing(config, lake)
    section = settings.section("analyze", part("spark_analytics.settings").AnalyzeSettings)
    retention = section.retention()
    store = part("lake.store").Lake(root)
    routine, size = part("spark_analytics.maintenance.routine"), part("spark_analytics.maintenance.sizes").size
    there = [name for name in part("lake.tables").TABLES if store.exists(name)]
    if not there:
        raise UserError(f"there is no lake at {root}", "name it with --lake, or run `sojourn demo` to make one")
    before = {name: size(store, name) for name in there}
    if dry_run:
        done, after = routine.preview(store, retention, vacuum_hours=vacuum_hours), before
    else:
        from rich.console import Console

        console = Console(stderr=True)
        with ExitStack() as stack:
            _take_turn(stack, routine.lock_path(root))
            status = stack.enter_context(console.status("maintaining"))
            done = routine.run_maintenance(
                store,
                retention,
                vacuum_hours=vacuum_hours,
                told=lambda doing, table: status.update(f"{doing} {table}"),
            )
        after = {name: size(store, name) for name in there}
    _show(done, before, after, dry_run=dry_run)


def _take_turn(stack: ExitStack, lock: Path) -> None:
    """Hold ``lock`` until ``stack`` ends, once the round that another process may be at is done."""
    only_one = part("lake.files").only_one
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            stack.enter_context(only_one(lock, "maintenance of this lake"))
            return
        except UserError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _show(done: list[Done], before: dict[str, Size], after: dict[str, Size], *, dry_run: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title="what would be done" if dry_run else None, title_justify="left")
    table.add_column("table")
    heads = ("files", "log files", "bytes", "rows less")
    for head in ("files", "merges", "log files", "to remove", "rows due") if dry_run else heads:
        table.add_column(head, justify="right")
    table.add_column("")
    for one in done:
        was, now = before[one.table], after[one.table]
        log = was.log_files - one.vacuumed.log_files if dry_run else now.log_files
        size = (
            _bytes(one.vacuumed.bytes)
            if dry_run
            else _step(_bytes(was.stored + was.log_bytes), _bytes(now.stored + now.log_bytes))
        )
        notes = [one.vacuumed.held] if one.vacuumed.held else []
        if one.days:
            notes.insert(0, f"{one.days} old days {'to drop' if dry_run else 'dropped'}")
        cells = [one.table, _step(f"{was.files:,}", f"{now.files:,}")]
        cells += [f"{one.merges:,}" if one.merges else ""] if dry_run else []
        cells += [_step(f"{was.log_files:,}", f"{log:,}"), size, f"{one.rows:,}" if one.rows else "", "; ".join(notes)]
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _step(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
