"""One connection to PostgreSQL, over which nothing but bounded reading transactions go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.postgres.settings import PostgresBroker

Row = tuple[Any, ...]
#: Seconds beyond a statement's own time-out after which the server counts as away.
_GRACE = 3.0
#: What libpq tells in words alone of a server that answers, and not to us.
_REFUSED = (
    "authentication failed", "no password supplied", "pg_hba.conf", "does not exist", "permission denied",
    "certificate", "SSL", "not permitted to log in",
)  # fmt: skip


class Refusal(Exception):
    """The server refused one statement; its words are the reason. ``missing``: a table or column is not there (now)."""

    def __init__(self, reason: str, *, missing: bool = False) -> None:
        super().__init__(reason)
        self.missing = missing


class Connection:
    """Connects, asks, and tells a lost connection from a refused statement."""

    def __init__(self, broker: PostgresBroker) -> None:
        self._broker = broker
        self._connection: psycopg.AsyncConnection[Row] | None = None
        milliseconds = {
            "statement_timeout": broker.statement_timeout,
            "lock_timeout": broker.lock_timeout,
            "idle_in_transaction_session_timeout": broker.statement_timeout + _GRACE,
        }
        settings: dict[str, str] = {name: f"{value * 1000:.0f}" for name, value in milliseconds.items()}
        # An index always before a scan, whatever the statistics say: finished jobs are many, and are not asked for.
        settings |= {"enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0"}
        # And what stands in another table is looked up: a merge would walk through all jobs, a hash would hold them.
        settings |= {"enable_mergejoin": "off", "enable_hashjoin": "off"}
        settings |= {"search_path": "pg_catalog", "TimeZone": "UTC"}
        # Within the transaction, so that a pooler may hand each transaction to another session.
        local = "".join(f"SET LOCAL {name} = '{value}';" for name, value in settings.items())
        self._begin = f"BEGIN READ ONLY;{local}"

    async def open(self) -> None:
        """Connect. ConnectionLost; CredentialsRefused."""
        await self.close()
        try:
            async with asyncio.timeout(self._broker.connect_timeout + _GRACE):
                self._connection = await psycopg.AsyncConnection.connect(
                    **self._parameters(), autocommit=True, prepare_threshold=None
                )
        except (psycopg.Error, TimeoutError) as error:
            words = _words(error)
            where = f"broker {self._broker.name!r}"
            if any(word in words for word in _REFUSED):
                hint = "see user, password, tls and the database's name, and what pg_hba.conf lets in"
                raise CredentialsRefused(f"{where} does not let us in: {words}", hint) from None
            raise ConnectionLost(f"{where} cannot be reached: {words or 'it does not answer'}") from None

    async def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()

    async def ask(self, statement: str) -> list[Row]:
        """The rows of one SELECT, in a transaction of its own. Refusal; ConnectionLost."""
        connection = self._connection
        if connection is None:
            raise ConnectionLost(f"the connection to broker {self._broker.name!r} is lost")
        try:
            async with asyncio.timeout(self._broker.statement_timeout + _GRACE):
                cursor = await connection.execute(sql.SQL(f"{self._begin}{statement};COMMIT"))
        except (psycopg.Error, TimeoutError) as error:
            raise await self._trouble(connection, error) from None
        rows: list[Row] = []
        while True:
            if cursor.description is not None:
                rows = await cursor.fetchall()
            if not cursor.nextset():
                return rows

    async def _trouble(self, connection: psycopg.AsyncConnection[Row], error: Exception) -> Exception:
        gone = isinstance(error, (TimeoutError, errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow))
        if not gone and not connection.broken and isinstance(error, psycopg.Error) and error.sqlstate:
            try:
                async with asyncio.timeout(_GRACE):
                    await connection.execute("ROLLBACK")
            except (psycopg.Error, TimeoutError):
                gone = True
            if not gone:
                return Refusal(self._reason(error), missing=isinstance(error, _MISSING))
        await self.close()
        return ConnectionLost(f"broker {self._broker.name!r} was lost: {_words(error) or 'it does not answer'}")

    def _reason(self, error: psycopg.Error) -> str:
        if isinstance(error, errors.QueryCanceled):
            return f"the statement took longer than statement_timeout, {self._broker.statement_timeout:g} s"
        if isinstance(error, errors.LockNotAvailable):
            return f"the table was locked for longer than lock_timeout, {self._broker.lock_timeout:g} s"
        return _words(error)

    def _parameters(self) -> dict[str, Any]:
        broker, tls = self._broker, self._broker.tls
        hosts, ports = zip(*broker.addresses(), strict=True)
        given: dict[str, Any] = {
            "host": ",".join(hosts),
            "port": ",".join(map(str, ports)),
            "dbname": broker.database,
            "user": broker.user,
            "application_name": "sojourn-collector",
            "connect_timeout": max(2, round(broker.connect_timeout)),
            "target_session_attrs": "any" if broker.read_replica else "primary",
            "tcp_user_timeout": round((broker.statement_timeout + _GRACE) * 1000),
            "keepalives_idle": 5,
            "sslmode": "verify-full" if tls.enabled else "prefer",
        }
        if broker.password is not None:
            given["password"] = broker.password.read("the password")
        if tls.enabled:
            given |= {"sslrootcert": str(tls.ca.expanduser()) if tls.ca else "system"}
        if tls.certificate is not None:
            given |= {"sslcert": str(tls.certificate.expanduser())}
            given |= {"sslkey": str(tls.key.expanduser())} if tls.key is not None else {}
            if tls.key_password is not None:
                given["sslpassword"] = tls.key_password.read("the key's password")
        return {name: value for name, value in given.items() if value is not None}


_MISSING = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName, errors.UndefinedObject)


def _words(error: BaseException) -> str:
    """What the server or libpq says, its first line."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (said or str(error)).strip().split("\n")[0]
