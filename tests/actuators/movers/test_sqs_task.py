"""SQS' own move tasks on a server of its protocol: a redrive by one, watched, ended, and reaped when nobody is left."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actuators.base import Refused
from actuators.movers.redrive import Book, Plan, Progress, World, mover_of, run, task_of
from actuators.undo_log import UndoLog
from collectors.settings import CollectSettings
from lake.errors import UserError
from lake.store import Lake
from sojourn.cli import main
from tests.support.elasticmq import ElasticMq
from tests.support.waiting import wait_until

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticMq]:
    with ElasticMq(tmp_path_factory.mktemp("elasticmq")) as server:
        yield server


@dataclasses.dataclass
class Queues:
    """A queue and its dead-letter queue, which holds ``dead`` messages."""

    server: ElasticMq
    home: str
    dead: str

    def count(self, queue: str) -> int:
        address = self.server.address(queue)
        told = self.server.ask("GetQueueAttributes", QueueUrl=address, AttributeNames=["All"])["Attributes"]
        return int(told["ApproximateNumberOfMessages"])

    def tasks(self) -> list[dict[str, Any]]:
        address = self.server.address(self.dead)
        arn = self.server.ask("GetQueueAttributes", QueueUrl=address, AttributeNames=["QueueArn"])["Attributes"]
        found = self.server.ask("ListMessageMoveTasks", SourceArn=arn["QueueArn"], MaxResults=10).get("Results", [])
        return [one for one in found if one["Status"] == "RUNNING"]


@pytest.fixture
def queues(server: ElasticMq) -> Queues:
    number = next(NUMBERS)
    made = Queues(server, f"home{number}", f"dead{number}")
    server.make(made.dead)
    server.make(made.home, RedrivePolicy=server.redrive_to(made.dead))
    server.send(made.dead, 40)
    return made


@dataclasses.dataclass
class Case:
    """One redrive; ``meanwhile`` runs at each wait, which is none."""

    broker: Any
    folder: Path
    queues: Queues
    told: list[Progress] = dataclasses.field(default_factory=list)

    def plan(self, **changes: Any) -> Plan:
        found = Plan("r1", "mq", self.queues.dead, self.queues.home, rate=20.0, canary=2, canary_seconds=0.1)
        return dataclasses.replace(found, by_task=True, **changes)

    def run(self, plan: Plan, meanwhile: Callable[[int], bool | None] = lambda _: None, age: float = 0.0) -> Progress:
        waits = itertools.count(1)

        def wait(_: float) -> bool:
            return bool(meanwhile(next(waits)))

        task = task_of(self.broker, plan, self.folder / "control")
        try:
            world = World(mover_of(self.broker), lambda: age, wait, task=task)
            return run(Progress(plan), Book(self.folder / "redrives"), world, self.told.append)
        finally:
            task.close()


@pytest.fixture
def case(queues: Queues, tmp_path: Path) -> Case:
    settings = CollectSettings.model_validate({"brokers": [queues.server.settings()]})
    return Case(settings.brokers[0], tmp_path, queues)


def test_after_the_canary_sqs_itself_brings_all_back(case: Case, queues: Queues) -> None:
    ended = case.run(case.plan(rate=500.0))
    assert (ended.state, ended.moved, ended.died) == ("done", 40, 0), ended
    assert (queues.count(queues.home), queues.count(queues.dead), queues.tasks()) == (40, 0, [])
    assert [one.state for one in case.told] == ["canary", "running", "done"]
    undo_log = UndoLog(case.folder / "control")
    assert (undo_log.held(), undo_log.settings()) == ([], {}), "nothing is left to be ended"
    undo_log.close()


def test_it_is_cancelled_when_what_came_back_dies_again(case: Case, queues: Queues) -> None:
    def dies(number: int) -> None:
        if number > 1:
            wait_until(lambda: queues.count(queues.home) > 5, "the task to move some")
            queues.server.send(queues.dead, 20)

    ended = case.run(case.plan(rate=20.0), dies)
    assert ended.state == "stopped" and "dead again" in ended.reason
    assert queues.tasks() == [] and queues.count(queues.dead) > 20, "what was not moved yet stays"


def test_it_is_cancelled_when_quiet_tenants_wait_by_the_operator_and_when_interrupted(
    case: Case, queues: Queues
) -> None:
    slow = case.plan(rate=1.0, quiet_seconds=5.0, id="r2")
    ages = iter([0.0, *[9.0] * 9])
    task = task_of(case.broker, slow, case.folder / "control")
    world = World(mover_of(case.broker), lambda: next(ages), lambda _: False, task=task)
    ended = run(Progress(slow), Book(case.folder / "redrives"), world, case.told.append)
    task.close()
    assert ended.state == "stopped" and "9.0 s" in ended.reason and queues.tasks() == []
    book = Book(case.folder / "redrives")
    ended = case.run(case.plan(rate=1.0, id="r3"), lambda number: book.cancel("r3") if number == 2 else None)
    assert ended.state == "cancelled" and queues.tasks() == []
    ended = case.run(case.plan(rate=1.0, id="r4"), lambda number: number == 2)
    assert ended.state == "stopped" and "resume" in ended.reason and queues.tasks() == []


def test_a_task_of_somebody_elses_is_left_alone(case: Case, queues: Queues) -> None:
    arn = {
        name: queues.server.ask(
            "GetQueueAttributes", QueueUrl=queues.server.address(name), AttributeNames=["QueueArn"]
        )["Attributes"]["QueueArn"]
        for name in (queues.home, queues.dead)
    }
    queues.server.ask(
        "StartMessageMoveTask",
        SourceArn=arn[queues.dead],
        DestinationArn=arn[queues.home],
        MaxNumberOfMessagesPerSecond=1,
    )
    with pytest.raises(Refused, match="not by us"):
        case.run(case.plan())
    assert len(queues.tasks()) == 1


_CHILD = """
import json, sys, threading
from pathlib import Path
from actuators.movers import sqs_task
from actuators.movers.redrive import Book, Plan, Progress, World, mover_of, run, task_of
from collectors.settings import CollectSettings
sqs_task.LEASE_SECONDS = 3.0
told = json.loads(sys.argv[1])
(broker,) = CollectSettings.model_validate({"brokers": [told["broker"]]}).brokers
folder = Path(told["folder"])
plan = Plan("k1", "mq", told["dead"], told["home"], rate=1.0, canary=1, canary_seconds=0.0, by_task=True)
world = World(mover_of(broker), lambda: 0.0, threading.Event().wait, task=task_of(broker, plan, folder / "control"))
run(Progress(plan), Book(folder / "redrives"), world, lambda progress: print(progress.state, flush=True))
"""


def test_of_a_redrive_that_was_killed_the_reaper_cancels_the_task(
    case: Case, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.server.send(queues.dead, 160)
    told = {"broker": queues.server.settings(), "folder": str(case.folder), "dead": queues.dead, "home": queues.home}
    child = subprocess.Popen([sys.executable, "-c", _CHILD, json.dumps(told)], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(queues.tasks()) == 1, "the task to run", seconds=60)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    wait_until(lambda: queues.tasks() == [], "the reaper to cancel it", seconds=120)
    log = case.folder / "control" / "reaper.log"
    wait_until(lambda: log.exists() and "reverted" in log.read_text(), "the reaper to say so", seconds=60)
    assert queues.count(queues.dead) > 0, "it would have gone on for minutes"
    progress = Book(case.folder / "redrives").read("k1")
    assert progress.state == "running" and not progress.over
    ended = case.run(dataclasses.replace(progress.plan, rate=500.0))
    assert ended.state == "done" and queues.count(queues.dead) == 0
    assert queues.count(queues.home) == 200, "none is lost, none is there twice"


def test_a_plan_that_no_task_can_do_is_refused(case: Case, queues: Queues) -> None:
    for changes in ({"tenants": ("a",)}, {"header": ("a", "b")}, {"most": 5}, {"older_than": 1.0}):
        with pytest.raises(UserError, match="takes all that is there"):
            case.run(case.plan(**changes))
    (redis,) = CollectSettings.model_validate(
        {"brokers": [{"kind": "redis", "name": "mq", "url": "redis://127.0.0.1:9"}]}
    ).brokers
    with pytest.raises(UserError, match="redis has no task"):
        task_of(redis, case.plan(), case.folder)
    with pytest.raises(Refused, match="1 to 500"):
        case.run(case.plan(rate=900.0))
    assert queues.count(queues.home) == 2, "the canary alone"


def test_by_command(lake: Lake, queues: Queues, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = {name: value for name, value in queues.server.settings().items() if name in ("kind", "name", "endpoint")}
    lines = [f'{name} = "{value}"' for name, value in known.items()]
    for name in ("access_key_id", "secret_access_key"):
        lines.append(f'{name} = {{ file = "{queues.server.settings()[name]["file"]}" }}')
    config = tmp_path / "sojourn.toml"
    config.write_text("[[collect.brokers]]\n" + "\n".join(lines) + "\n")
    beside = ["-c", str(config), "--lake", str(lake.root), "--broker", "mq"]
    options = ["--rate", "500", "--canary", "2", "--canary-seconds", "0", "--by-task"]
    assert main.run(["redrive", "start", queues.dead, queues.home, *options, *beside]) == 0, capsys.readouterr()
    assert "done, 40 back" in capsys.readouterr().out
    assert queues.count(queues.home) == 40
