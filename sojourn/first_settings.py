"""The first ``sojourn.toml``, annotated, of what :mod:`sojourn.found` found: a text without any secret."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sojourn.found import Found

_HEAD = """\
# Sojourn's settings, begun by `sojourn init`. The environment overrides any key: SOJOURN_COLLECT__SAMPLE_INTERVAL=2.
# Check them with `sojourn doctor -c {name}`, start everything with `sojourn up -c {name}`.

[lake]
root = "lake-data"            # the folder of all tables

[definitions]
target_seconds = 30           # how long a message may wait before its queue counts as behind

[collect]
sample_interval = 1.0         # seconds between two samples of every queue
# metrics_port = 9464         # Prometheus metrics of every queue, on 127.0.0.1
# receive = {{ enabled = true }}  # OpenTelemetry spans from your applications, and `import sojourn`: docs/otlp.md
"""
_TAIL = """
# Who is told when an alert fires; without one, alerts show on the page alone. The other formats: docs/notifications.md.
# [[alert.receivers]]
# name = "pager"
# url = "https://hooks.example.com/…"
# secret_env = "PAGER_SECRET"

# [dashboard]
# port = 8501
"""
_NOTHING = """
# No broker was found on the usual ports of this machine, nor in its environment. One looks like this:
# [[collect.brokers]]
# kind = "redis"              # or nats, rabbitmq, kafka, sqs, postgres, prometheus: docs/brokers/README.md
# name = "jobs"
# url = "redis://redis.internal:6379/0"
"""
#: Kind → how a tenant would be found there, as an example in a comment.
_TENANT = {"sidekiq": "json:args[0].tenant", "bullmq": "json:tenant.id", "dramatiq": "json:kwargs.tenant"}
_LIBRARIES = {"dyno": "dyno-queues", "streams": "Redis Streams", "celery": "Celery", "rq": "RQ"}


def written(found: Sequence[Found], name: str = "sojourn.toml") -> str:
    """The settings for ``found``, to be written to a file called ``name``."""
    text, names = _HEAD.format(name=name), set[str]()
    for one in found:
        title, number = one.kind, 2
        while title in names:
            title, number = f"{one.kind}-{number}", number + 1
        names.add(title)
        text += _broker(one, title)
    return text + (_NOTHING if not found else "") + _TAIL


def _broker(one: Found, name: str) -> str:
    lines = ["", f"# Found by {one.by}.", *(f"# {_one_line(note)}" for note in one.notes)]
    lines += ["[[collect.brokers]]", f"kind = {_quoted(one.kind)}", f"name = {_quoted(name)}"]
    lines += _KINDS[one.kind](one)
    if one.user and one.kind != "sqs":
        lines.append(f"user = {_quoted(one.user)}")
    if one.secret:
        variable = f"{name.upper().replace('-', '_')}_PASSWORD"
        lines.append(f"# {one.variable} holds a password: put it into a variable of its own, or name a file.")
        lines.append(f'password = {{ env = "{variable}" }}    # or {{ file = "/run/secrets/{name}" }}')
    return "\n".join(lines) + "\n"


def _redis(one: Found) -> list[str]:
    lines = [f"url = {_quoted(f'{_scheme(one)}://{_host(one)}:{one.port}/{one.path or 0}')}"]
    for layout in one.layouts:
        example = f"    # tenant = {_quoted(_TENANT[layout])}" if layout in _TENANT else ""
        title = _LIBRARIES.get(layout, layout.capitalize())
        lines.append(f"{layout} = {{}}    # queues of {title} are here{example}")
    if not one.layouts:
        lines.append(
            "# Nothing that is known keeps queues there now: every layout is searched for. Name those that you use:"
        )
        lines.append("# sidekiq = {}    # bullmq, dramatiq, celery, rq, resque, streams, dyno")
    return lines


def _scheme(one: Found) -> str:
    return "rediss" if one.tls else "redis"


def _nats(one: Found) -> list[str]:
    return [
        f"url = {_quoted(f'nats://{_host(one)}:{one.port}')}",
        '# streams = ["ORDERS"]    # whose messages are followed one by one, tenant and all: docs/brokers/nats.md',
    ]


def _kafka(one: Found) -> list[str]:
    return [
        f"bootstrap = {_quoted(f'{_host(one)}:{one.port}')}",
        '# tap = { topics = ["orders"] }    # whose records are followed one by one: docs/brokers/kafka.md',
    ]


def _rabbitmq(one: Found) -> list[str]:
    lines = []
    if one.port in (5671, 5672):
        lines.append(f"# {one.by} is where messages go; the management API is asked, here at its usual port.")
    scheme, port = ("https", 15671) if one.tls else ("http", 15672)
    port = port if one.port in (5671, 5672) else one.port
    lines.append(f"url = {_quoted(f'{scheme}://{_host(one)}:{port}')}")
    if one.tls:
        lines.append("tls = { enabled = true }")
    if one.user is None:
        lines += ['# user = "sojourn"    # with the tag monitoring: docs/brokers/rabbitmq.md']
        lines += ['# password = { env = "RABBITMQ_PASSWORD" }']
    return lines


def _postgres(one: Found) -> list[str]:
    database = one.path or "postgres"
    lines = [f"url = {_quoted(f'postgresql://{_host(one)}:{one.port}/{database}')}"]
    if one.user is None:
        lines += ['# user = "sojourn"    # with the read-only role of docs/brokers/postgres.md']
        lines += ['# password = { env = "POSTGRES_PASSWORD" }']
    return lines


def _sqs(one: Found) -> list[str]:
    if one.port == 443:
        return [f"region = {_quoted(one.path)}    # credentials are found as the AWS tools find them"]
    return [f"endpoint = {_quoted(f'http://{_host(one)}:{one.port}')}"]


_KINDS = {
    "redis": _redis,
    "nats": _nats,
    "kafka": _kafka,
    "rabbitmq": _rabbitmq,
    "postgres": _postgres,
    "sqs": _sqs,
}


def _host(one: Found) -> str:
    return f"[{one.host}]" if ":" in one.host else one.host


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's."""
    return json.dumps(text)


def _one_line(text: str) -> str:
    """A comment that stays one, whatever a server said."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
