"""Recorded answers of a real server → the samples that they mean."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brokers.sqs.answers import Answer, Refusal, content
from collectors.samples import METRIC_NAMES
from collectors.sqs import parse
from collectors.sqs.cloudwatch import Told
from collectors.sqs.settings import SqsBroker

HERE = Path(__file__).parent / "recorded"
RECORDED: dict[str, Any] = json.loads((HERE / "elasticmq.json").read_text())
EXPECTED: dict[str, Any] = json.loads((HERE / "elasticmq.expected.json").read_text())


def test_the_recorded_answers_give_the_expected_samples() -> None:
    addresses, token = parse.page(RECORDED["ListQueues"])
    read = {}
    for address in addresses:
        held = parse.attributes(RECORDED["GetQueueAttributes"][parse.queue_name(address)])
        assert not isinstance(held, Refusal)
        read[parse.queue_name(address)] = held
    targets = {queue: parse.dead_letter_queue(held) for queue, held in read.items()}
    serves = parse.served({queue: target for queue, target in targets.items() if target})
    broker = SqsBroker()
    made = [
        asdict(parse.sample(broker, queue, 17, held, serves=serves.get(queue, ()), told=Told()))
        for queue, held in read.items()
    ]
    whole: dict[str, Any] = {
        "sampled_at": 17,
        "subscriber": None,
        "unavailable": EXPECTED["unavailable"],
        "tenants": None,
    }
    nothing = dict.fromkeys(METRIC_NAMES)
    assert made == [{**nothing, **whole, **expected} for expected in EXPECTED["samples"]]
    assert token is None


def test_recorded_refusals_are_of_their_kind() -> None:
    gone, unknown = RECORDED["absent queue"], RECORDED["unknown action"]
    assert content(Answer(gone["status"], json.dumps(gone["body"]).encode())) == Refusal("gone", "QueueDoesNotExist")
    refused = content(Answer(unknown["status"], json.dumps(unknown["body"]).encode()))
    assert refused == Refusal("malformed", "InvalidAction")


def test_a_dead_letter_queue_names_the_queues_that_it_serves_up_to_a_bound() -> None:
    sources = [f"q{index:03}" for index in range(130)]
    sample = parse.sample(SqsBroker(), "dead", 0, {}, serves=sources, told=Told())
    assert sample.dead_letter_for == ",".join(sources[:100])


def test_a_redrive_policy_that_cannot_be_read_is_none() -> None:
    for policy in ("{", "[]", "null", '{"deadLetterTargetArn": 7}', None, 7):
        assert parse.dead_letter_queue({"RedrivePolicy": policy}) is None
