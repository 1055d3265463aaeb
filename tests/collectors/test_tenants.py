"""The one syntax by which a tenant is found, and what is counted by it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from brokers.tenants import Message, TenantRules, only, parse, tenant_of
from collectors.board import Board
from collectors.exposition import Exposition
from collectors.kafka.tap.settings import TapTopic
from collectors.nats.settings import StreamSettings
from collectors.samples import Sample, TenantShare, samples_table
from collectors.tenants import MOST, Shares
from lake.tables import QUEUE_SAMPLES

JOB = Message(
    queue="acme-eu-orders",
    key="bull:{acme}:7",
    headers={"Tenant": "by-header", "x-number": 7, "bytes": b"gr\xc3\xbcn"},
    document={"args": [{"tenant": "grove", "meta": {"tenant id": 12}}], "null": None, "yes": True, "odd": "\ud800"},
    columns={"tenant_id": 42},
)


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("header:Tenant", "by-header"),
        ("header:tenant", "by-header"),
        ("header:x-number", "7"),
        ("header:bytes", "grün"),
        ("header:absent", None),
        ("json:args[0].tenant", "grove"),
        ("json:$.args[0].tenant", "grove"),
        ('json:args[0].meta["tenant id"]', "12"),
        ("json:args[3].tenant", None),
        ("json:args.tenant", None),
        ("json:args", None),
        ("json:null", None),
        ("json:yes", None),
        ("json:odd", "�"),
        ("column:tenant_id", "42"),
        ("queue:{tenant}-*", "acme"),
        ("queue:*-{tenant}-*", "eu"),
        ("queue:*-*-{tenant}", "orders"),
        ("queue:{tenant}:*", None),
        ("key:bull:{{tenant}}:?", "acme"),
        ("key:bull:*:{tenant}", "7"),
    ],
)
def test_each_rule_finds_what_it_names_and_nothing_else(rule: str, found: str | None) -> None:
    assert tenant_of([parse(rule)], JOB) == found


def test_the_first_rule_that_finds_a_name_counts() -> None:
    rules = [parse(text) for text in ("json:none", "column:none", "queue:{tenant}-*", "header:Tenant")]
    assert tenant_of(rules, JOB) == "acme"
    assert tenant_of(rules[:2], JOB) is None
    assert tenant_of(rules, Message()) is None


@pytest.mark.parametrize(
    "text",
    ["", "tenant", "cookie:x", "json:", "json:a..b", "json:a[x]", "json:a[0]b", "json:" + "a." * 40 + "a",
     "queue:orders", "queue:{tenant}{tenant}", "key:" + "*" * 9 + "{tenant}"],
)  # fmt: skip
def test_what_is_no_rule_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"tenant is found by|is no path|steps|pattern holds"):
        parse(text)


def test_a_setting_is_one_rule_or_several_and_is_written_as_it_was_read() -> None:
    rules = TypeAdapter[Any](TenantRules)
    assert [str(rule) for rule in rules.validate_python("header:Tenant")] == ["header:Tenant"]
    several = ["json:args[0].tenant", "queue:{tenant}-*"]
    assert rules.dump_python(rules.validate_python(several)) == tuple(several)
    assert rules.validate_json(rules.dump_json(rules.validate_python(several))) == rules.validate_python(several)
    with pytest.raises(ValidationError, match="column:x is not found here: json, queue can be"):
        TypeAdapter[Any](Annotated[TenantRules, only("json", "queue")]).validate_python("column:x")


@pytest.mark.parametrize(
    ("model", "older", "tenant"),
    [
        (StreamSettings, {}, ["header:Tenant"]),
        (StreamSettings, {"tenant_header": "customer"}, ["header:customer"]),
        (StreamSettings, {"tenant_token": 2}, ["header:Tenant", "key:*.{tenant}.*", "key:*.{tenant}"]),
        (StreamSettings, {"tenant_header": "", "tenant_token": "1"}, ["key:{tenant}.*", "key:{tenant}"]),
        (TapTopic, {}, ["header:tenant"]),
        (TapTopic, {"tenant_header": "customer", "tenant_key": True}, ["header:customer", "key:{tenant}"]),
    ],
)
def test_older_keys_of_taps_are_read_as_rules_and_warned_of(
    model: type[StreamSettings] | type[TapTopic],
    older: dict[str, Any],
    tenant: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    read = model.model_validate({"name": "orders", **older})
    assert [str(rule) for rule in read.tenant] == tenant
    assert bool(older) == bool(caplog.messages)
    for message in caplog.messages:
        _, _, written = message.partition("write tenant = ")
        assert model.model_validate({"name": "orders", "tenant": json.loads(written)}) == read


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        ({"tenant": "header:a", "tenant_header": "a"}, "take tenant_header out"),
        ({"tenant_token": 0}, "greater than or equal to 1"),
        ({"tenant": "json:a"}, "json:a is not found here: header, key, queue can be"),
    ],
)
def test_a_tap_is_told_once_whose_messages_are(tables: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        StreamSettings.model_validate({"name": "orders", **tables})


@pytest.mark.parametrize(
    ("headers", "subject", "token", "found"),
    [
        ({"Tenant": "a"}, "orders.b", 2, "a"),
        ({"Tenant": " "}, "orders.b", 2, "b"),
        ({}, "orders.b", 2, "b"),
        ({}, "orders.b.new.eu", 2, "b"),
        ({}, "b.orders", 1, "b"),
        ({}, "orders.b", 3, None),
    ],
)
def test_a_subjects_token_is_found_by_its_number(
    headers: dict[str, str], subject: str, token: int, found: str | None
) -> None:
    rules = StreamSettings.model_validate({"name": "orders", "tenant_token": token}).tenant
    assert tenant_of(rules, Message("orders", subject, headers)) == found


def test_messages_are_counted_by_tenant_where_they_stand_with_the_oldest_age_of_each() -> None:
    shares = Shares([parse("json:tenant")])
    shares.add(Message(document={"tenant": "grove"}), "depth", 4e6)
    shares.add(Message(document={"tenant": "grove"}), "in_flight", 3e6)
    shares.add(Message(document={"tenant": "acme"}), "delayed")
    shares.add(Message(document="garbage"), "depth")
    assert shares.told(10_000_000) == (
        TenantShare("grove", 1, 1, 0, 7.0),
        TenantShare("acme", 0, 0, 1, 0.0),
        TenantShare("unknown", 1, 0, 0, None),
    )
    assert Shares([]).told(1) is None


def test_tenants_beyond_the_most_are_one() -> None:
    shares = Shares([parse("json:tenant")])
    for number in range(MOST + 50):
        shares.add(Message(document={"tenant": f"t{number:04}"}), "depth", float(number))
    told = shares.told(1_000_000) or ()
    assert len(told) == MOST
    assert told[-1] == TenantShare("other", 51, 0, 0, (1_000_000 - MOST + 1) / 1e6)


def test_shares_are_rows_and_series() -> None:
    share = TenantShare("grove", 2, 1, 0, 7.5)
    samples = [Sample("orders", 1, depth=3, tenants=(share,)), Sample("events", 1, depth=0)]
    table = samples_table(samples, "mq", "test").select(["tenants"])
    assert table.column("tenants").type == QUEUE_SAMPLES.schema.field("tenants").type
    assert table.column("tenants").to_pylist() == [
        [{"tenant": "grove", "depth": 2, "in_flight": 1, "delayed": 0, "oldest_age_seconds": 7.5}],
        None,
    ]
    assert samples_table(samples[1:], "mq", "test").column("tenants").type == table.column("tenants").type
    board = Board()
    board.show("one", "mq", samples)
    told = {
        (one.name, one.labels["queue"], one.labels["tenant"]): one.value
        for family in Exposition(board).collect()
        for one in family.samples
        if "tenant" in one.labels
    }
    assert told == {
        ("sojourn_queue_tenant_depth", "orders", "grove"): 2,
        ("sojourn_queue_tenant_in_flight", "orders", "grove"): 1,
        ("sojourn_queue_tenant_delayed", "orders", "grove"): 0,
        ("sojourn_queue_tenant_oldest_age_seconds", "orders", "grove"): 7.5,
    }
    assert isinstance(table, pa.Table)
