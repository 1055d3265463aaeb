"""Talking to a Redis server: one connection, many commands at once. No judgement, only I/O."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.redis.resp import Answer, Command, NotRedis, Parser, Refusal, pack
from collectors.redis.settings import RedisBroker
from lake.errors import SojournError, UserError
from lake.secret import Secret

_READ = 256 << 10
#: Bytes of one answer that are held at most: far above anything that is asked for here.
_LONGEST_ANSWER = 64 << 20
#: Answers that say the server as a whole cannot serve now: it starts, fails over, or a script holds it.
_AWAY = frozenset({"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY", "READONLY", "UNKILLABLE"})
_REFUSED = frozenset({"NOAUTH", "WRONGPASS", "DENIED"})


#: Host and port.
Address = tuple[str, int]


def shown(address: Address) -> str:
    """``address`` as it is written."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Login(NamedTuple):
    """Who we are at a server."""

    user: str | None
    password: Secret | None


class Client:
    """One connection to one server. It does not reconnect by itself: whoever uses it opens it again."""

    def __init__(self, broker: RedisBroker, address: Address | None = None, login: Login | None = None) -> None:
        self._broker = broker
        self.address = address or broker.addresses()[0]
        self._login = login or Login(broker.user, broker.password)
        self._database = 0 if login else broker.database
        self._sentinel = login is not None  # which knows neither databases nor the time
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._parser = Parser()
        self._clock = (0, 0.0)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as we know."""
        return self._writer is not None

    async def open(self) -> None:
        """Connect, say who we are, choose the database. ConnectionLost or CredentialsRefused."""
        await self.close()
        broker, (host, port), login = self._broker, self.address, self._login
        context = broker.tls.context()
        password = None
        if login.password is not None:
            password = login.password.read(f"the password of broker {broker.name!r}")
        try:
            async with asyncio.timeout(broker.timeout):
                self._reader, self._writer = await asyncio.open_connection(host, port, ssl=context)
        except (OSError, TimeoutError) as error:
            raise self._lost(error) from None
        self._parser = Parser()
        if password is not None or login.user is not None:
            user = () if login.user is None else (login.user,)
            await self.demand(("AUTH", *user, password or ""))
        if self._database:
            await self.demand(("SELECT", self._database))
        with suppress(Refusal):  # a name helps whoever lists the clients; nothing depends on it
            await self.ask([("CLIENT", "SETNAME", "sojourn-sampler")])
        if not self._sentinel:
            await self.synchronise()

    async def close(self) -> None:
        """Disconnect; does nothing if there is no connection."""
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            with suppress(OSError, TimeoutError):
                writer.close()
                async with asyncio.timeout(1.0):
                    await writer.wait_closed()

    async def synchronise(self, *also: Command) -> list[Answer]:
        """Ask the server for its time, from which :meth:`now` goes on; the answers to what is asked ``also``."""
        before = time.monotonic()
        told, *answers = await self.ask([("TIME",), *also])
        seconds, micros = self._demanded(("TIME",), told)
        self._clock = (int(seconds) * 1_000_000 + int(micros), (before + time.monotonic()) / 2)
        return answers

    def now(self) -> int:
        """Microseconds since 1970 on the server's clock."""
        micros, then = self._clock
        return micros + round((time.monotonic() - then) * 1e6)

    async def demand(self, command: Command) -> Answer:
        """The answer to a command that must be allowed; CredentialsRefused, or UserError, where it is not."""
        (answer,) = await self.ask([command])
        return self._demanded(command, answer)

    def _demanded(self, command: Command, answer: Answer) -> Answer:
        if isinstance(answer, Refusal):
            if answer.code == "NOPERM" or command[0] == "AUTH":
                raise self._refused(answer)
            if command[0] == "SELECT":
                raise UserError(f"broker {self._broker.name!r} refuses the database: {answer}", "fix it in url")
            if command[0] == "TIME" and "unknown command" in str(answer):
                raise UserError(
                    f"broker {self._broker.name!r} at {shown(self.address)} is a Sentinel, or no Redis: {answer}",
                    'name Sentinels as such: sentinel = { service = "…", addresses = ["host:port"] }',
                )
            raise ConnectionLost(f"broker {self._broker.name!r} refuses {command[0]!s}: {answer}")
        return answer

    async def ask(self, commands: Sequence[Command]) -> list[Answer]:
        """The answers in order, an error of one command among them as a Refusal.

        ConnectionLost where the server does not answer all within the timeout, or answers that it cannot serve now.
        """
        if self._reader is None or self._writer is None:
            raise ConnectionLost(f"the connection to broker {self._broker.name!r} is lost")
        answers: list[Answer] = []
        try:
            async with asyncio.timeout(self._broker.timeout):
                self._writer.write(pack(commands))
                while len(answers) < len(commands):
                    data = await self._reader.read(_READ)
                    if not data:
                        raise ConnectionResetError("the server closed the connection")
                    answers += self._parser.feed(data)
                    if self._parser.held > _LONGEST_ANSWER:
                        raise ConnectionResetError("an answer is longer than 64 MiB")
        except BaseException as error:
            # What was asked and not read would be taken for the answer to the next question.
            await self.close()
            if isinstance(error, (OSError, TimeoutError, NotRedis)):
                raise self._lost(error) from None
            raise
        for answer in answers:
            if isinstance(answer, Refusal):
                if answer.code in _AWAY:
                    raise self._lost(answer)
                if answer.code in _REFUSED:
                    raise self._refused(answer)
        return answers

    def _lost(self, error: BaseException) -> ConnectionLost:
        why = str(error).strip() or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return ConnectionLost(f"broker {self._broker.name!r} at {shown(self.address)} cannot be read: {why}")

    def _refused(self, refusal: Refusal) -> SojournError:
        return CredentialsRefused(
            f"broker {self._broker.name!r} at {shown(self.address)} refuses: {refusal}",
            "check user, password and the permissions that docs/brokers/redis.md lists",
        )
