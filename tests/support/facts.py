"""What tests prove of each kind of broker: the table of docs/brokers/README.md.

A test says by :func:`proves` what holds once it has passed, and by the fixture :func:`note` what it found in samples.
``python -m pytest -p tests.support.facts --facts tests/collectors`` notes in ``tests/collectors/facts.json`` what
passed, and ``python -m tests.support.facts`` writes the page. What nobody tried stands in :data:`NOT_TRIED`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from collectors.samples import Sample

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "collectors" / "facts.json"
PAGE = ROOT / "docs" / "brokers" / "README.md"


class Row(NamedTuple):
    """A row of the table: its name, its page, and the row of the server that it runs on, where that has one."""

    name: str
    page: str
    server: str = ""


#: Kinds of brokers, and libraries that keep queues of their own on one. Those of :data:`SERVERS` tell what holds for
#: all libraries on that server.
KINDS = {
    "nats": Row("NATS JetStream", "nats.md"),
    "kafka": Row("Kafka", "kafka.md"),
    "rabbitmq": Row("RabbitMQ", "rabbitmq.md"),
    "sqs": Row("SQS", "sqs.md"),
    "redis": Row("Redis, whatever is kept there", "redis.md"),
    "streams": Row("Redis' streams", "redis.md", "redis"),
    "dyno": Row("dyno-queues' recipe", "redis.md", "redis"),
    "celery": Row("Celery, on Redis", "redis.md", "redis"),
    "rq": Row("RQ", "redis.md", "redis"),
    "sidekiq": Row("Sidekiq", "sidekiq.md", "redis"),
    "bullmq": Row("BullMQ", "bullmq.md", "redis"),
    "dramatiq": Row("Dramatiq, on Redis", "dramatiq.md", "redis"),
    "resque": Row("Resque", "dramatiq.md", "redis"),
    "postgres": Row("PostgreSQL, whatever is kept there", "postgres.md"),
    "oban": Row("Oban", "postgres.md", "postgres"),
    "river": Row("River", "postgres.md", "postgres"),
    "pgboss": Row("pg-boss", "postgres.md", "postgres"),
    "solid_queue": Row("Solid Queue", "postgres.md", "postgres"),
    "good_job": Row("GoodJob", "postgres.md", "postgres"),
    "procrastinate": Row("Procrastinate", "postgres.md", "postgres"),
    "pgmq": Row("PGMQ", "postgres.md", "postgres"),
    "graphile": Row("graphile-worker", "postgres.md", "postgres"),
    "pgqueuer": Row("PgQueuer", "postgres.md", "postgres"),
    "pulsar": Row("Pulsar, by its metrics", "metrics.md"),
    "artemis": Row("Artemis, by its metrics", "metrics.md"),
    "pubsub": Row("Google Pub/Sub, by its metrics", "metrics.md"),
    "servicebus": Row("Azure Service Bus, by its metrics", "metrics.md"),
}
SERVERS = {row.server for row in KINDS.values() if row.server}
#: What libraries on one server have in common stands in the row of the server.
SHARED = ("auth", "cluster shapes")
#: Columns of the table → the columns of samples that the contract suite looks at; the others are told by tests alone.
MEASURED = {"depth": "depth", "in flight": "in_flight", "age": "oldest_age_seconds", "consumers": "consumers"}
COLUMNS = ("depth", "in flight", "age", "per tenant", "consumers", "dead letters", "auth", "cluster shapes")
#: What the code is written for and nobody has tried against the real thing.
NOT_TRIED: dict[str, dict[str, tuple[str, ...]]] = {
    "nats": {"cluster shapes": ("a cluster of several servers with replicated streams", "leaf nodes, superclusters")},
    "redis": {"cluster shapes": ("Valkey, KeyDB", "managed ones: ElastiCache, MemoryDB, Upstash")},
    "rabbitmq": {
        "auth": ("a certificate in place of a password",),
        "cluster shapes": ("a cluster of several nodes", "RabbitMQ 4", "Amazon MQ, CloudAMQP"),
    },
    "kafka": {
        "auth": ("SCRAM-SHA-256", "AWS_MSK_IAM", "GSSAPI (Kerberos)"),
        "cluster shapes": ("ZooKeeper, and brokers before 4.3", "Redpanda, Event Hubs, MSK, Confluent Cloud"),
    },
    "postgres": {
        "auth": ("a certificate in place of a password", "IAM tokens of managed ones"),
        "cluster shapes": ("PgBouncer, RDS, Aurora",),
    },
    "oban": {"cluster shapes": ("Oban itself",)},
    "pgboss": {"cluster shapes": ("the code of 11 and 12",)},
    "solid_queue": {"cluster shapes": ("Solid Queue itself",)},
    "good_job": {"cluster shapes": ("GoodJob itself",)},
    "pgmq": {"cluster shapes": ("the extension itself",)},
    "sidekiq": {"cluster shapes": ("Sidekiq 7 and 8 themselves", "Pro's super_fetch, Enterprise")},
    "bullmq": {"cluster shapes": ("BullMQ before 6", "BullMQ Pro itself", "BullMQ 6 on PostgreSQL")},
    "celery": {"cluster shapes": ("other transports",)},
    "resque": {"cluster shapes": ("Resque itself",)},
    "pulsar": {"auth": ("a token, a certificate",), "cluster shapes": ("Pulsar itself",)},
    "artemis": {"auth": ("a user and a password",), "cluster shapes": ("the page that its plugin serves",)},
    "pubsub": {"auth": ("a proxy in front of the metrics",), "cluster shapes": ("Pub/Sub itself",)},
    "servicebus": {"auth": ("a proxy in front of the metrics",), "cluster shapes": ("Service Bus itself",)},
    "sqs": {"auth": ("a role that Amazon itself lends",), "cluster shapes": ("Amazon's own SQS and CloudWatch",)},
}
#: What is not known because the library keeps nothing of the kind, or because it is not read.
LACKING: dict[str, dict[str, str]] = {
    "streams": {"dead letters": "a stream has none"},
    "dyno": {"per tenant": "messages are not read", "dead letters": "the recipe has none"},
    "celery": {"per tenant": "tasks are not read for it", "dead letters": "Celery keeps none"},
    "rq": {"per tenant": "jobs are not read for it"},
    "pgmq": {"dead letters": "PGMQ keeps none"},
    "pulsar": {"dead letters": "a topic like any other, unless the settings name it"},
}


def proves(kind: str, column: str, *facts: str) -> pytest.MarkDecorator:
    """Mark a test: once it passes, ``facts`` hold of that kind of broker, in that column of the table."""
    assert kind in KINDS and column in COLUMNS and facts
    return pytest.mark.proves(kind, column, facts)


class Fact(NamedTuple):
    """One thing that ``test`` (file::name) has shown of a kind of broker."""

    kind: str
    column: str
    words: str
    test: str


def recorded() -> list[Fact]:
    """What passed when it was noted last."""
    return [Fact(*entry) for entry in json.loads(FILE.read_text(encoding="utf-8"))]


def claimed() -> set[Fact]:
    """What tests claim in their sources by :func:`proves`."""
    return {fact for path in sorted((ROOT / "tests").rglob("test_*.py")) for fact in _claims(path)}


def _claims(path: Path) -> Iterator[Fact]:
    text = path.read_text(encoding="utf-8")
    for name, node in _tests(ast.parse(text), str(path.relative_to(ROOT))) if "proves(" in text else ():
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "proves":
                kind, column, *facts = [ast.literal_eval(value) for value in call.args]
                for words in facts:
                    yield Fact(kind, column, words, name)


def _tests(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for each in node.body:
        if isinstance(each, ast.ClassDef):
            yield from _tests(each, f"{name}::{each.name}")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{name}::{each.name}", each


def noting() -> set[str]:
    """The tests that say by the fixture ``note`` what they found."""
    paths = [
        path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "note(" in path.read_text(encoding="utf-8")
    ]
    return {
        name
        for path in paths
        for name, node in _tests(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT)))
        if any(argument.arg == "note" for argument in node.args.args)
    }


def there(test: str) -> bool:
    """Whether the sources have such a test (file::name)."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and any(
        each == test for each, _ in _tests(ast.parse(path.read_text(encoding="utf-8")), file) if name
    )


# -- the page ---------------------------------------------------------------------------------------------------------

_HEAD = """# Brokers

What Sojourn knows of each kind of broker, as its tests found it on real servers: *known* is a number in samples, a
reason in italics is what stands in place of one that is not told. The setting up, the rights and the limits
are on the page of each; what the rules, the metrics and the page make of trouble is on [that of faults](faults.md), and
how a tenant is found on [that of tenants](tenants.md).

| | {columns} |
|---|{lines}|
"""
_TAIL = """
Where no tenant is configured, and there is neither a tap nor spans, no tenant is known. *Not tried* is written for, and
was never run against the real thing.

Written by `python -m tests.support.facts` from `tests/collectors/facts.json`, in which
`python -m pytest -p tests.support.facts --facts tests/collectors` notes what passed.

## What shows it

"""


def page(facts: list[Fact]) -> str:
    """docs/brokers/README.md."""
    text = _HEAD.format(columns=" | ".join(COLUMNS), lines="|".join("---" for _ in COLUMNS))
    for kind, row in KINDS.items():
        text += (
            f"| **[{row.name}]({row.page})** | " + " | ".join(cell(facts, kind, column) for column in COLUMNS) + " |\n"
        )
    text += _TAIL
    for kind, row in KINDS.items():
        tests = dict[str, list[str]]()
        for fact in sorted(facts):
            if fact.kind == kind:
                tests.setdefault(fact.test, []).append(fact.column)
        shown = "".join(f"  - `{test}`: {', '.join(dict.fromkeys(columns))}\n" for test, columns in tests.items())
        text += f"- {row.name}\n{shown}"
    return text


def cell(facts: Iterable[Fact], kind: str, column: str) -> str:
    """What the table says: known, why not, not tried; empty where nobody knows."""
    if kind in SERVERS and column not in SHARED:
        return "as below"
    mine = dict.fromkeys(fact.words for fact in facts if (fact.kind, fact.column) == (kind, column))
    told = sorted(mine, key=lambda words: words != KNOWN)
    server = KINDS[kind].server
    if server and column in SHARED:
        told.append(f"as on {KINDS[server].name.partition(',')[0]}")
    lacking, untried = LACKING.get(kind, {}).get(column), NOT_TRIED.get(kind, {}).get(column, ())
    parts = ("; ".join(told), f"*{lacking}*" if lacking else "", f"not tried: {', '.join(untried)}" if untried else "")
    return "<br>".join(part for part in parts if part)


# -- the plugin -------------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--facts``: note what passes."""
    parser.addoption("--facts", action="store_true", help="note what tests prove in tests/collectors/facts.json")


class _Noting:
    def __init__(self) -> None:
        self.passed: dict[str, list[Fact]] = {}
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Any:
        report = yield
        test = item.nodeid.partition("[")[0]
        if report.failed:
            self.failed.add(test)
        if report.when == "call" and report.passed:
            for mark in item.iter_markers("proves"):
                kind, column, facts = mark.args
                self.passed.setdefault(test, []).extend(Fact(kind, column, words, test) for words in facts)
            for name, entry in report.user_properties:
                if name == "fact":
                    self.passed.setdefault(test, []).append(Fact(*entry, test))
        return report

    def pytest_sessionfinish(self) -> None:
        before = recorded() if FILE.exists() else []
        # One test notes many kinds: what it said of those that were not run just now still holds.
        ran = {(fact.kind, test) for test, facts in self.passed.items() for fact in facts}
        kept = [fact for fact in before if (fact.kind, fact.test) not in ran and fact.test not in self.failed]
        new = [fact for test, facts in self.passed.items() if test not in self.failed for fact in facts]
        lines = ",\n".join(json.dumps(fact, ensure_ascii=False) for fact in sorted({*kept, *new}))
        FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Note, where that is wanted."""
    if config.getoption("--facts"):
        config.pluginmanager.register(_Noting())


# -- what samples tell ------------------------------------------------------------------------------------------------


#: The word for a number that samples hold.
KNOWN = "known"
Words = tuple[str, str, str]  # kind, column, words


def measured(kind: str, samples: Sequence[Sample]) -> list[Words]:
    """What samples of a kind hold of the columns of :data:`MEASURED`: known by any of them, or the reason why not."""
    found = []
    for column, name in MEASURED.items():
        if any(getattr(sample, name) is not None for sample in samples):
            found.append((kind, column, KNOWN))
        else:
            found.append((kind, column, f"*{samples[0].unavailable[name]}*"))
    return found


class Note(Protocol):
    """What the fixture ``note`` is: keeps what a test found out, and holds the table to it."""

    def __call__(self, *found: Words) -> None: ...


@pytest.fixture
def note(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Note:
    """Lets a test say what it found of a kind; where the table is not written just now, it must say the same."""

    def noted(*found: Words) -> None:
        for words in found:
            record_property("fact", words)
        if not request.config.getoption("--facts", default=False):
            test = request.node.nodeid.partition("[")[0]
            assert set(found) <= {fact[:3] for fact in recorded() if fact.test == test}, "run the tests with --facts"

    return noted


if __name__ == "__main__":
    sys.stdout.write(page(recorded()))
