"""One connection to one Redis server that blocks: for those who ask now and then. Use it in a thread."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.redis.resp import Answer, Command, NotRedis, Parser, Refusal, pack
from brokers.redis.settings import RedisServer

_READ = 64 << 10
_LONGEST_ANSWER = 64 << 20
_CREDENTIALS = frozenset({"NOAUTH", "WRONGPASS"})


class Link:
    """An open connection, for a ``with`` block; ConnectionLost and CredentialsRefused where it cannot be."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._parser = Parser()
        host, port = server.address
        self._where = f"{server.name!r} at {host}:{port}"
        context = server.tls.context()
        try:
            self._socket = socket.create_connection((host, port), server.timeout)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._lost(error) from None
        try:
            if server.password is not None or server.user is not None:
                user = () if server.user is None else (server.user,)
                password = server.password.read(f"the password of {server.name!r}") if server.password else ""
                self.demand("AUTH", *user, password)
            if server.database:
                self.demand("SELECT", server.database)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        with suppress(OSError):
            self._socket.close()

    def demand(self, *command: bytes | str | int) -> Answer:
        """The answer to one command; Refusal where it is refused, CredentialsRefused where we are not known."""
        (answer,) = self.ask([command])
        if isinstance(answer, Refusal):
            if answer.code in _CREDENTIALS or command[0] == "AUTH":
                raise CredentialsRefused(f"Redis {self._where} refuses: {answer}", "check user and password")
            raise answer
        return answer

    def ask(self, commands: Sequence[Command]) -> list[Answer]:
        """The answers in order, an error of one command among them as a Refusal. ConnectionLost."""
        answers: list[Answer] = []
        deadline = time.monotonic() + self._server.timeout
        try:
            self._socket.settimeout(self._server.timeout)
            self._socket.sendall(pack(commands))
            while len(answers) < len(commands):
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                data = self._socket.recv(_READ)
                if not data:
                    raise ConnectionResetError("the server closed the connection")
                answers += self._parser.feed(data)
                if self._parser.held > _LONGEST_ANSWER:
                    raise ConnectionResetError("an answer is longer than 64 MiB")
            if len(answers) > len(commands):
                raise ConnectionResetError("it answers more than it was asked")
        except (OSError, NotRedis) as error:
            self.close()
            raise self._lost(error) from None
        return answers

    def _lost(self, error: BaseException) -> ConnectionLost:
        why = str(error).strip() or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return ConnectionLost(f"Redis {self._where} cannot be reached: {why}")
