"""How pika is told where a RabbitMQ node is and who we are there."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from brokers.settings import ServerSettings


def parameters(settings: ServerSettings, name: str, timeout: float, called: str) -> Any:
    """pika's parameters for ``amqp://host:port/vhost``; ``called`` is what the node shows of us, ``timeout`` seconds.

    UserError where a secret or a file of TLS cannot be read.
    """
    import pika

    parts = urlsplit(settings.url)
    options: dict[str, Any] = {}
    if parts.scheme == "amqps":
        options["ssl_options"] = pika.SSLOptions(
            settings.tls.context() or ssl.create_default_context(), parts.hostname or ""
        )
    if settings.user is not None and settings.password is not None:
        secret = settings.password.read(f"the password of {name!r}")
        options["credentials"] = pika.PlainCredentials(settings.user, secret)
    host, port = settings.address
    return pika.ConnectionParameters(
        host,
        port,
        unquote(parts.path[1:]) or "/",
        socket_timeout=timeout,
        stack_timeout=timeout,
        blocked_connection_timeout=timeout,
        connection_attempts=1,
        client_properties={"connection_name": called},
        **options,
    )
