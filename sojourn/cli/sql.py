"""``sojourn sql "SELECT …"``: ad-hoc Spark SQL over the views."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from lake.errors import UserError
from sojourn.cli.options import ConfigOption, LakeOption, existing, part


class Format(enum.StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def sql(
    query: Annotated[str, typer.Argument(help="A read-only SELECT over the views and tables.")],
    format: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option("--output", help="A file to write to instead of the screen.")] = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Run Spark SQL over the lake, ad hoc."""
    _, root = existing(config, lake)
    rows = part("spark_analytics.sql").query(root, query)
    text = part("sojourn.cli.rows").FORMATS[format](rows)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}", "choose another --output") from error
