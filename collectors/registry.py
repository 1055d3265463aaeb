"""Every kind of broker that can be watched, and where its collectors are made."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from collectors.base import Collector
from collectors.context import Context
from lake.errors import UserError

#: Kind of broker → the function that makes its collectors. Imported only when a broker of that kind is configured.
#: Its settings stand in the union of :mod:`collectors.settings`.
KINDS: dict[str, str] = {
    "nats": "collectors.nats.factory:make",
    "redis": "collectors.redis.factory:make",
    "rabbitmq": "collectors.rabbitmq.factory:make",
    "kafka": "collectors.kafka.factory:make",
    "sqs": "collectors.sqs.factory:make",
    "postgres": "collectors.postgres.factory:make",
    "prometheus": "collectors.prometheus.factory:make",
}


class Factory(Protocol):
    """Makes the collectors of one broker; connects to nothing yet."""

    def __call__(self, broker: Any, context: Context) -> Sequence[Collector]: ...


def factory(kind: str) -> Factory:
    """The factory for brokers of ``kind``; it takes that kind's settings."""
    if kind not in KINDS:
        raise UserError(f"there is no collector for brokers of kind {kind!r}", f"known are {', '.join(sorted(KINDS))}")
    module, name = KINDS[kind].split(":")
    try:
        return cast(Factory, getattr(import_module(module), name))
    except ModuleNotFoundError as error:
        raise UserError(f"the package {error.name!r} is missing", "pip install 'sojourn[collectors]'") from None
