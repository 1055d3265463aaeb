"""The libraries themselves: their own migrations, producers and workers, and what the sampler tells of them."""

from __future__ import annotations

import time

import pytest

from collectors.samples import Sample, TenantShare
from tests.collectors.postgres.reading import Database, Truth, application, wait_for
from tests.support.facts import Note, measured

#: How far an age may be from what the application noted, in seconds.
NEAR = 0.1
#: What the table of brokers says of it, and of tenants that are found in the job's arguments.
NOTED, BY_PATH = "within 0.1 s of what the application noted", "by a JSON path of the job"
#: The application → which version of which library it is.
VERSIONS = {
    "river": "River 0.51 itself",
    "pgboss 9": "pg-boss 9 itself",
    "pgboss 10": "pg-boss 10 itself",
    "graphile": "graphile-worker 0.17 itself",
    "procrastinate": "Procrastinate 3.10 itself",
    "pgqueuer": "PgQueuer 1.6 itself",
}
#: The application → the name of its layout, the library's word for dead jobs, and when its failures are noted.
APPLICATIONS = {
    "river": ("river", "discarded", "SELECT count(*) = 1 FROM river_job WHERE state = 'discarded'"),
    "pgboss 9": ("pgboss", "failed", "SELECT count(*) = 1 FROM pgboss.job WHERE state = 'failed'"),
    "pgboss 10": ("pgboss", "failed", "SELECT count(*) = 1 FROM pgboss.job WHERE state = 'failed'"),
    "graphile": (
        "graphile",
        "failed",
        "SELECT count(*) FILTER (WHERE run_at > now() + interval '50 minutes') = 3 FROM graphile_worker.jobs",
    ),
    "procrastinate": (
        "procrastinate",
        "failed",
        "SELECT count(*) = 1 FROM procrastinate_jobs WHERE status = 'failed'",
    ),
    "pgqueuer": ("pgqueuer", "failed", "SELECT count(*) = 1 FROM pgqueuer WHERE status = 'failed'"),
}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_librarys_jobs_are_counted_by_what_they_wait_for_and_their_ages_are_those_the_application_noted(
    name: str, database: Database, note: Note
) -> None:
    layout, word, failed = APPLICATIONS[name]
    with application(name, database) as truth:
        wait_for(database, failed)
        before = time.time()
        samples = database.read(**{layout: {"tenant": "json:tenant"}})
        after = time.time()
    orders, dead = samples.pop("orders"), samples.pop(f"orders.{word}")
    assert not samples
    counts = orders.depth, orders.in_flight, orders.delayed, orders.retrying, orders.queue_type
    assert counts == (3, 1, 3, 1, layout)
    check_ages(orders, truth, before, after)
    assert (dead.depth, dead.in_flight, dead.dead_letter_for) == (1, 0, "orders")
    assert orders.tenants is not None
    assert {share.tenant: counted(share) for share in orders.tenants} == {"a": (2, 1, 2), "b": (1, 0, 1)}
    assert orders.tenants[0].oldest_age_seconds == orders.oldest_age_seconds
    note(*measured(layout, [orders]), (layout, "age", NOTED), (layout, "per tenant", BY_PATH))
    note((layout, "dead letters", f"its {word} jobs"), (layout, "cluster shapes", VERSIONS[name]))


def check_ages(sample: Sample, truth: Truth, before: float, after: float) -> None:
    """Each age lies between the least and the most that it can be, where the reading took from before to after."""
    assert sample.oldest_age_seconds is not None and sample.oldest_first_attempt_age_seconds is not None
    assert sample.oldest_in_flight_age_seconds is not None
    assert before - truth.stuck[1] - NEAR <= sample.oldest_age_seconds <= after - truth.stuck[0] + NEAR
    assert before - truth.first[1] - NEAR <= sample.oldest_first_attempt_age_seconds <= after - truth.first[0] + NEAR
    # It began after it was added, and before the worker told of it.
    assert before - truth.began - NEAR <= sample.oldest_in_flight_age_seconds <= after - truth.stuck[0] + NEAR


def counted(share: TenantShare) -> tuple[int | None, ...]:
    """depth, in flight, delayed."""
    return share.depth, share.in_flight, share.delayed
