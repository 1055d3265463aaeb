"""How every Kafka client of ours connects: addresses, SASL and TLS as librdkafka's configuration."""

from __future__ import annotations

from typing import Any

from collectors.kafka.settings import KafkaBroker


def connection(broker: KafkaBroker) -> dict[str, Any]:
    """librdkafka's configuration for ``broker``. It holds the password: never log or print it.

    UserError if the password cannot be read.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": "sojourn",
        "socket.timeout.ms": round(broker.timeout_seconds * 1000),
        "socket.connection.setup.timeout.ms": max(1000, round(broker.timeout_seconds * 1000)),
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2000,
        "log_level": 0,  # what goes wrong is raised; librdkafka's own lines on stderr help nobody
        "log.connection.close": False,
    }
    encrypted = broker.tls.enabled
    if broker.user is not None:
        config["sasl.mechanism"] = broker.mechanism
        config["sasl.username"] = broker.user
        assert broker.password is not None  # the settings are whole
        config["sasl.password"] = broker.password.read(f"the password of broker {broker.name!r}")
    config["security.protocol"] = ("SASL_" if broker.user is not None else "") + ("SSL" if encrypted else "PLAINTEXT")
    if encrypted:
        for key, path in (
            ("ssl.ca.location", broker.tls.ca),
            ("ssl.certificate.location", broker.tls.certificate),
            ("ssl.key.location", broker.tls.key),
        ):
            if path is not None:
                config[key] = str(path.expanduser())
    return config
