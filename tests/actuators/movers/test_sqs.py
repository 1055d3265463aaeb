"""What the mover of SQS promises beyond the contract of all: groups, attributes, the policies of queues, redrives."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from actuators.base import Refused
from actuators.movers.base import TRACE, Trace
from actuators.movers.registry import KINDS
from alerts.control.actuators.spillover import Spillover, SpilloverSettings
from brokers.errors import ConnectionLost
from lake.errors import SojournError
from lake.store import Lake
from sojourn.cli import main
from tests.actuators.movers.places import _KILL, sqs_look, sqs_settings
from tests.actuators.movers.test_contract import _CHILD
from tests.collectors.sqs.support import action, error, on
from tests.control.test_spillover import T0
from tests.support.elasticmq import ElasticMq
from tests.support.faulty import FaultyHttp

NUMBERS = itertools.count()
EVERY: Any = lambda message: True  # noqa: E731


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticMq]:
    with ElasticMq(tmp_path_factory.mktemp("elasticmq")) as server:
        yield server


@pytest.fixture
def queue() -> str:
    return f"q{next(NUMBERS)}"


def mover(server: ElasticMq, **changes: Any) -> Any:
    return KINDS.make(KINDS.chosen({"name": "mq", **sqs_settings(server), **changes}))


def send(server: ElasticMq, queue: str, groups: str, numbers: Sequence[int]) -> None:
    """A message of each group for each number."""
    address = server.make(queue, FifoQueue="true") if queue.endswith(".fifo") else server.make(queue)
    for number in numbers:
        for group in groups:
            more = {"MessageDeduplicationId": f"{group}-{number}"} if queue.endswith(".fifo") else {}
            server.ask(
                "SendMessage", QueueUrl=address, MessageBody=str(number), MessageGroupId=group, DelaySeconds=0, **more
            )


def bodies(server: ElasticMq, queue: str, group: str) -> list[int]:
    """What one group has there, in its order."""
    found = [one for one in sqs_look(server, queue) if one["Attributes"]["MessageGroupId"] == group]
    ordered = sorted(found, key=lambda one: int(one["Attributes"].get("SequenceNumber", 0)))
    return [int(one["Body"]) for one in ordered]


def drained(server: ElasticMq, queue: str) -> dict[str, list[int]]:
    """What a consumer takes of a FIFO queue until it is empty, by group."""
    found: dict[str, list[int]] = {}
    asked = {"QueueUrl": server.address(queue), "MaxNumberOfMessages": 10, "AttributeNames": ["All"]}
    while some := server.ask("ReceiveMessage", **asked).get("Messages"):
        for one in some:
            found.setdefault(one["Attributes"]["MessageGroupId"], []).append(int(one["Body"]))
            server.ask("DeleteMessage", QueueUrl=asked["QueueUrl"], ReceiptHandle=one["ReceiptHandle"])
    return found


def test_a_fifo_queue_keeps_its_groups_and_their_order_though_all_comes_back_within_minutes(
    server: ElasticMq, queue: str
) -> None:
    home, aside, one = f"{queue}.fifo", f"aside-{queue}.fifo", mover(server)
    send(server, home, "ab", range(15))
    assert one.move(home, aside, lambda message: message.tenant == "a", 100).moved == 15
    assert one.waiting(home) == one.waiting(aside) == 15
    trace = Trace.of(sqs_look(server, aside)[0]["MessageAttributes"][TRACE]["StringValue"])
    assert trace is not None and trace.kept == {"MessageDeduplicationId": "a-0"}
    assert one.move(aside, home, EVERY, 100).moved == 15
    # Under their first ids they would be dropped as duplicates.
    assert drained(server, home) == {"a": list(range(15)), "b": list(range(15))}


def test_what_came_to_a_fifo_queue_meanwhile_goes_behind_what_comes_back(server: ElasticMq, queue: str) -> None:
    home, aside, one = f"{queue}.fifo", f"aside-{queue}.fifo", mover(server)
    send(server, home, "ab", range(15))
    one.move(home, aside, lambda message: message.tenant == "a", 100)
    assert one.give_back(aside, home, EVERY, 3).moved == 3
    send(server, home, "a", range(15, 30))
    assert one.give_back(aside, home, EVERY, 0).moved == 0
    assert bodies(server, home, "a") == [0, 1, 2]
    assert one.waiting(aside) == 27
    assert one.give_back(aside, home, EVERY, 7).moved == 7
    assert one.give_back(aside, home, EVERY, 7).moved == 0, "ten wait for consumers: what is behind them is not seen"
    assert one.drop(home, lambda message: message.tenant == "a", 10) == 10  # consumers take them
    assert one.give_back(aside, home, EVERY, 20).moved == 20
    assert drained(server, home) == {"a": list(range(10, 30)), "b": list(range(15))}


def test_a_mover_of_a_fifo_queue_that_is_killed_leaves_nothing_twice(server: ElasticMq, queue: str) -> None:
    home, aside = f"{queue}.fifo", f"aside-{queue}.fifo"
    send(server, home, "a", range(6))
    code = _CHILD.format(killed=_KILL + "from actuators.movers.sqs import SqsMover\nafter(SqsMover, '_delete', 2)\n")
    arguments = [json.dumps(sqs_settings(server)), home, aside]
    child = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert bodies(server, home, "a") == [2, 3, 4, 5] and bodies(server, aside, "a") == [0, 1, 2, 3]
    while mover(server).move(home, aside, EVERY, 2).moved:
        pass
    assert bodies(server, aside, "a") == list(range(6)), "SQS knows the second copy by its id"
    assert sqs_look(server, home) == []


def test_from_a_queue_with_a_redrive_policy_nothing_is_moved(server: ElasticMq, queue: str) -> None:
    server.make(f"{queue}-dead")
    server.make(queue, RedrivePolicy=server.redrive_to(f"{queue}-dead", receives=1))
    server.send(queue, 3)
    for work in (mover(server).move, mover(server).give_back):
        with pytest.raises(Refused, match="redrive policy"):
            work(queue, f"{queue}-aside", EVERY, 10)
    with pytest.raises(Refused, match="redrive policy"):
        mover(server).count(queue, EVERY, 10)
    assert mover(server).waiting(queue) == 3 and mover(server).waiting(f"{queue}-dead") == 0


def test_attributes_of_every_type_the_group_and_the_tracing_header_stay(server: ElasticMq, queue: str) -> None:
    attributes = {
        "tenant": {"DataType": "String", "StringValue": "a"},
        "count": {"DataType": "Number.int", "StringValue": "7"},
        "seal": {"DataType": "Binary", "BinaryValue": "AAECAw=="},
    }
    tracing = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    address, body = server.make(queue), 'an "ünusual"\n\tbody'
    more = {"MessageAttributes": attributes, "MessageSystemAttributes": tracing, "MessageGroupId": "g"}
    server.ask("SendMessage", QueueUrl=address, MessageBody=body, **more)
    (before,) = sqs_look(server, queue)
    assert mover(server).move(queue, f"{queue}-aside", lambda message: message.tenant == "a", 10).moved == 1
    (after,) = sqs_look(server, f"{queue}-aside")
    trace = Trace.of(after["MessageAttributes"].pop(TRACE)["StringValue"])
    assert after["Body"] == before["Body"] == body
    assert after["MessageAttributes"] == before["MessageAttributes"]
    for name in ("AWSTraceHeader", "MessageGroupId"):
        assert after["Attributes"][name] == before["Attributes"][name]
    assert trace is not None and trace.enqueued_at == int(before["Attributes"]["SentTimestamp"]) / 1000
    assert trace.id == f"{queue}-{before['MessageId']}"


def test_a_message_that_has_no_room_for_a_trace_stays_and_is_told_of(
    server: ElasticMq, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    full = {f"a{number}": {"DataType": "String", "StringValue": "x"} for number in range(10)}
    server.ask("SendMessage", QueueUrl=server.make(queue), MessageBody="full", MessageAttributes=full)
    server.send(queue, 2)
    assert mover(server).move(queue, f"{queue}-aside", EVERY, 10).moved == 2
    assert "attributes" in caplog.text
    with pytest.raises(SojournError, match="10 attributes"):
        mover(server).move(queue, f"{queue}-aside", EVERY, 10)
    assert [one["Body"] for one in sqs_look(server, queue)] == ["full"]


def test_large_messages_go_in_requests_that_sqs_takes(server: ElasticMq, queue: str) -> None:
    address = server.make(queue)
    for number in range(5):
        server.ask("SendMessage", QueueUrl=address, MessageBody=str(number) * 100_000)
    with FaultyHttp(server.url, lambda _: None) as proxy:
        assert mover(server, endpoint=proxy.url).move(queue, f"{queue}-aside", EVERY, 10).moved == 5
        sent = [len(request.body) for request in proxy.seen if action(request) == "SendMessageBatch"]
    assert len(sent) == 3 and max(sent) < 256 << 10


def test_queues_of_two_kinds_and_names_that_none_can_have_are_refused(server: ElasticMq, queue: str) -> None:
    server.make(queue)
    with pytest.raises(Refused, match="two kinds"):
        mover(server).move(queue, f"{queue}.fifo", EVERY, 10)
    with pytest.raises(Refused, match="name"):
        mover(server).move(queue, f"{queue} aside", EVERY, 10)


def test_a_busy_server_is_asked_again_and_one_that_stays_busy_is_an_error(server: ElasticMq, queue: str) -> None:
    server.make(queue)
    server.send(queue, 2)
    sending = lambda request: action(request) == "SendMessageBatch"  # noqa: E731
    with FaultyHttp(server.url, on(sending, error("RequestThrottled"), times=2)) as proxy:
        assert mover(server, endpoint=proxy.url).move(queue, f"{queue}-aside", EVERY, 10).moved == 2
    with (
        FaultyHttp(server.url, on(sending, error("InternalError", 500))) as proxy,
        pytest.raises(ConnectionLost, match="too busy"),
    ):
        mover(server, endpoint=proxy.url).move(f"{queue}-aside", queue, EVERY, 10)
    assert len(sqs_look(server, f"{queue}-aside")) == 2, "what could not be sent is there again at once"


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_limited_tenants_excess_waits_aside_and_comes_back(server: ElasticMq, queue: str, suffix: str) -> None:
    home, aside = queue + suffix, f"aside-{queue}{suffix}"
    send(server, home, "ab", range(12))
    settings = {"name": "aside", "queues": [home], "aside": "aside-{queue}", "return_rate": 1e6}
    chosen = SpilloverSettings.model_validate(settings | {"mover": {"name": "mq", **sqs_settings(server)}})
    spillover = Spillover(chosen)
    target = dataclasses.replace(T0.key.target, queue=home, tenant="a")
    standing = dataclasses.replace(T0, key=dataclasses.replace(T0.key, target=target))  # three a second
    spillover.enforce([standing])
    for _ in range(2):
        spillover.round()
    one = mover(server)
    assert len(bodies(server, home, "a")) == 3 and one.waiting(home) == 15
    assert len(bodies(server, aside, "a")) == one.waiting(aside) == 9
    spillover.enforce([])
    for _ in range(2):
        spillover.round()
    if suffix:
        assert one.waiting(aside) == 0 and drained(server, home) == {"a": list(range(12)), "b": list(range(12))}
    else:
        assert sorted(bodies(server, home, "a")) == sorted(bodies(server, home, "b")) == list(range(12))


def test_dead_letters_of_sqs_are_redriven_by_command(
    server: ElasticMq, queue: str, lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = f"{queue}-dead"
    send(server, dead, "ab", range(10))
    server.make(queue, RedrivePolicy=server.redrive_to(dead))
    given = server.settings()
    secrets = "\n".join(
        f'{name} = {{ file = "{given[name]["file"]}" }}' for name in given if name.endswith(("_id", "key"))
    )
    config = tmp_path / "sojourn.toml"
    config.write_text(f'[[collect.brokers]]\nkind = "sqs"\nname = "mq"\nendpoint = "{server.url}"\n{secrets}\n')
    beside = ["-c", str(config), "--lake", str(lake.root)]
    options = ["--broker", "mq", "--tenant", "a", "--canary", "3", "--canary-seconds", "0", "--rate", "1000"]
    assert main.run(["redrive", "start", dead, queue, *options, *beside]) == 0
    assert "done, 10 back, 0 dead again" in capsys.readouterr().out
    assert sorted(bodies(server, queue, "a")) == list(range(10)) and bodies(server, queue, "b") == []
    assert sorted(bodies(server, dead, "b")) == list(range(10))
    groups = Counter(one["Attributes"]["MessageGroupId"] for one in sqs_look(server, queue))
    assert groups == {"a": 10}
