"""What Spark needs of a lake in an object store: jars, settings, and credentials by the environment of its Java.

Credentials are no settings of Spark's on this machine: whoever asks SQL could otherwise ask for those, too. Executors
on others have them of their own – a role, their environment –, as they have Sojourn installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from lake.errors import UserError
from lake.remote import Location, Remote, arrow_names
from spark_analytics.runtime.jars import ensure_s3_jars

#: What a Java's environment calls the credentials.
_VARIABLES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
#: Who is asked for credentials, in this order: the environment, then the machine's role.
_PROVIDERS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)


def store_jars(tables: Location) -> list[Path]:
    """The jars by which Spark reads ``tables``, beside those that it needs anyway. UserError where there are none."""
    if not isinstance(tables, Remote):
        return []
    if not tables.store.url.startswith("s3:"):
        raise UserError(
            f"Spark reads no lake at {tables} here: its jars are not declared", "use --engine reader, or s3://"
        )
    return ensure_s3_jars()


def store_settings(tables: Location) -> dict[str, str]:
    """Spark's settings to read ``tables``; nothing in them is secret."""
    if not isinstance(tables, Remote):
        return {}
    told = arrow_names(tables.store.options)
    virtual = tables.store.options.get("aws_virtual_hosted_style_request", "").lower() == "true"
    settings = {
        "aws.credentials.provider": ",".join(_PROVIDERS),
        "endpoint.region": told["region"],
        "path.style.access": str(not virtual).lower(),
        "input.stream.type": "classic",  # the other kinds need another library
    }
    if endpoint := told.get("endpoint_override"):
        settings |= {"endpoint": endpoint, "connection.ssl.enabled": str(endpoint.startswith("https")).lower()}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def store_environment(tables: Location) -> dict[str, str]:
    """The credentials for ``tables`` as Java finds them in its environment; those of its own are left alone."""
    if not isinstance(tables, Remote):
        return {}
    told = arrow_names(tables.store.options)
    return {variable: told[name] for name, variable in _VARIABLES.items() if name in told}


def store_port(tables: Location) -> int | None:
    """The TCP port at which the store of ``tables`` is reached."""
    if not isinstance(tables, Remote):
        return None
    endpoint: Mapping[str, str] = arrow_names(tables.store.options)
    parts = urlsplit(endpoint.get("endpoint_override", "https://"))
    return parts.port or (80 if parts.scheme == "http" else 443)
