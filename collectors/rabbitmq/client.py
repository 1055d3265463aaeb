"""Asking a RabbitMQ node over HTTP: the management API and the Prometheus endpoint. No judgement, only I/O."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlencode

import httpx
from pydantic_core import from_json

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.rabbitmq.settings import RabbitBroker
from collectors.rabbitmq.tokens import Bearer, Tokens
from lake.errors import first_line

#: An answer beyond this many bytes is not read on: 100,000 queues take a third of it.
ANSWER_LIMIT = 128 << 20

#: What is asked of every queue each cycle. Any of the statistics makes the node gather them all.
STATISTICS = (
    "name",
    "vhost",
    "type",
    "node",
    "state",
    "messages_ready",
    "messages_unacknowledged",
    "consumers",
    "consumer_capacity",
    "consumer_utilisation",
    "head_message_timestamp",
    *(
        f"message_stats.{name}"
        for name in ("publish", "deliver_get", "ack", "redeliver", "get", "get_no_ack", "get_empty")
    ),
)
#: What is asked of the Prometheus endpoint each cycle.
METRIC_FAMILIES = ("queue_coarse_metrics", "queue_consumer_count")


class BadAnswer(ConnectionLost):
    """The node answered what cannot be used: an error, no JSON, a redirect, far too much."""


class Client:
    """Blocking; belongs to one thread at a time. Opened once, it reopens its own connections."""

    def __init__(self, broker: RabbitBroker) -> None:
        self._broker = broker
        self._http: httpx.Client | None = None
        self._metrics_auth: httpx.Auth | None = None
        self._urls = list(broker.urls)  # the one that answered last stands first
        #: Seconds by which the node's clock is ahead of ours, where they differ by more than its clock tells.
        self.clock_ahead = 0.0

    def open(self) -> None:
        """Read the secrets and prepare; connects to nothing yet."""
        self.close()
        broker = self._broker
        auth: httpx.Auth | None = None
        if broker.token is not None:
            token = broker.token.read(f"the token of broker {broker.name!r}")
            auth = Bearer(lambda: token)
        elif broker.oauth is not None:
            tokens = Tokens(broker.oauth, f"broker {broker.name!r}", broker.timeout)
            auth = Bearer(tokens.token, tokens.fetch)
        elif broker.user is not None and broker.password is not None:
            auth = httpx.BasicAuth(broker.user, broker.password.read(f"the password of broker {broker.name!r}"))
        self._metrics_auth = None
        if broker.metrics_user is not None and broker.metrics_password is not None:
            secret = broker.metrics_password.read(f"the metrics password of broker {broker.name!r}")
            self._metrics_auth = httpx.BasicAuth(broker.metrics_user, secret)
        context: ssl.SSLContext | bool = broker.tls.context() or True
        self._http = httpx.Client(auth=auth, timeout=broker.timeout, verify=context, follow_redirects=False)

    def close(self) -> None:
        """Disconnect."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def overview(self) -> dict[str, Any]:
        """What the node says of itself; the cheapest question that needs our credentials."""
        answer = self._management("overview", {})
        if not isinstance(answer, dict):
            raise self._bad("the management API's overview is no object")
        return answer

    def statistics(self, timeout: float | None = None) -> list[Any]:
        """Every queue with its statistics: one request, or one a vhost where those are listed."""
        return self._everywhere("queues", ",".join(STATISTICS), timeout=timeout)

    def queues(self) -> list[Any]:
        """Every queue as it was declared, with its policy's name: a tenth of what statistics cost the node."""
        return self._everywhere("queues", "name,vhost,type,node,arguments,policy", disable_stats="true")

    def policies(self) -> list[Any]:
        """Every policy."""
        return self._everywhere("policies", "name,vhost,definition")

    def bindings(self) -> list[Any]:
        """Every binding."""
        return self._everywhere("bindings", "source,vhost,destination,destination_type,routing_key")

    def exchanges(self) -> list[Any]:
        """Every exchange's type."""
        return self._everywhere("exchanges", "name,vhost,type", disable_stats="true")

    def consumers(self) -> list[Any]:
        """Every consumer's queue and prefetch."""
        return self._everywhere("consumers", "queue,prefetch_count")

    def metrics(self) -> list[bytes]:
        """The queue metrics of each node that answers; ConnectionLost if none does."""
        found: list[bytes] = []
        lost: ConnectionLost | None = None
        families = [("family", family) for family in METRIC_FAMILIES]
        query = urlencode(families + [("vhost", vhost) for vhost in self._broker.vhosts])
        for url in self._broker.metrics:
            try:
                # Our credentials are the management API's: they go nowhere else.
                found.append(self._get(f"{url}/metrics/detailed?{query}", auth=self._metrics_auth))
            except ConnectionLost as error:
                lost = error
        if lost is not None and not found:
            raise lost
        return found

    def _everywhere(self, what: str, columns: str, *, timeout: float | None = None, **more: str) -> list[Any]:
        query = {"columns": columns, **more}
        paths: Iterable[str] = [what]
        if self._broker.vhosts:
            paths = [f"{what}/{quote(vhost, safe='')}" for vhost in self._broker.vhosts]
        found: list[Any] = []
        for path in paths:
            answer = self._management(path, query, timeout)
            if not isinstance(answer, list):
                raise self._bad(f"the management API's {what} are no list")
            found += answer
        return found

    def _management(self, path: str, query: dict[str, str], timeout: float | None = None) -> Any:
        body = self._anywhere(f"/api/{path}" + (f"?{urlencode(query, safe=',')}" if query else ""), timeout)
        try:
            return from_json(body)
        except ValueError as error:
            raise self._bad(f"the management API's {path} is no JSON: {first_line(error)}") from None

    def _anywhere(self, what: str, timeout: float | None) -> bytes:
        """The answer of the first node that can be reached."""
        lost: ConnectionLost | None = None
        for url in list(self._urls):
            try:
                body = self._get(url + what, timeout=timeout)
            except BadAnswer:
                raise  # it answers: what is wrong is wrong everywhere
            except ConnectionLost as error:
                lost = lost or error
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return body
        assert lost is not None
        raise lost

    def _get(self, url: str, *, auth: Any = httpx.USE_CLIENT_DEFAULT, timeout: float | None = None) -> bytes:
        if self._http is None:
            raise ConnectionLost(f"broker {self._broker.name!r} is not connected")
        timeout = self._broker.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        try:
            with self._http.stream("GET", url, auth=auth, timeout=timeout) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise self._refused(answer, url)
                body = bytearray()
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) > ANSWER_LIMIT:
                        raise self._bad(f"an answer is larger than {ANSWER_LIMIT >> 20} MiB: list the vhosts to watch")
                    if time.monotonic() > deadline:
                        raise self._bad(f"an answer takes longer than {timeout:g} s")
                self._compare_clocks(answer.headers.get("date"))
                return bytes(body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            where = url.partition("?")[0]
            raise ConnectionLost(
                f"broker {self._broker.name!r} cannot be reached at {where}: {first_line(error)}"
            ) from None

    def _refused(self, answer: httpx.Response, url: str) -> Exception:
        where, status = url.partition("?")[0], answer.status_code
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            why = _reason(answer) or f"HTTP {status}"
            return CredentialsRefused(
                f"broker {self._broker.name!r} refuses {where}: {why}",
                "check user and password; the user needs the tag monitoring and a permission in each vhost",
            )
        if answer.is_redirect:
            return self._bad(f"{where} answers with a redirect, which is not followed: give the API's own address")
        return self._bad(f"{where} answers HTTP {status}")

    def _bad(self, what: str) -> BadAnswer:
        return BadAnswer(f"broker {self._broker.name!r}: {what}")

    def _compare_clocks(self, date: str | None) -> None:
        """The node tells whole seconds: only a larger difference is one."""
        try:
            theirs = parsedate_to_datetime(date or "").timestamp() + 0.5
        except ValueError:
            return
        ahead = theirs - time.time()
        self.clock_ahead = ahead if abs(ahead) > 2.0 else 0.0


def _reason(answer: httpx.Response) -> str:
    """What the management API says against us, a line of at most 200 letters."""
    try:
        body = from_json(next(answer.iter_bytes(4096), b""))
        return str(body.get("reason") or body.get("error") or "")[:200].replace("\n", " ")
    except (ValueError, AttributeError, httpx.HTTPError):
        return ""
