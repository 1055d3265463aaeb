"""``sojourn redrive``: dead letters back to their queue, a canary first, watched, and put down in the journal."""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lake.errors import SojournError, UserError
from lake.stopping import stopping
from lake.visible import visible
from sojourn.cli.options import ConfigOption, JsonOption, LakeOption, existing, part, say_json

if TYPE_CHECKING:
    from actuators.movers.redrive import Book, Plan, Progress

app = typer.Typer(no_args_is_help=True, help="Bring dead letters back to their queue, carefully; cancel it; go on.")


@app.command()
def start(
    source: Annotated[str, typer.Argument(help="The dead-letter queue, as the broker names it.")],
    target: Annotated[str, typer.Argument(help="The queue that they go back to.")],
    broker: Annotated[str, typer.Option("--broker", help="The broker, as [[collect.brokers]] names it.")],
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Of this tenant alone; may be repeated.")] = None,
    header: Annotated[str | None, typer.Option("--header", help="name=value: with this header alone.")] = None,
    older_than: Annotated[float, typer.Option(min=0, help="At least so old, in seconds.")] = 0.0,
    newer_than: Annotated[float | None, typer.Option(min=0, help="At most so old, in seconds.")] = None,
    rate: Annotated[float, typer.Option(help="Messages/s after the canary.")] = 10.0,
    canary: Annotated[int, typer.Option(min=1, help="How many go first.")] = 10,
    canary_seconds: Annotated[float, typer.Option(min=0, help="How long these are watched.")] = 30.0,
    most: Annotated[int | None, typer.Option(min=1, help="No more than so many in all.")] = None,
    max_failed: Annotated[float, typer.Option(help="Stop when more than this part dies again.")] = 0.1,
    quiet_seconds: Annotated[float, typer.Option(help="Stop when quiet tenants wait longer, seen twice.")] = 10.0,
    subject: Annotated[
        str | None, typer.Option(help="NATS: the subject that they go to; {tenant} and {subject} are replaced.")
    ] = None,
    layout: Annotated[str | None, typer.Option(help="Redis: redis_stream or redis_list.")] = None,
    by_task: Annotated[
        bool, typer.Option("--by-task", help="SQS: after the canary SQS itself moves all that is left.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were brought back before, and died.")] = False,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Bring them back: one canary batch, then at the rate; ends by itself when it does harm."""
    redrive = part("actuators.movers.redrive")
    plan = redrive.Plan(
        uuid.uuid4().hex[:12], broker, source, target, tuple(tenant or ()), _header(header), older_than,
        float("inf") if newer_than is None else newer_than, rate, canary, canary_seconds, most, max_failed,
        quiet_seconds, subject, layout, by_task, again,
    )  # fmt: skip
    plan.check()
    _work(redrive.Progress(plan), config, lake)


@app.command()
def resume(
    redrive_id: Annotated[str, typer.Argument(help="As `redrive list` names it.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Go on with one that was stopped, or killed, with a canary again."""
    _, root = existing(config, lake)
    _work(_book(root).read(redrive_id), config, lake)


@app.command()
def cancel(
    redrive_id: Annotated[str, typer.Argument(help="As `redrive list` names it.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """End one for good, wherever it runs; what is back stays back."""
    _, root = existing(config, lake)
    book, about = _book(root), visible(redrive_id)
    known = book.read(redrive_id)
    if known.state in ("done", "cancelled"):
        raise UserError(f"redrive {about} is {known.state} already", "nothing is left to cancel")
    book.cancel(redrive_id)
    if _works(root, redrive_id):
        typer.echo(f"cancelled: {about}; a batch that is under way ends first")
        return
    ended = replace(book.read(redrive_id), state="cancelled", reason="cancelled by the operator")
    book.write(ended)
    _Journal(root, ended.plan).add(ended)
    typer.echo(f"cancelled: {about}")


@app.command("list")
def list_(as_json: JsonOption = False, config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Show every redrive: how far it is, and why it ended."""
    _, root = existing(config, lake)
    there = _book(root).all()
    if not there and not as_json:
        typer.echo("nothing was ever redriven")
    for one in there:
        if as_json:
            newest = None if one.plan.newer_than == float("inf") else one.plan.newer_than  # JSON has no infinity
            say_json(asdict(one) | {"plan": asdict(one.plan) | {"newer_than": newest}})
            continue
        if not one.over and not _works(root, one.plan.id):
            one = replace(one, reason="nobody works on it: `sojourn redrive resume` goes on, `cancel` ends it")
        typer.echo(visible(_line(one)))


def _line(one: Progress) -> str:
    plan = one.plan
    state = f"{one.state}, {one.moved} back, {one.died} dead again"
    return f"{plan.id}  {plan.broker}/{plan.source} → {plan.target}  {state}  {one.reason}".rstrip()


def _work(progress: Progress, config: Path | None, lake: Path | None) -> None:
    redrive = part("actuators.movers.redrive")
    settings, root = existing(config, lake)
    plan = progress.plan
    brokers = settings.section("collect", part("collectors.settings").CollectSettings).brokers
    broker = next((one for one in brokers if one.name == plan.broker), None)
    if broker is None:
        raise UserError(f"[[collect.brokers]] has no broker {plan.broker!r}", "name one that is there")
    book, journal = _book(root), _Journal(root, plan)
    with stopping() as stop:
        mover = redrive.mover_of(broker, plan.layout, plan.subject, (plan.source, plan.target))
        task = redrive.task_of(broker, plan, root / "state" / "control") if plan.by_task else None
        world = redrive.World(mover, lambda: _quiet_wait(root, plan), stop.wait, task=task)

        def told(one: Progress) -> None:
            typer.echo(visible(_line(one)))
            journal.add(one)

        with (
            _alone(root, plan.id),
            closing(task) if task is not None else nullcontext(),
        ):
            if task is not None:
                task.end()  # one that an earlier process left is not to go on beside a canary
            try:
                redrive.run(progress, book, world, told)
            except UserError:
                raise
            except SojournError as error:
                reason = f"{error}: `sojourn redrive resume` goes on"
                failed = replace(book.read(plan.id), state="stopped", reason=reason)
                book.write(failed)
                journal.add(failed)
                raise


def _alone(root: Path, redrive_id: str) -> AbstractContextManager[None]:
    """Held by who works on it."""
    held: AbstractContextManager[None] = part("lake.files").only_one(
        book_folder(root) / f"{redrive_id}.lock", f"redrive {redrive_id}"
    )
    return held


def _works(root: Path, redrive_id: str) -> bool:
    """Whether a process works on it."""
    try:
        with _alone(root, redrive_id):
            return False
    except UserError:
        return True


def book_folder(root: Path) -> Path:
    """Where a lake's redrives are put down."""
    return root / "state" / "redrives"


def _book(root: Path) -> Book:
    book: Book = part("actuators.movers.redrive").Book(book_folder(root))
    return book


def _header(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"--header {text!r} is no name=value", "as in --header error=timeout")
    return name, value


def _quiet_wait(root: Path, plan: Plan) -> float | None:
    """How long tenants that nothing is brought back of, and that are not noisy, wait for their first attempt, as
    policies see it; None where the queue is not in the metrics."""
    target, query = part("alerts.control.active_limit").Target, part("lake.reader").Reader(root, pinned=True).query
    only = part("alerts.control.statements").of_queues({plan.target})
    told = query(f"SELECT DISTINCT broker, queue, tenant FROM tenant_backlog_now {only} WHERE noisy").to_pylist()
    noisy = {row["tenant"] for row in told if (row["broker"], row["queue"]) == (plan.broker, plan.target)}
    # Nobody's name, where nothing is brought back of anybody alone: all who are not noisy are beside it.
    apart = {target(plan.broker, plan.target, tenant) for tenant in noisy.union(plan.tenants) or {""}}
    seconds = part("alerts.control.spans").RECENT_RANGE[1]
    seen = part("alerts.control.observe").observe(query, apart, datetime.now(UTC), seconds)
    return next((float(one.quiet_wait) for one in seen.values()), None)


class _Journal:
    """The rows of one redrive in the table of actions."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self._lake = part("lake.store").Lake(root)
        self._plan = plan

    def add(self, one: Progress) -> None:
        """One row for each change of its state."""
        plan, tables = self._plan, part("lake.tables")
        given = {"source": plan.source, "rate": f"{plan.rate:g}", "canary": str(plan.canary)}
        given |= {"moved": str(one.moved), "died": str(one.died), "tenants": ",".join(plan.tenants)}
        row = {
            "at": datetime.now(UTC), "action_id": plan.id, "idempotency_key": uuid.uuid4().hex, "rule": "",
            "policy": "redrive", "actuator": "mover", "broker": plan.broker, "queue": plan.target,
            "tenant": plan.tenants[0] if len(plan.tenants) == 1 else None, "decision": "redrive", "dry_run": False,
            "before": None, "after": None if one.over else plan.rate, "valid_until": None,
            "inputs": list(given.items()), "reason": one.reason or f"{one.state}: from {plan.source}",
            "outcome": "applied",
        }  # fmt: skip
        import pyarrow as pa

        self._lake.append("actions", pa.Table.from_pylist([row], schema=tables.ACTIONS.schema))
