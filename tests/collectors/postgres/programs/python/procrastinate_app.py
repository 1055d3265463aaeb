"""An application that uses Procrastinate: ``URL``; with ``redrive`` behind it, what dead workers left is done.

The manual's own way: jobs whose worker has no heartbeat any more are stalled, and are retried.
"""

from __future__ import annotations

import asyncio
import os
import sys

import procrastinate
from procrastinate import BaseRetryStrategy, RetryDecision
from workload import Workload


class InAnHour(BaseRetryStrategy):
    """Every failure but one of "fail once" is tried again."""

    def get_retry_decision(self, *, exception, job):
        if str(exception) == "fail once":
            return None
        return RetryDecision(retry_in={"hours": 1})


async def main() -> None:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1]))
    async with app.open_async():
        redriving = sys.argv[2:] == ["redrive"]
        if not redriving:
            await app.schema_manager.apply_schema_async()

        async def insert(what: str, tenant: str, once: bool, later: bool) -> None:
            when = {"schedule_in": {"hours": 1}} if later else {}
            await order.configure(**when).defer_async(what=what, tenant=tenant)

        workload = Workload(insert)

        @app.task(queue="orders", retry=InAnHour())
        async def order(what: str, tenant: str) -> None:
            if not redriving:
                await workload.work(what)

        if redriving:
            for job in await app.job_manager.get_stalled_jobs(queue="orders", seconds_since_heartbeat=0.1):
                await app.job_manager.retry_job(job)
            await app.run_worker_async(queues=["orders"], wait=False, install_signal_handlers=False)
            return

        async def start() -> None:
            options = {"fetch_job_polling_interval": 0.1, "install_signal_handlers": False}
            asyncio.get_running_loop().worker = asyncio.create_task(
                app.run_worker_async(queues=["orders"], concurrency=1, **options)
            )

        await workload.run(start)
        os._exit(0)


asyncio.run(main())
