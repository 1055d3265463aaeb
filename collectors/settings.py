"""``[collect]``: which brokers to watch, how often, and how much to hold when the lake does not take it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from brokers.settings import Settings
from collectors.broker import each_once
from collectors.kafka.settings import KafkaBroker
from collectors.nats.settings import NatsBroker
from collectors.postgres.settings import PostgresBroker
from collectors.prometheus.settings import PrometheusBroker
from collectors.rabbitmq.settings import RabbitBroker
from collectors.receive.settings import ReceiveSettings
from collectors.redis.settings import RedisBroker
from collectors.sqs.settings import SqsBroker
from collectors.transport.settings import TransportSettings


def _kind(value: Any) -> str:
    return str(value.get("kind", "nats") if isinstance(value, dict) else getattr(value, "kind", "nats"))


#: The settings of one broker, told apart by ``kind``; "nats" where it is left out.
BrokerSettings = Annotated[
    Annotated[NatsBroker, Tag("nats")]
    | Annotated[RedisBroker, Tag("redis")]
    | Annotated[RabbitBroker, Tag("rabbitmq")]
    | Annotated[KafkaBroker, Tag("kafka")]
    | Annotated[SqsBroker, Tag("sqs")]
    | Annotated[PostgresBroker, Tag("postgres")]
    | Annotated[PrometheusBroker, Tag("prometheus")],
    Discriminator(
        _kind,
        custom_error_type="broker_kind",
        custom_error_message="no collector for brokers of that kind: "
        "known are nats, redis, rabbitmq, kafka, sqs, postgres, prometheus",
    ),
]


class CollectSettings(Settings):
    """The whole section; the defaults watch nothing until a broker is listed."""

    brokers: tuple[BrokerSettings, ...] = ()
    sample_interval: float = Field(default=1.0, ge=0.05, description="seconds between two samples of every queue")
    flush_interval: float = Field(
        default=0.2,
        ge=0.02,
        le=60,
        description="least seconds between two commits to the lake; fewer than 200 events of a tap wait for others, "
        "3 times as long at most",
    )
    buffer_capacity: int = Field(
        default=100_000, ge=1, description="events held while the lake takes none; above, they are rolled up"
    )
    compact_every: int = Field(default=150, ge=10, description="commits between two compactions of a bronze table")
    connect_grace: float = Field(default=10.0, ge=0, description="seconds in which one broker must be reached at start")
    receive: ReceiveSettings = ReceiveSettings()
    transport: TransportSettings = TransportSettings()
    metrics_port: int | None = Field(default=None, ge=0, le=65535, description="port of the Prometheus metrics")
    metrics_host: str = Field(default="127.0.0.1", description="address that serves them; they ask for no token")
    metrics_series: int = Field(
        default=10_000, ge=1, description="queues × subscribers × tenants counted apart; the rest is tenant 'other'"
    )

    @field_validator("brokers")
    @classmethod
    def _each_once(cls, brokers: tuple[BrokerSettings, ...]) -> tuple[BrokerSettings, ...]:
        each_once([broker.name for broker in brokers])
        return brokers
