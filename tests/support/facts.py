"""What tests prove of each kind of broker: the table of docs/brokers/README.md.

A test says by :func:`proves` what holds once it has passed; the contract suite records by itself what samples tell.
``python -m pytest -p tests.support.facts --facts tests/collectors`` notes in ``tests/collectors/facts.json`` what
passed, and ``python -m tests.support.facts`` writes the page. What nobody tried stands in :data:`NOT_TRIED`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "collectors" / "facts.json"
PAGE = ROOT / "docs" / "brokers" / "README.md"
#: Rows of the table: kinds of brokers, and libraries that keep queues of their own on one; each is a place of the
#: contract suite (tests/collectors/places.py) of that name. Beside each, its page.
KINDS = {
    "nats": ("NATS JetStream", "nats.md"),
    "redis": ("Redis: dyno-queues, streams, Celery, RQ", "redis.md"),
    "sidekiq": ("Sidekiq", "sidekiq.md"),
    "bullmq": ("BullMQ", "bullmq.md"),
    "dramatiq": ("Dramatiq, on Redis", "dramatiq.md"),
    "rabbitmq": ("RabbitMQ", "rabbitmq.md"),
    "kafka": ("Kafka", "kafka.md"),
    "sqs": ("SQS", "sqs.md"),
    "postgres": ("PostgreSQL: nine libraries", "postgres.md"),
    "prometheus": ("Pulsar, Artemis, Pub/Sub, Service Bus, by their metrics", "metrics.md"),
}
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
        "cluster shapes": (
            "the code of Oban, Solid Queue, GoodJob, PGMQ",
            "the code of pg-boss 11 and 12",
            "PgBouncer, RDS, Aurora",
        ),
    },
    "sidekiq": {"cluster shapes": ("Sidekiq 7 and 8 themselves", "Pro's super_fetch, Enterprise")},
    "bullmq": {"cluster shapes": ("BullMQ before 6", "BullMQ Pro itself", "BullMQ 6 on PostgreSQL")},
    "dramatiq": {"cluster shapes": ("Resque itself: it is read by recorded keys",)},
    "prometheus": {
        "depth": ("the real services: pages written after their documentation were read",),
        "auth": ("a proxy in front of the metrics",),
    },
    "sqs": {"auth": ("a role that Amazon itself lends",), "cluster shapes": ("Amazon's own SQS and CloudWatch",)},
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
reason in italics is what stands in place of one that a broker does not tell. The setting up, the rights and the limits
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
    for kind, (name, link) in KINDS.items():
        text += f"| **[{name}]({link})** | " + " | ".join(_cell(facts, kind, column) for column in COLUMNS) + " |\n"
    text += _TAIL
    for kind, (name, _) in KINDS.items():
        tests = dict[str, list[str]]()
        for fact in sorted(facts):
            if fact.kind == kind:
                tests.setdefault(fact.test, []).append(fact.column)
        shown = "".join(f"  - `{test}`: {', '.join(dict.fromkeys(columns))}\n" for test, columns in tests.items())
        text += f"- {name}\n{shown}"
    return text


def _cell(facts: list[Fact], kind: str, column: str) -> str:
    mine = [fact.words for fact in facts if (fact.kind, fact.column) == (kind, column)]
    untried = NOT_TRIED.get(kind, {}).get(column, ())
    told = "; ".join(dict.fromkeys(mine))
    return "<br>".join(part for part in (told, f"not tried: {', '.join(untried)}" if untried else "") if part) or "–"


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
        # The contract's test notes many kinds: what it said of those that were not run just now still holds.
        ran = {(fact.kind, test) for test, facts in self.passed.items() for fact in facts}
        kept = [fact for fact in before if (fact.kind, fact.test) not in ran and fact.test not in self.failed]
        new = [fact for test, facts in self.passed.items() if test not in self.failed for fact in facts]
        lines = ",\n".join(json.dumps(fact, ensure_ascii=False) for fact in sorted({*kept, *new}))
        FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Note, where that is wanted."""
    if config.getoption("--facts"):
        config.pluginmanager.register(_Noting())


def measured(kind: str, told: Mapping[str, tuple[object, str | None]]) -> list[tuple[str, str, str]]:
    """(kind, column, words) of the columns of samples: known, or the reason why not."""
    found = []
    for column, name in MEASURED.items():
        value, reason = told[name]
        found.append((kind, column, "known" if value is not None else f"*{reason}*"))
    return found


if __name__ == "__main__":
    sys.stdout.write(page(recorded()))
