"""What samplers told of tenants, as rules see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from alerts.sampled import SampledTenants
from collectors.samples import Sample, TenantShare, samples_table
from lake.store import Lake

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STALE = timedelta(seconds=60)


def tell(lake: Lake, seconds: float, *shares: TenantShare, queue: str = "mail", source: str = "sampler") -> None:
    """The queue was read ``seconds`` after NOW, and had these tenants; without any they are not known."""
    at = round((NOW.timestamp() + seconds) * 1e6)
    lake.append("queue_samples", samples_table([Sample(queue, at, depth=1, tenants=shares or None)], "redis", source))


def share(tenant: str, depth: int) -> TenantShare:
    return TenantShare(tenant, depth, 0, 0, 5.0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create()
    return made


def seen(tenants: SampledTenants, seconds: float = 0) -> dict[tuple[str, str], int]:
    rows = tenants.read(NOW + timedelta(seconds=seconds)).to_pylist()
    assert all(row["broker"] == "redis" and row["oldest_age_seconds"] == 5.0 for row in rows)
    return {(row["queue"], row["tenant"]): row["depth"] for row in rows}


def test_the_newest_reading_of_each_queue_counts_whatever_was_there_before(lake: Lake) -> None:
    tell(lake, -3600, share("forgotten", 9), queue="old")
    tell(lake, -5, share("acme", 1), share("grove", 2))
    tenants = SampledTenants(lake, STALE)
    assert seen(tenants) == {("mail", "acme"): 1, ("mail", "grove"): 2}
    tell(lake, 1, share("acme", 7))
    tell(lake, 2, queue="plain")
    assert seen(tenants, 2) == {("mail", "acme"): 7}
    tell(lake, -1, share("late", 3))
    assert seen(tenants, 2) == {("mail", "acme"): 7}


def test_tenants_that_are_not_known_any_more_are_nobodys_and_another_source_knows_nothing_of_them(lake: Lake) -> None:
    tell(lake, -5, share("acme", 1))
    tenants = SampledTenants(lake, STALE)
    tell(lake, -4, source="receiver")
    assert seen(tenants) == {("mail", "acme"): 1}
    tell(lake, -3)
    assert seen(tenants) == {}


def test_a_reading_counts_until_it_is_stale_and_longer_where_readings_are_rare(lake: Lake) -> None:
    tell(lake, 0, share("acme", 1))
    tenants = SampledTenants(lake, STALE)
    assert seen(tenants, 60) == {("mail", "acme"): 1}
    assert seen(tenants, 61) == {}
    tell(lake, 100, share("acme", 2))
    assert seen(tenants, 400) == {("mail", "acme"): 2}
    assert seen(tenants, 401) == {}


def test_a_lake_that_is_compacted_or_cannot_be_read_for_a_while_tells_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(lake, -5, share("acme", 1))
    tenants = SampledTenants(lake, STALE)
    assert seen(tenants) == {("mail", "acme"): 1}
    for second in range(1, 4):
        tell(lake, second, share("acme", second))
    lake.compact("queue_samples")
    assert seen(tenants, 4) == {("mail", "acme"): 3}
    with monkeypatch.context() as patched:
        patched.setattr("alerts.sampled.read_file", _refuses)
        tell(lake, 5, share("acme", 5))
        assert seen(tenants, 5) == {("mail", "acme"): 3}
    assert seen(tenants, 6) == {("mail", "acme"): 5}


def _refuses(*_: object) -> None:
    raise OSError("no route to the disk")
