"""An application that uses PgQueuer."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta

import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import PsycopgDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.queries import Queries
from workload import Workload

HOUR = timedelta(hours=1)


async def main() -> None:
    driver = PsycopgDriver(await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True))
    queuer = PgQueuer(driver)
    await queuer.qm.queries.install()
    # Its own connection, else an insert would wait for the worker's statements.
    producer = Queries(PsycopgDriver(await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True)))

    async def insert(what: str, tenant: str, once: bool, later: bool) -> None:
        payload = json.dumps({"what": what, "tenant": tenant}).encode()
        await producer.enqueue("orders", payload, execute_after=HOUR if later else None)

    workload = Workload(insert)

    @queuer.entrypoint("orders", concurrency_limit=1, on_failure="hold")
    async def order(job) -> None:
        try:
            await workload.work(json.loads(job.payload)["what"])
        except ValueError as error:
            if str(error) == "fail once":
                raise
            raise RetryRequested(delay=HOUR) from error

    async def start() -> None:
        asyncio.get_running_loop().worker = asyncio.create_task(queuer.run(dequeue_timeout=timedelta(milliseconds=200)))

    await workload.run(start)
    os._exit(0)


asyncio.run(main())
