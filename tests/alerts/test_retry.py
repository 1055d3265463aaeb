from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alerts.notify.guard import is_public
from alerts.notify.retry import LARGEST_DELAY, LARGEST_RETRY_AFTER, backoff, judge, parse_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "delivered"),
        (204, "delivered"),
        (301, "refused"),
        (307, "refused"),
        (400, "refused"),
        (404, "refused"),
        (408, "retry"),
        (410, "refused"),
        (429, "retry"),
        (500, "retry"),
        (503, "retry"),
        (None, "retry"),
    ],
)
def test_only_what_is_of_the_moment_is_tried_again(status: int | None, outcome: str) -> None:
    verdict = judge(status, attempts=1, age=timedelta(0), retry_for=timedelta(hours=1), retry_after=None, jitter=0.5)
    assert verdict.outcome == outcome
    assert (verdict.retry_in is not None) == (outcome == "retry")
    assert verdict.disable == (status == 410)


def test_a_parcel_is_given_up_when_it_has_been_tried_for_long_enough() -> None:
    hour = timedelta(hours=1)
    assert judge(503, attempts=9, age=hour, retry_for=hour, retry_after=None, jitter=0).outcome == "failed"


def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    assert [backoff(n, 1.0).total_seconds() for n in (1, 2, 3, 4)] == [0.5, 1, 2, 4]
    assert backoff(1, 0.0) == backoff(1, 1.0) / 2
    assert backoff(10_000, 1.0) == LARGEST_DELAY


def test_retry_after_is_honoured_but_not_for_ever() -> None:
    def pause(retry_after: timedelta) -> timedelta | None:
        verdict = judge(
            429, attempts=1, age=timedelta(0), retry_for=timedelta(hours=9), retry_after=retry_after, jitter=1
        )
        return verdict.retry_in

    assert pause(timedelta(seconds=30)) == timedelta(seconds=30)
    assert pause(timedelta(days=2)) == LARGEST_RETRY_AFTER


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("9" * 30, 86_400),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: int | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert parse_retry_after(header, NOW) == expected


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fc00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_only_addresses_of_the_open_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public
