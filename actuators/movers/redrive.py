"""Bringing dead letters back to their queue: a canary first, then at a rate, watched all the way.

It stops by itself when what was brought back dies again, or when those who did nothing wait longer for it. What it did
is in a file that is written before and after each batch: it can be stopped, killed, cancelled from elsewhere, and gone
on with. A message that was brought back once is left where it is if it dies again, unless the plan says ``again``.

After its canary a broker's own task may carry the rest (``by_task``; SQS' move tasks): it knows no filter, and takes
what died again as well. It is watched and ended like batches of ours.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from actuators.movers.base import TRACE, Message, Mover, Trace
from lake.errors import SojournError, UserError
from lake.files import write_atomically

State = Literal["canary", "running", "done", "stopped", "cancelled"]
#: Most messages of one batch, whatever the rate.
MOST = 200
#: How often a broker's own task is looked at (seconds).
TASK_LOOK = 1.0
#: How often quiet tenants' age may grow before it is believed that they suffer: as with limits, twice.
SEEN = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to bring back, and how carefully. Rates are messages/s, times seconds."""

    id: str
    broker: str
    source: str
    target: str
    tenants: tuple[str, ...] = ()
    header: tuple[str, str] | None = None
    older_than: float = 0.0
    newer_than: float = math.inf
    rate: float = 10.0
    canary: int = 10
    canary_seconds: float = 30.0
    most: int | None = None
    max_failed: float = 0.1
    quiet_seconds: float = 10.0
    subject: str | None = None
    layout: str | None = None
    by_task: bool = False
    again: bool = False

    def check(self) -> None:
        """UserError for a plan that makes no sense."""
        if not (math.isfinite(self.rate) and self.rate > 0 and self.canary >= 1 and self.canary_seconds >= 0):
            raise UserError("a redrive needs a rate above 0 and a canary of one message at least", "fix them")
        if self.source == self.target:
            raise UserError(f"{self.source} cannot be brought back to itself", "name the queue that it serves")
        if not 0 <= self.max_failed <= 1:
            raise UserError(f"max_failed is {self.max_failed:g}, no part of 1", "0.1 is a tenth")
        chosen = self.tenants or self.header or self.older_than > 0 or self.newer_than < math.inf or self.most
        if self.by_task and chosen:
            raise UserError("a task of the broker's takes all that is there, whatever is asked for", "do without it")

    def leaves(self, message: Message, now: float) -> str | None:
        """Why it stays where it is, in words that go behind a number; None: it is to be brought back."""
        trace = Trace.of(message.headers.get(TRACE))  # a spillover leaves one too, from another queue
        if trace is not None and trace.origin == self.source and not self.again:
            return "brought back before (--again takes these, too)"
        if self.tenants and message.tenant is None:
            return "naming no tenant"
        if self.tenants and message.tenant not in self.tenants:
            return "of other tenants"
        if self.header is not None and message.headers.get(self.header[0]) != self.header[1]:
            return f"without {self.header[0]}={self.header[1]}"
        if not self.older_than <= message.age(now) <= self.newer_than:
            return "of another age"
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. ``moving``: a batch of so many is under way, or was when it was killed."""

    plan: Plan
    state: State = "canary"
    moved: int = 0
    moving: int = 0
    died: int = 0
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self.state in ("done", "stopped", "cancelled")


class Book:
    """The redrives of one lake, a file each, below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: Progress) -> None:
        """Put it down."""
        write_atomically(self._path(progress.plan.id), json.dumps(asdict(progress), indent=1) + "\n")

    def read(self, id: str) -> Progress:
        """What is known of one; UserError where there is none."""
        try:
            told = json.loads(self._path(id).read_text(encoding="utf-8"))
            plan = told["plan"]
            header = None if plan["header"] is None else (plan["header"][0], plan["header"][1])
            plan = Plan(**plan | {"tenants": tuple(plan["tenants"]), "header": header})
            return Progress(**told | {"plan": plan})
        except FileNotFoundError:
            raise UserError(f"there is no redrive {id!r}", "see `sojourn redrive list`") from None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"what is known of redrive {id!r} cannot be read: {error}", "start another") from None

    def all(self) -> list[Progress]:
        """Every one, by id."""
        return [self.read(path.stem) for path in sorted(self._folder.glob("*.json"))]

    def cancel(self, id: str) -> None:
        """Ask whoever works on it, now or later, to stop."""
        self.read(id)
        self._path(id).with_suffix(".cancel").touch()

    def cancelled(self, id: str) -> bool:
        """Whether somebody asked for that."""
        return self._path(id).with_suffix(".cancel").exists()

    def _path(self, id: str) -> Path:
        if not id or not id.replace("-", "").isalnum():
            raise UserError(f"{id!r} is no redrive's id", "see `sojourn redrive list`")
        return self._folder / f"{id}.json"


class Far(Protocol):
    """How far a broker's own task is: messages that it has moved, and whether it still runs."""

    @property
    def moved(self) -> int: ...

    @property
    def runs(self) -> bool: ...


class Task(Protocol):
    """A broker's own task that brings everything back; SojournError where it fails."""

    def begin(self, rate: float) -> None:
        """Start it at so many messages/s."""
        ...

    def look(self) -> Far:
        """How far it is. It ends by itself soon after nobody has looked."""
        ...

    def end(self) -> None:
        """End it, if it runs."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What a redrive asks of the world: the mover, quiet tenants' age in seconds (None: unknown), the time, a wait that
    ends early, true, when it is to stop; the broker's own ``task`` where the plan wants that."""

    mover: Mover
    quiet_age: Callable[[], float | None]
    wait: Callable[[float], bool]
    now: Callable[[], float] = time.time
    task: Task | None = None


def run(progress: Progress, book: Book, world: World, told: Callable[[Progress], None]) -> Progress:
    """Go on with it to its end; ``told`` hears of each change of state. SojournError leaves it to be gone on with."""
    progress.plan.check()
    if progress.over and progress.state != "stopped":
        raise UserError(f"redrive {progress.plan.id} is {progress.state}: {progress.reason}", "start another")
    progress = replace(progress, state="canary", reason="", moving=0)
    book.write(progress)
    watch, last = _Watch(progress), ""
    while True:
        if progress.state != last:
            told(progress)
            last = progress.state
        if progress.over:
            return progress
        if book.cancelled(progress.plan.id):
            progress = _over(book, progress, *_CANCELLED)
            continue
        if world.task is not None and progress.state == "running":
            progress = _by_task(world.task, progress, book, world, watch)
            continue
        before = world.mover.waiting(progress.plan.source)
        progress, moved, left = _batch(progress, book, world)
        if moved == 0:
            progress = _over(book, progress, "done", f"{progress.moved} are back, {_rest(left, before)}")
            continue
        plan, canary = progress.plan, progress.state == "canary"
        if world.wait(plan.canary_seconds if canary else moved / plan.rate):
            progress = _over(book, progress, *_INTERRUPTED)
            continue
        died = max(0, world.mover.waiting(plan.source) - (before - moved))
        progress = replace(progress, died=progress.died + died)
        if (harm := watch.harm(progress, world)) is not None:
            progress = _over(book, progress, "stopped", harm)
        elif plan.most is not None and progress.moved >= plan.most:
            progress = _over(book, progress, "done", f"{progress.moved} are back, as many as were asked for")
        else:
            progress = replace(progress, state="running")
            book.write(progress)


_CANCELLED: tuple[State, str] = ("cancelled", "cancelled by the operator")
_INTERRUPTED: tuple[State, str] = ("stopped", "interrupted: `sojourn redrive resume` goes on")


class _Watch:
    """Whether what is brought back does harm, from ``begun`` on: what an operator has mended since counts no more."""

    def __init__(self, begun: Progress) -> None:
        self._begun = begun
        self._worse = 0

    def harm(self, progress: Progress, world: World) -> str | None:
        """Which, as one sentence; None: none is seen, or not often enough to be believed."""
        plan, age = progress.plan, world.quiet_age()
        self._worse = self._worse + 1 if age is not None and age > plan.quiet_seconds else 0
        died, moved = progress.died - self._begun.died, progress.moved - self._begun.moved
        if died > plan.max_failed * moved:
            return f"{died} of {moved} that were brought back are dead again, or others are"
        if self._worse >= SEEN or (self._worse and progress.state == "canary"):
            return f"quiet tenants wait {age:.1f} s, longer than {plan.quiet_seconds:g} s"
        return None


def _by_task(task: Task, progress: Progress, book: Book, world: World, watch: _Watch) -> Progress:
    """All that is left, by the broker's own task, to the task's end or until it is to stop."""
    plan, back, dead = progress.plan, progress.moved, progress.died
    before = world.mover.waiting(plan.source)
    if before == 0:
        return _over(book, progress, "done", f"{progress.moved} are back, nothing is left")
    task.begin(plan.rate)
    try:
        while True:
            interrupted = world.wait(TASK_LOOK)
            far = task.look()
            left = world.mover.waiting(plan.source)
            moved = min(far.moved, before) if far.runs else max(0, before - left)  # counts of the broker's are about so
            died = max(progress.died, dead + left - (before - moved))
            progress = replace(progress, moved=back + moved, died=died)
            book.write(progress)
            if not far.runs:
                return _over(book, progress, "done", f"{progress.moved} are back, by the broker's own task")
            if (harm := watch.harm(progress, world)) is not None:
                return _over(book, progress, "stopped", harm)
            if book.cancelled(plan.id):
                return _over(book, progress, *_CANCELLED)
            if interrupted:
                return _over(book, progress, *_INTERRUPTED)
    finally:
        task.end()


def _batch(progress: Progress, book: Book, world: World) -> tuple[Progress, int, Counter[str]]:
    """Where it is then, how many were moved, and how many were looked at and left, by the reason."""
    plan = progress.plan
    count = plan.canary if progress.state == "canary" else min(MOST, max(1, round(plan.rate)))
    if plan.most is not None:
        count = min(count, plan.most - progress.moved)
    book.write(replace(progress, moving=count))
    now, left = world.now(), Counter[str]()

    def chooses(one: Message) -> bool:
        why = plan.leaves(one, now)
        left.update([] if why is None else [why])
        return why is None

    moved = world.mover.move(plan.source, plan.target, chooses, count).moved
    progress = replace(progress, moved=progress.moved + moved, moving=0)
    book.write(progress)
    return progress, moved, left


def _rest(left: Counter[str], waiting: int) -> str:
    """What stays of ``waiting`` messages where nothing more was chosen, and why; SQS shows a part of a long queue."""
    if not left:
        return "nothing is left" if not waiting else f"none of {waiting} can be had now: others have them in hand"
    seen = left.total()
    told = f"{seen} of about {waiting} were looked at, none is chosen" if seen < waiting else "nothing chosen is left"
    return f"{told}: " + ", ".join(f"{count} {why}" for why, count in left.most_common())


def _over(book: Book, progress: Progress, state: State, reason: str) -> Progress:
    progress = replace(progress, state=state, reason=reason)
    book.write(progress)
    return progress


def mover_of(broker: Any, layout: str | None = None, subject: str | None = None, queues: tuple[str, ...] = ()) -> Mover:
    """The mover for a broker of ``[[collect.brokers]]``: ``layout`` is of Redis' queues, ``subject`` NATS'. Tenants are
    found as the collector finds them in ``queues``, the first of them that it has rules for.

    UserError where messages of its kind cannot be moved.
    """
    from actuators.movers.registry import KINDS

    kind = {"redis": layout or "redis_stream"}.get(broker.kind, broker.kind)
    if kind not in KINDS.places:
        raise UserError(f"messages of {broker.kind} cannot be moved", f"of {', '.join(KINDS.places)} they can")
    given = broker.model_dump()
    if kind == "rabbitmq":
        if given.get("amqp_url") is None:
            raise UserError(f"broker {broker.name!r} has no amqp_url, by which messages are moved", "set it")
        given["url"] = given["amqp_url"]
    if kind == "nats":
        given["subject"] = subject
        rules = {one["name"]: one["tenant"] for one in given["streams"]}
        if found := next((rules[name] for name in queues if name in rules), None):
            given["tenant"] = found
    empty = KINDS.chosen({"kind": kind, "name": "x"})
    known = type(empty).model_fields.keys() - {"kind", "timeout"}
    try:
        return KINDS.make(
            KINDS.chosen({"kind": kind} | {name: value for name, value in given.items() if name in known})
        )
    except ValueError as error:
        raise SojournError(f"broker {broker.name!r} cannot be used to move messages: {error}") from None


def task_of(broker: Any, plan: Plan, folder: Path) -> Any:
    """The broker's own task for a plan that wants one, put down in ``folder`` while it runs; to be closed.

    UserError where brokers of its kind have none.
    """
    from actuators.movers.sqs_task import SqsTask, SqsTaskSettings

    if broker.kind != "sqs":
        raise UserError(f"{broker.kind} has no task that moves messages by itself", "leave --by-task out; SQS has")
    given = {name: value for name, value in broker.model_dump().items() if name in SqsTaskSettings.model_fields}
    own = {"kind": "sqs_move_task", "name": f"redrive-{plan.id}", "target": plan.target}
    return SqsTask(SqsTaskSettings.model_validate(given | own), folder, plan.broker, plan.source)
