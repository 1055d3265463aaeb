"""How librdkafka is told where a cluster is and who we are there."""

from __future__ import annotations

from typing import Any

from brokers.kafka.settings import KafkaCluster
from lake.errors import UserError


def configuration(broker: KafkaCluster) -> dict[str, Any]:
    """librdkafka's configuration for ``broker``, but for who we are by AWS. It holds the password: never log it.

    UserError if a secret cannot be read, or for what librdkafka cannot do.
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
    config["security.protocol"] = ("SASL_" if broker.by_sasl else "") + ("SSL" if encrypted else "PLAINTEXT")
    config |= _credentials(broker)
    if encrypted:
        for key, path in (
            ("ssl.ca.location", broker.tls.ca),
            ("ssl.certificate.location", broker.tls.certificate),
            ("ssl.key.location", broker.tls.key or broker.tls.certificate),
        ):
            if path is not None:
                config[key] = str(path.expanduser())
        if broker.tls.key_password is not None:
            config["ssl.key.password"] = broker.tls.key_password.read("the key's password")
    if broker.server_name is not None:
        raise UserError(
            f"broker {broker.name!r} has a server_name, which librdkafka cannot check instead of the host's",
            "give certificates the brokers' own names, or leave the tap and other mechanisms out",
        )
    return config


def _credentials(broker: KafkaCluster) -> dict[str, Any]:
    """Who we are."""
    of = f"of broker {broker.name!r}"
    if broker.oauth is not None:
        oauth = broker.oauth
        found: dict[str, Any] = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
            "sasl.oauthbearer.client.id": oauth.client_id,
            "sasl.oauthbearer.client.secret": oauth.client_secret.read(f"the client's secret {of}"),
        }
        if oauth.scope is not None:
            found["sasl.oauthbearer.scope"] = oauth.scope
        if oauth.extensions:
            found["sasl.oauthbearer.extensions"] = ",".join(f"{name}={said}" for name, said in oauth.extensions.items())
        return found
    if broker.kerberos is not None:
        kerberos = broker.kerberos
        found = {
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": kerberos.service,
            "sasl.kerberos.principal": kerberos.principal,
        }
        return found | ({"sasl.kerberos.keytab": str(kerberos.keytab.expanduser())} if kerberos.keytab else {})
    if broker.user is None:
        return {}
    assert broker.password is not None  # the settings are whole
    secret = broker.password.read(f"the password {of}")
    return {"sasl.mechanism": broker.mechanism, "sasl.username": broker.user, "sasl.password": secret}
