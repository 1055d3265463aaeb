"""Whoever lets a law act that the lab found to be worse than doing nothing hears of it when settings are checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from alerts.control.cautions import cautions
from alerts.control.settings import ControlSettings, PolicySettings
from alerts.laws import registry
from sojourn.cli.main import app

OPTIONS = {"permits": {"buffer": 9}, "squelch": {"places": 9}}


@pytest.mark.parametrize("law", registry.names())
def test_a_law_that_may_act_is_cautioned_against_where_the_lab_found_it_worse(law: str) -> None:
    try:
        policy = PolicySettings(name="p", law=law, mode="auto", max_step=1.0, options=OPTIONS.get(law, {}))
    except ValueError:
        return  # one that counts needs options of its own; none of these is worse
    (found,) = cautions(ControlSettings(policies=(policy,))) or ("",)
    worse = registry.law_class(law).worse if law in registry.LAWS else {}
    assert bool(found) == bool(worse)
    assert all(scenario in found for scenario in worse)
    assert cautions(ControlSettings(policies=(policy.model_copy(update={"mode": "dry_run"}),))) == []


def test_the_check_of_rules_says_so_and_refuses_nothing(tmp_path: Path) -> None:
    config = tmp_path / "sojourn.toml"
    config.write_text('[[alert.control.policies]]\nname = "throttle-noisy"\nlaw = "codel"\nmode = "auto"\n')
    done = CliRunner().invoke(app, ["rules", "check", "-c", str(config)])
    assert done.exit_code == 0 and "all valid" in done.stdout
    assert "'throttle-noisy' may act by codel" in done.stderr and "innocents are limited" in done.stderr
