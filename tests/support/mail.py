"""A real, small mail server on the loopback: SMTP with STARTTLS and AUTH, and answers that a test may choose."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One message that was handed over."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    login: str
    encrypted: bool


@dataclass
class MailServer:
    """What it took; ``answers`` are given in place of its own, by the command's first word or ``RCPT:address``."""

    port: int = 0
    messages: list[Message] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)


@contextmanager
def mail_server(tls: ssl.SSLContext | None = None, *, at_once: bool = False) -> Iterator[MailServer]:
    """Serve; with ``tls`` it offers STARTTLS, or with ``at_once`` speaks nothing else."""
    told = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                if at_once:
                    self._encrypt()
                _Session(self, told, tls, at_once).run()
            except (OSError, ValueError):
                return  # the sender went away

        def _encrypt(self) -> None:
            assert tls is not None
            self.connection = tls.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        told.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield told
        finally:
            server.shutdown()


class _Session:
    def __init__(self, handler: socketserver.StreamRequestHandler, told: MailServer, tls: object, secure: bool) -> None:
        self._handler, self._told, self._tls, self._secure = handler, told, tls, secure
        self._login, self._sender = "", ""
        self._recipients: list[str] = []

    def run(self) -> None:
        self._say(self._told.answers.get("CONNECT", "220 test"))
        while line := self._handler.rfile.readline(4096).decode().rstrip("\r\n"):
            word = line.split(" ")[0].upper()
            self._told.seen.append(word)
            if word == "QUIT":
                self._say("221 bye")
                return
            self._answer(word, line)

    def _say(self, text: str) -> None:
        self._handler.wfile.write(text.encode() + b"\r\n")

    def _answer(self, word: str, line: str) -> None:
        address = line.partition("<")[2].partition(">")[0]
        chosen = self._told.answers.get(f"RCPT:{address}" if word == "RCPT" else word)
        if chosen is not None:
            self._say(chosen)
        elif word == "EHLO":
            offered = ["250-test", *(["250-STARTTLS"] if self._tls and not self._secure else []), "250 AUTH PLAIN"]
            self._say("\r\n".join(offered))
        elif word == "STARTTLS":
            self._say("220 go on")
            self._handler._encrypt()  # type: ignore[attr-defined]
            self._secure = True
        elif word == "AUTH":
            self._login = base64.b64decode(line.split(" ")[2]).decode().replace("\0", ":").strip(":")
            self._say("235 welcome")
        elif word == "DATA":
            self._take()
        else:
            if word == "MAIL":
                self._sender, self._recipients = address, []
            if word == "RCPT":
                self._recipients.append(address)
            self._say("250 ok")

    def _take(self) -> None:
        self._say("354 go on")
        lines = []
        while (line := self._handler.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        message = Message(self._sender, tuple(self._recipients), b"".join(lines), self._login, self._secure)
        self._told.messages.append(message)
        self._say("250 taken")
