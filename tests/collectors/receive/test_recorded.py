"""What real instrumentations say, as recorded, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.collectors.receive.record import FOLDER, RECORDINGS, spans_of
from tests.collectors.receive.support import named, read


def _recorded(name: str) -> Any:
    return json_format.Parse((FOLDER / f"{name}.json").read_text(), ExportTraceServiceRequest())


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_spans_of_an_instrumentation_become_the_life_of_its_messages(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.expected.json").read_text())
    told = read(_recorded(name))
    assert [{key: row[key] for key in expected["events"][0]} for row in named(told)] == expected["events"]
    assert {(row["broker"], row["queue"], row["worker"]) for row in named(told)} == {
        (expected["broker"], "orders", "shop")
    }
    polls = [[poll.broker, poll.queue, poll.subscriber, poll.empty] for poll in told.polls]
    assert polls == expected["polls"]
    assert not told.refused


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_installed_instrumentation_still_says_what_was_recorded(name: str) -> None:
    assert spans_of(RECORDINGS[name]) == _recorded(name)
