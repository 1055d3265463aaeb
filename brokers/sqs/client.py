"""Talking to SQS and CloudWatch: signed requests of the AWS JSON protocol over kept connections. No judgement.

Why not boto3 (measured on 2 busy cores shared with the server, ElasticMQ; 2,000 queues, 32 at once): boto3 with
adaptive retries 490–570 queues/s, 1.3 ms of our own processor time a queue; httpx with botocore's signer 270–410/s,
2.7 ms; the standard library's HTTP client with botocore's signer 1,270–1,430/s, 0.33 ms; with our signer
1,660–2,570/s, 0.23 ms. botocore still finds the credentials.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from brokers.sqs.answers import Answer
from brokers.sqs.settings import SqsAccount
from brokers.sqs.signing import Signer
from lake.errors import SojournError, first_line

#: More than any answer that was asked for: what is longer is not read to its end.
_LARGEST_ANSWER = 8 << 20


class Unanswered(SojournError):
    """No answer came: nobody there, too late, cut off, or not HTTP."""


class _Ended(Exception):
    """The server had closed a connection that was kept."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service at one address: ``signs`` is its name in signatures, ``target`` its name in requests."""

    url: str
    signs: str
    target: str
    region: str
    tls: ssl.SSLContext | None
    timeout: float


def sqs(account: SqsAccount) -> Service:
    """SQS as ``account`` says; UserError if its TLS files cannot be used."""
    return service(account, account.url, "sqs", "AmazonSQS")


def service(account: SqsAccount, url: str, signs: str, target: str) -> Service:
    """Any service of the account at ``url``."""
    tls = None
    if url.startswith("https:"):
        tls = account.tls.context() or ssl.create_default_context()
    return Service(url, signs, target, account.region, tls, account.request_timeout)


class Channel:
    """One kept connection for one thread at a time; ``credentials`` gives those of the moment."""

    def __init__(self, service: Service, credentials: Callable[[], Any]) -> None:
        self._service = service
        self._credentials = credentials
        self._signer = Signer(urlsplit(service.url).netloc, service.signs, service.region)
        self._connection = _connection(service)
        self._used = self._aborted = False

    def ask(self, action: str, arguments: Mapping[str, Any]) -> Answer:
        """The answer to one action; Unanswered if none comes. A kept connection that has ended is opened again."""
        body = json.dumps(arguments).encode()
        headers = self._signed(action, body)
        if self._used:
            with suppress(_Ended):
                return self._exchange(body, headers)
        return self._exchange(body, headers)

    def _signed(self, action: str, body: bytes) -> dict[str, str]:
        target = f"{self._service.target}.{action}"
        return self._signer.headers(self._credentials(), target, body, datetime.now(UTC))

    def _exchange(self, body: bytes, headers: dict[str, str]) -> Answer:
        kept, self._used = self._used, False
        try:
            self._connection.request("POST", "/", body, headers)
            response = self._connection.getresponse()
            answer = Answer(response.status, response.read(_LARGEST_ANSWER))
            if not response.isclosed():
                raise http.client.HTTPException("the answer is cut off, or too long")
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if kept and not self._aborted and not isinstance(error, TimeoutError):
                raise _Ended from None
            raise Unanswered(self._reason(error)) from None
        self._used = True
        return answer

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._service.timeout:g} s"
        if not isinstance(error, (OSError, http.client.HTTPException)):
            return "the request cannot be made"  # the error may quote a header, and so a credential
        return first_line(error)

    @property
    def sound(self) -> bool:
        """Whether it may be used again."""
        return not self._aborted

    def abort(self) -> None:
        """From another thread: end the request that is under way, which then is Unanswered."""
        self._aborted = True
        held = self._connection.sock
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect; the next request connects again."""
        self._used = False
        with suppress(OSError):
            self._connection.close()


def _connection(service: Service) -> http.client.HTTPConnection:
    parts = urlsplit(service.url)
    host = parts.hostname or ""
    if service.tls is None:
        return http.client.HTTPConnection(host, parts.port, timeout=service.timeout)
    proxy = None if proxy_bypass(host) else getproxies().get("https")
    if proxy is None:
        return http.client.HTTPSConnection(host, parts.port, timeout=service.timeout, context=service.tls)
    through = urlsplit(proxy)
    tunnel = http.client.HTTPSConnection(
        through.hostname or "", through.port or 8080, timeout=service.timeout, context=service.tls
    )
    known = f"{unquote(through.username or '')}:{unquote(through.password or '')}"
    basic = {"Proxy-Authorization": f"Basic {b64encode(known.encode()).decode()}"} if through.username else {}
    tunnel.set_tunnel(host, parts.port or 443, basic)
    return tunnel
