"""Reading one page of metrics each cycle. Only I/O."""

from __future__ import annotations

import httpx

from brokers.errors import ConnectionLost, CredentialsRefused
from collectors.prometheus.parse import NotMetrics, samples
from collectors.prometheus.recipes import RECIPES
from collectors.prometheus.settings import PrometheusBroker
from collectors.records import now_us
from collectors.samples import Sample

#: The most that is read of a page.
_MOST_BYTES = 64 << 20


class PrometheusSource:
    """Samples of every queue that the page tells of."""

    def __init__(self, broker: PrometheusBroker) -> None:
        self._broker = broker
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Make a client; the page is asked for by the first reading."""
        await self.close()
        broker = self._broker
        headers, auth = {"Accept": "text/plain;version=0.0.4"}, None
        if broker.token is not None:
            headers["Authorization"] = f"Bearer {broker.token.read(f'the token of broker {broker.name!r}')}"
        elif broker.user is not None:
            password = broker.password.read(f"the password of broker {broker.name!r}") if broker.password else ""
            auth = httpx.BasicAuth(broker.user, password)
        context = broker.tls.context()
        self._client = httpx.AsyncClient(
            headers=headers, auth=auth, timeout=broker.timeout, verify=context if context is not None else True
        )

    async def read(self) -> list[Sample]:
        """Every queue once, at our own time: metrics tell none."""
        if self._client is None:
            raise ConnectionLost(f"the connection to broker {self._broker.name!r} is lost")
        page, broker = await self._page(self._client), self._broker
        try:
            return samples(
                page,
                RECIPES[broker.recipe],
                now_us(),
                queues=broker.queues,
                dead_letters=broker.dead_letters,
                rules=broker.tenant,
                staleness=broker.staleness,
            )
        except NotMetrics as error:
            raise ConnectionLost(f"broker {broker.name!r}: {error}") from None

    async def _page(self, client: httpx.AsyncClient) -> str:
        name, parts, size = self._broker.name, list[bytes](), 0
        try:
            async with client.stream("GET", self._broker.url) as answer:
                if answer.status_code in (401, 403):
                    what = f"broker {name!r} refuses its metrics: {answer.status_code}"
                    raise CredentialsRefused(what, "fix token, or user and password")
                if answer.status_code != 200:
                    raise ConnectionLost(f"broker {name!r} answers {answer.status_code} for its metrics")
                async for part in answer.aiter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > _MOST_BYTES:
                        raise ConnectionLost(f"broker {name!r}: its metrics are more than {_MOST_BYTES >> 20} MiB")
        except httpx.HTTPError as error:
            why = f"{type(error).__name__} {error}".strip()
            raise ConnectionLost(f"broker {name!r} cannot be read: {why}") from None
        return b"".join(parts).decode("utf-8", "replace")

    async def close(self) -> None:
        """Let go of the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
