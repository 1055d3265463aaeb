"""``sojourn lab SCENARIO``: try a policy on a simulated queue before it touches anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.options import ConfigOption, LakeOption, part


def lab(
    scenario: Annotated[str, typer.Argument(help="A scenario's name or file.")],
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Simulate queues under the very laws of the alerts' policies."""
    part("lab.run").run(Path(scenario))
