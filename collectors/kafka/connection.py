"""librdkafka, as every client of ours that it serves is connected: addresses, SASL and TLS; its errors as ours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.kafka.librdkafka import configuration
from collectors.kafka.settings import KafkaBroker
from lake.errors import SojournError, UserError

Result = TypeVar("Result")

#: For its own lines about what goes wrong, which help nobody: it is raised.
UNHEARD = logging.getLogger(f"{__name__}.librdkafka")
UNHEARD.addHandler(logging.NullHandler())
UNHEARD.propagate = False

CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


def connection(broker: KafkaBroker) -> dict[str, Any]:
    """:func:`brokers.kafka.librdkafka.configuration` of ``broker``, who may also be let in by AWS."""
    config = configuration(broker)
    if broker.aws is not None:
        from collectors.kafka.msk import tokens

        config |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens(broker.aws, broker.name)}
    return config


def explaining(broker: KafkaBroker, work: Callable[[], Result], who: str = "the tap") -> Result:
    """What ``work`` returns; librdkafka's errors as ours. ``who`` asks."""
    try:
        return work()
    except KafkaException as error:
        raise explained(error, broker, who) from None
    except TimeoutError:
        raise ConnectionLost(f"broker {broker.name!r} at {broker.bootstrap} does not answer") from None


def explained(error: KafkaException, broker: KafkaBroker, who: str = "the tap") -> SojournError:
    """librdkafka's error as one of ours."""
    reason = error.args[0]
    if reason.code() in CREDENTIALS:
        return CredentialsRefused(
            f"broker {broker.name!r} at {broker.bootstrap} refuses the credentials", "check user, password, mechanism"
        )
    if reason.code() in FORBIDDEN:
        return UserError(
            f"broker {broker.name!r} forbids {who}: {reason.str()}",
            "allow READ and DESCRIBE of its topics, DESCRIBE of its groups",
        )
    if reason.code() == KafkaError._INVALID_ARG:  # what this build of librdkafka lacks: Kerberos, most often
        return UserError(f"broker {broker.name!r} cannot be asked by librdkafka: {reason.str()}", "check the settings")
    return ConnectionLost(f"broker {broker.name!r} at {broker.bootstrap} cannot be read: {reason.str()}")
