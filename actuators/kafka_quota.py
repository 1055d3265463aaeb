"""``kind = "kafka_quota"``: a client quota in bytes/s, by which Kafka itself slows a tenant's clients down.

Quotas hold at each broker for itself and have no end of their own. They need a user or a client id for each tenant.
"""

from __future__ import annotations

import json
import time
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from actuators.base import ActuatorSettings, Demand, Refused, filled
from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.kafka.link import Link
from brokers.kafka.settings import KafkaCluster
from brokers.kafka.wire.cluster import Node
from brokers.kafka.wire.codec import Reader, Request
from brokers.kafka.wire.quotas import (
    ALTER_QUOTAS,
    alter_quota_request,
    describe_quotas_request,
    read_altered,
    read_quotas,
)
from lake.errors import SojournError

#: TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, POLICY_VIOLATION, UNSUPPORTED_VERSION.
_REFUSALS = frozenset({29, 30, 31, 42, 44, 35})

_LOOK_AGAIN = 0.02


class KafkaQuotaSettings(ActuatorSettings, KafkaCluster):
    """Whose quota, and how many bytes a message is. Needs ALTER_CONFIGS and DESCRIBE_CONFIGS of the cluster."""

    kind: Literal["kafka_quota"] = "kafka_quota"
    timeout_seconds: float = Field(default=3.0, gt=0, le=60, description="for each request to a broker")
    entity_user: str | None = Field(default=None, description="the tenant's user; {tenant} is replaced")
    entity_client_id: str | None = Field(default=None, description="the tenant's client id; {tenant} is replaced")
    quota: Literal["producer_byte_rate", "consumer_byte_rate"] = "producer_byte_rate"
    message_bytes: float = Field(gt=0, description="bytes of a message on the wire: rate × this is the quota")
    brokers: int = Field(default=1, ge=1, description="brokers that lead the queue's partitions: each has its share")

    @model_validator(mode="after")
    def _of_one_tenant(self) -> Self:
        if "{tenant}" not in (self.entity_user or "") + (self.entity_client_id or ""):
            raise ValueError("entity_user or entity_client_id needs {tenant}: a quota must be one tenant's")
        if self.by_sasl and self.user is None:
            raise ValueError(f"an actuator cannot say who it is by {self.mechanism}")
        return self


class KafkaQuota:
    """Sets and removes one quota for each tenant."""

    ends_by_itself: ClassVar[bool] = False

    def __init__(self, settings: KafkaQuotaSettings) -> None:
        self._settings = settings

    @property
    def slows_consumers(self) -> bool:
        """It does where the quota is consumers'."""
        return self._settings.quota == "consumer_byte_rate"

    def place(self, demand: Demand) -> str:
        """The entity, as JSON."""
        names = {"user": self._settings.entity_user, "client-id": self._settings.entity_client_id}
        return json.dumps({kind: filled(name, demand) for kind, name in names.items() if name is not None})

    def value(self, demand: Demand) -> str:
        """Bytes/s at each broker."""
        settings = self._settings
        return repr(max(1.0, float(round(demand.rate * settings.message_bytes / settings.brokers))))

    def read(self, place: str) -> str | None:
        """The quota."""
        error, why, quotas = read_quotas(self._asked(describe_quotas_request(json.loads(place))))
        _check(error, why)
        found = quotas.get(self._settings.quota)
        return None if found is None else repr(found)

    def check(self, before: str | None, value: str) -> None:
        """A limit never loosens what somebody else has set."""
        if before is not None and float(before) <= float(value):
            raise Refused(f"a quota of {before} stands there already, stricter than {value}")

    def write(self, place: str, value: str | None, seconds: float) -> None:
        """Set the quota, or remove it, and wait until a broker knows: its controller has it first."""
        wanted = None if value is None else float(value)
        _check(*read_altered(self._asked(alter_quota_request(json.loads(place), self._settings.quota, wanted))))
        deadline = time.monotonic() + self._settings.timeout_seconds
        while self.read(place) != value and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN)

    def _asked(self, request: Request) -> Reader:
        settings = self._settings
        password = settings.password.read(f"the password of {settings.name!r}") if settings.password else None
        lost: ConnectionLost | None = None
        for host, port in settings.addresses():
            try:
                link = Link(settings, Node(host, port), password)
            except ConnectionLost as error:
                lost = error
                continue
            except CredentialsRefused as error:
                raise Refused(str(error)) from None
            try:
                oldest, newest = link.versions.get(ALTER_QUOTAS, (0, -1))
                if not oldest <= 1 <= newest:
                    raise Refused(f"the broker at {link.where} knows no client quotas (AlterClientQuotas 1)")
                return link.ask(request)
            except ConnectionLost as error:
                lost = error
            finally:
                link.close()
        assert lost is not None
        raise lost


def _check(error: int, why: str) -> None:
    if error in _REFUSALS:
        raise Refused(f"Kafka refuses: {why or f'error {error}'}")
    if error:
        raise SojournError(f"Kafka fails: {why or f'error {error}'}")
