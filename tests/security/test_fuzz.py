"""A short run of the fuzzer, with a seed that stays: what ``make fuzz`` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake.store import Lake
from tests.security.fuzz.asking import ask
from tests.security.fuzz.figures import Findings
from tests.security.fuzz.judging import strange
from tests.security.fuzz.knocking import knock
from tests.security.fuzz.requests import request
from tests.security.fuzz.statements import statement
from tests.support.deep import examples


def test_hostile_statements_have_no_effect_and_end_nothing(tmp_path: Path) -> None:
    findings, count = Findings(), examples(500, 2000)
    Lake(tmp_path / "lake").create()
    ask(findings, count, 10, tmp_path, (), jobs=1, parsed=0, run=40)
    assert findings.faults == []
    assert findings.figures["statements_checked"][0] == count
    assert count / 10 < findings.figures["statements_accepted"][0] < count * 0.9  # it knows both sides of the line


@pytest.mark.slow
def test_hostile_requests_have_no_effect_and_end_nothing(tmp_path: Path) -> None:
    findings, count = Findings(), examples(400, 1000)
    knock(findings, count, 10, tmp_path)
    assert findings.faults == []
    assert findings.figures["requests_answered_200"][0] > 30
    assert findings.figures["requests_legitimate_kept"][0] == count // 200


def test_a_seed_makes_the_same_statements_and_requests_again() -> None:
    assert [statement(3, n, "m") for n in range(50)] == [statement(3, n, "m") for n in range(50)]
    assert [request(3, n) for n in range(50)] == [request(3, n) for n in range(50)]
    assert statement(3, 1, "m") != statement(4, 1, "m")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 -- x",
        "SELECT /*+ x */ 1",
        "SELECT reflect('a')",
        "SELECT 1; SELECT 2",
        "SELECT * FROM `text`.`/etc/passwd`",
        "SELECT * FROM '/etc/passwd'",
        "SELECT ${x}",
        "SELECT ﬂoor(1)",
    ],
)
def test_the_fuzzers_own_eye_sees_what_a_check_might_miss(text: str) -> None:
    assert strange(text)


def test_the_fuzzers_own_eye_lets_honest_statements_be() -> None:
    assert strange("SELECT `a`, sum(`x`) FROM `partials` AS `p` WHERE `q` = '-- /* {x}; reflect(1)'") == ""
