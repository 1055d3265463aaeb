"""Our few bytes of google.rpc.Status are what the real messages are."""

from __future__ import annotations

from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from collectors.receive.status import Code, encoded


def test_a_refusal_says_code_message_and_when_to_come_again() -> None:
    status = Status.FromString(encoded(Code.UNAVAILABLE, "ü" * 100, 7))
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, status.message, info.retry_delay.seconds) == (14, "ü" * 100, 7)


def test_a_refusal_for_good_says_no_time() -> None:
    assert not Status.FromString(encoded(Code.INVALID_ARGUMENT, "x")).details
