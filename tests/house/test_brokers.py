"""The table of brokers says what tests have shown, and nothing else."""

from __future__ import annotations

from tests.support import facts


def test_the_page_of_the_brokers_is_what_the_tests_noted() -> None:
    page = facts.PAGE.read_text(encoding="utf-8")
    assert page == facts.page(facts.recorded()), "run python -m tests.support.facts > docs/brokers/README.md"


def test_no_claim_stands_without_its_test_and_no_test_claims_what_has_not_passed() -> None:
    noted = facts.recorded()
    claimed, noting = facts.claimed(), facts.noting()
    assert {fact for fact in noted if not facts.there(fact.test)} == set()
    assert claimed - set(noted) == set(), "run the tests with -p tests.support.facts --facts"
    assert {fact.test for fact in set(noted) - claimed} == noting, "run the tests with -p tests.support.facts --facts"


def test_each_kind_is_known_or_not_known_or_not_tried_in_each_column() -> None:
    noted = facts.recorded()
    empty = [(kind, column) for kind in facts.KINDS for column in facts.COLUMNS if not facts.cell(noted, kind, column)]
    assert not empty


def test_nothing_is_tried_and_not_tried_at_once() -> None:
    shown = {(fact.kind, fact.column, fact.words) for fact in facts.recorded()}
    untried = {
        (kind, column, words)
        for kind, columns in facts.NOT_TRIED.items()
        for column, all_words in columns.items()
        for words in all_words
    }
    assert shown & untried == set()
