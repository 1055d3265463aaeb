"""``kind = "rabbitmq"``: a RabbitMQ node or cluster, and which of its APIs to read."""

from __future__ import annotations

from typing import ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from brokers.settings import ClientCredentials, Settings, without_secrets
from collectors.broker import NetworkBroker, each_once, matching
from collectors.plumbing import is_plumbing
from lake.secret import Secret

_METRICS_PORT = 15692


class ProbeSettings(Settings):
    """The publish-latency probe; it runs where ``amqp_url`` is set."""

    interval: float = Field(default=1.0, ge=0.05, description="seconds between two messages of the probe")
    window: int = Field(default=30, ge=1, le=10_000, description="confirmations that the median is taken over")
    timeout: float = Field(default=10.0, ge=0.5, description="seconds for connecting, and for one confirmation")


class RabbitBroker(NetworkBroker):
    """One node or cluster; the user needs the tag ``monitoring`` and a permission, even an empty one, in each vhost."""

    default_port: ClassVar[int] = 15672
    kind: Literal["rabbitmq"] = "rabbitmq"
    name: str = Field(default="rabbitmq", min_length=1)
    url: str = Field(default="http://127.0.0.1:15672", description="the management API")
    servers: tuple[str, ...] = Field(
        default=(), description="the management API at further nodes of the cluster, asked where one is away"
    )
    amqp_url: str | None = Field(
        default=None, description="amqp://host:port/vhost or amqps://…: where the publish-latency probe connects"
    )
    metrics_urls: tuple[str, ...] = Field(
        default=(),
        description="rabbitmq_prometheus of every node, each tells its own queues; "
        "port 15692 at the hosts of url and servers unless set",
    )
    metrics_user: str | None = Field(
        default=None, description="where a proxy asks for credentials before the metrics; else none are shown there"
    )
    metrics_password: Secret | None = None
    token: Secret | None = Field(
        default=None, description="where an OAuth 2 access token for the management API stands, read at each connecting"
    )
    oauth: ClientCredentials | None = Field(
        default=None,
        description="where such tokens are fetched by client credentials, anew before they end",
    )
    api: Literal["auto", "management", "prometheus"] = Field(
        default="auto", description="what is read each cycle; auto: management while it costs little, else prometheus"
    )
    management_share: float = Field(
        default=0.25, gt=0, le=1, description="auto: the share of a cycle that the management API may take"
    )
    statistics_interval: float = Field(
        default=5.0,
        ge=0.1,
        description="the node's collect_statistics_interval in seconds; queues are read twice in it, not more often",
    )
    vhosts: tuple[str, ...] = Field(default=(), description="virtual hosts to watch; empty: all that the user may see")
    plumbing: bool = Field(
        default=False, description="sample Celery's own queues, too: pidbox, replies, results, events"
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="patterns (*, ?) of queues, as Sojourn names them, to leave out"
    )
    timeout: float = Field(default=10.0, ge=0.5, description="seconds that one answer may take")
    probe: ProbeSettings = ProbeSettings()

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        return _of_scheme(url, "http", "https").rstrip("/")

    @field_validator("metrics_urls", "servers")
    @classmethod
    def _metrics(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        each_once(list(urls))
        return tuple(_of_scheme(without_secrets(url), "http", "https").rstrip("/") for url in urls)

    @field_validator("amqp_url")
    @classmethod
    def _amqp(cls, url: str | None) -> str | None:
        return None if url is None else _of_scheme(without_secrets(url), "amqp", "amqps")

    @field_validator("vhosts")
    @classmethod
    def _vhosts(cls, vhosts: tuple[str, ...]) -> tuple[str, ...]:
        each_once(list(vhosts))
        return vhosts

    @model_validator(mode="after")
    def _secured(self) -> RabbitBroker:
        if self.tls.enabled:
            for url in (*self.urls, self.amqp_url):
                if url is not None and not urlsplit(url).scheme.endswith("s"):
                    raise ValueError(f"tls is enabled and {url} is not: give https:// and amqps://")
        if (self.user is None) != (self.password is None):
            raise ValueError("give user and password together")
        if (self.metrics_user is None) != (self.metrics_password is None):
            raise ValueError("give metrics_user and metrics_password together")
        if self.token is not None and self.oauth is not None:
            raise ValueError("give either a token or oauth, by which tokens are fetched")
        if (self.token or self.oauth) is not None and self.user is not None and self.amqp_url is None:
            raise ValueError("give either a token or user and password, which only the probe would take beside it")
        return self

    @property
    def urls(self) -> tuple[str, ...]:
        """The management API at every node that is named, the first first."""
        return tuple(dict.fromkeys((self.url, *self.servers)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The Prometheus endpoints to read."""
        return self.metrics_urls or tuple(dict.fromkeys(f"http://{_host(url)}:{_METRICS_PORT}" for url in self.urls))

    @property
    def amqp_vhost(self) -> str:
        """The virtual host that the probe's queue is made in."""
        return unquote(urlsplit(self.amqp_url or "").path[1:]) or "/"

    def chooses(self, queue: str) -> bool:
        """Whether ``queue``, as Sojourn names it, is to be sampled."""
        inner = not self.plumbing and is_plumbing(queue.rpartition("/")[2])
        return not inner and not matching(queue, self.exclude)

    def systems(self) -> frozenset[str]:
        """RabbitMQ, and Celery, which may use it."""
        return frozenset({"rabbitmq", "celery"})

    def addresses(self) -> list[tuple[str, int]]:
        """The management API, unless it is not read, and AMQP where there is a probe."""
        found = [_address(url, self.default_port) for url in self.urls] if self.api != "prometheus" else []
        if self.api == "prometheus" or self.metrics_urls:
            found += [_address(url, _METRICS_PORT) for url in self.metrics]
        if self.amqp_url is not None:
            found.append(_address(self.amqp_url, amqp_port(self.amqp_url)))
        return found


def amqp_port(url: str) -> int:
    """The port of an AMQP address, or its scheme's own."""
    parts = urlsplit(url)
    return parts.port or (5671 if parts.scheme == "amqps" else 5672)


def _address(url: str, port: int) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or port


def _host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def _of_scheme(url: str, *schemes: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"{url!r} is no address that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    return url
