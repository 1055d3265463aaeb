"""Whatever bytes come, each request is answered, and what others told in the same group is kept."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.receive.batch import BatchReader
from collectors.receive.horizon import Horizon
from collectors.receive.inbox import Request
from collectors.receive.joins import Joins
from collectors.receive.memory import Memory
from collectors.receive.spans import SpanReader
from collectors.receive.status import Code
from lake.clock import Clock
from tests.collectors.receive.support import request_of
from tests.support.deep import examples

_WHOLE = request_of(
    ("send", 1, {"messaging__message__id": "m", "sojourn__priority": 3}),
    ("process", 2, {"links": [(1, 1)], "error": "no stock"}),
    ("receive", 3, {"messaging__batch__message_count": 2}),
).SerializeToString()


def _read(*bodies: tuple[Any, bytes]) -> list[Any]:
    reader = BatchReader(SpanReader(Memory(100), Joins(), 1000), Horizon(10_000, 60), 1000, Clock())
    return reader.read([Request(format, body, lambda answer: None) for format, body in bodies])


def _check(format: Any, body: bytes) -> None:
    batches = _read(("protobuf", _WHOLE), (format, body))
    assert len(batches) == 1  # our own code was not broken
    good, answer = batches[0].answers
    assert good.code is Code.OK
    assert answer.code in (Code.OK, Code.INVALID_ARGUMENT)
    assert answer.code is Code.OK or batches[0].rejected
    assert batches[0].rows >= 3


@settings(deadline=None)
@given(st.sampled_from(["protobuf", "json", "events"]), st.binary(max_size=300))
def test_bytes_from_nowhere(format: str, body: bytes) -> None:
    _check(format, body)


@settings(max_examples=examples(100, 300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_WHOLE) - 1), st.integers(0, 255)), max_size=6), st.integers(0, 40))
def test_a_real_request_with_some_bytes_changed_or_cut_off(changes: list[tuple[int, int]], cut: int) -> None:
    body = bytearray(_WHOLE)
    for place, value in changes:
        body[place] = value
    _check("protobuf", bytes(body[: len(body) - cut]))


_TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("ff" * 16),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(_TREE)
def test_json_of_any_shape(tree: Any) -> None:
    _check("json", json.dumps(tree).encode())
