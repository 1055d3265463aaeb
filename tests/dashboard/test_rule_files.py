"""What pages say of an alert's rule and runbook stands in the very files that are evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.rules.loader import BUILTIN, rule_files
from dashboard import rule_files as texts

FILES = rule_files([BUILTIN])
RULES = [rule for file in FILES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_shipped_rule_is_found_whole_with_what_to_do_about_it(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    found = texts.of(name, FILES)
    assert yaml.safe_load(found.rule) == [rule]
    alone = sum(one["annotations"]["runbook"] == rule["annotations"]["runbook"] for one in RULES) == 1
    assert found.runbook and (alone or f"**{name}**" in found.runbook) and not found.runbook.startswith("# ")


def test_what_is_not_there_is_empty_and_a_rule_without_a_runbook_stands_alone(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    own.write_text(
        "groups:\n  - name: g\n    rules:\n    - alert: 'A.b'  # mine\n      expr: SELECT 1\n    - alert: Axb\n"
    )
    assert texts.of("A.b", [tmp_path / "gone.yml", own]) == texts.RuleText("- alert: 'A.b'  # mine\n  expr: SELECT 1")
    assert texts.of("A", [own]) == texts.of("A.b", []) == texts.RuleText()
