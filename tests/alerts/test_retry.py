from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from alerts.notify.guard import is_public
from alerts.notify.retry import (
    FIRST_REFUSED_DELAY,
    LARGEST_DELAY,
    LARGEST_REFUSED_DELAY,
    LARGEST_RETRY_AFTER,
    Verdict,
    backoff,
    judge,
    parse_retry_after,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "outcome", "again"),
    [
        (200, "delivered", None),
        (204, "delivered", None),
        (301, "refused", "slowly"),
        (307, "refused", "slowly"),
        (401, "refused", "slowly"),
        (403, "refused", "slowly"),
        (404, "refused", "slowly"),
        (400, "refused", None),
        (413, "refused", None),
        (422, "refused", None),
        (410, "refused", None),
        (408, "retry", "soon"),
        (429, "retry", "soon"),
        (500, "retry", "soon"),
        (503, "retry", "soon"),
        (None, "retry", "soon"),
    ],
)
def test_what_may_change_is_tried_again_soon_or_slowly_and_what_is_about_the_body_never(
    status: int | None, outcome: str, again: str | None
) -> None:
    verdict = judge(status, attempts=1, age=timedelta(0), retry_for=timedelta(hours=1), retry_after=None, jitter=0.5)
    assert verdict.outcome == outcome
    pace = {True: "slowly", False: "soon"}
    assert (verdict.retry_in and pace[verdict.retry_in >= FIRST_REFUSED_DELAY / 2]) == again
    assert verdict.disable == (status == 410)


def test_a_refusal_is_told_again_ever_more_slowly_and_given_up_like_any_other() -> None:
    def verdict(attempts: int, age: timedelta = timedelta(0)) -> Verdict:
        hours = timedelta(hours=24)
        return judge(404, attempts=attempts, age=age, retry_for=hours, retry_after=None, jitter=1.0)

    assert [verdict(n).retry_in for n in (1, 2, 3)] == [FIRST_REFUSED_DELAY * n for n in (1, 2, 4)]
    assert verdict(1000).retry_in == LARGEST_REFUSED_DELAY
    assert verdict(9, age=timedelta(hours=24)) == Verdict("failed")


def test_an_address_that_may_not_be_sent_to_is_a_refusal() -> None:
    verdict = judge(
        None, attempts=1, age=timedelta(0), retry_for=timedelta(1), retry_after=None, jitter=1, forbidden=True
    )
    assert verdict == Verdict("refused", FIRST_REFUSED_DELAY)


def test_a_message_is_given_up_when_it_has_been_tried_for_long_enough() -> None:
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
        ("9" * 30, 3600),
        ("9" * 10_000, 3600),
        ("0" * 10_000 + "7", 7),
        ("²", None),
        ("٣", None),
        ("+5", None),
        ("1_0", None),
        ("1.5", None),
        ("", None),
        ("Thu, 01 Jan 2026 00:00:30", None),
        ("Thu, 01 Jan 99999999999999999999 00:00:30 GMT", None),
        ("Thu, 01 Jan 2026 00:00:30 +99999999999999999999", None),
        ("Thu, 01 Jan 2026 99:00:30 GMT", None),
        ("x" * 100_000, None),
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
        ("2002:a00:1::", False),
        ("2001:0:7f00:1::", False),
        ("2001:0:4136:e378:8000:63bf:f5ff:fffe", False),  # Teredo of 10.0.0.1
        ("64:ff9b::a00:1", False),
        ("64:ff9b:1::808:808", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True),
        ("::", False),
        ("::7f00:1", False),
        ("::8.8.8.8", False),
        ("100::1", False),
        ("1000::1", False),
        ("4000::1", False),
        ("5f00::1", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("ff0e::1", False),
        ("2001:db8::1", False),
        ("2001:20::1", False),
        ("3fff::1", False),
        ("2606:2800:220:1::1%eth0", False),
        ("192.0.0.8", False),
        ("192.0.0.9", False),
        ("192.88.99.1", False),
        ("168.63.129.16", False),
        ("198.18.0.1", False),
        ("203.0.113.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("0177.0.0.1", False),
        ("localhost", False),
    ],
)
def test_only_addresses_of_the_open_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public
