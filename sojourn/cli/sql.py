"""``sojourn sql "SELECT …"``: ad-hoc Spark SQL over the views, one statement, several, or a prompt."""

from __future__ import annotations

import enum
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from lake.errors import UserError
from sojourn.cli.options import ConfigOption, LakeOption, existing, part

if TYPE_CHECKING:
    from sojourn.cli.statements import Answering


class Format(enum.StrEnum):
    """How rows are printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


#: Of a command that says sentences to people.
RowsOption = Annotated[Format | None, typer.Option("--format", help="How to print the rows [default: as sentences].")]


class Engine(enum.StrEnum):
    """Who answers."""

    AUTO = "auto"
    SPARK = "spark"
    READER = "reader"


def sql(
    query: Annotated[
        str | None,
        typer.Argument(help="A read-only SELECT over the views and tables; none: a prompt, or statements from stdin."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option("--output", help="A file to write to instead of the screen.")] = None,
    as_of: Annotated[
        list[str] | None,
        typer.Option("--as-of", help="The lake as it was: a time (ISO 8601), -2h, or TABLE@VERSION (repeatable)."),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="A value for :NAME in the statements: NAME=VALUE (repeatable); '7' is a text."),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="auto: Spark SQL, quick; spark: views by Spark too; reader: no Spark at all."),
    ] = Engine.AUTO,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Run Spark SQL over the lake, ad hoc."""
    _, root = existing(config, lake)
    values = part("lake.sql.parameters").named_values(param or [])
    logging.getLogger().addHandler(logging.NullHandler())  # what a library logs, we tell in one line
    # Java needs a second to come up: it begins before Python has loaded the rest.
    ahead = None if engine is Engine.READER else part("spark_analytics.runtime.launch").begin(lake=root)
    try:
        statements = part("sojourn.cli.statements")
        with _answering(root, as_of or [], engine, ahead) as answers:
            answering = statements.WithValues(answers, values)
            if query is None and sys.stdin.isatty():
                history = part("spark_analytics.runtime.cache").cache_root() / "sql-history"
                part("sojourn.cli.shell").Shell(answering, format, history).run()
            else:
                with _opened(output) as out:
                    for statement in _asked(query):
                        statements.write(answering.answer(statement), format, out)
    finally:
        if ahead is not None:
            ahead.close()
    if ahead is not None and not ahead.from_archive:
        part("spark_analytics.runtime.archive").make_later()


@contextmanager
def _answering(root: Path, as_of: list[str], engine: Engine, ahead: object) -> Iterator[Answering]:
    lake = part("lake.store").Lake(root)
    if engine is Engine.READER:
        if as_of:
            raise UserError("--engine reader knows the newest state alone", "leave out --engine for --as-of")
        reader = part("sojourn.cli.statements").ByReader(root)
        try:
            yield reader
        finally:
            reader.close()
        return
    spark = part("spark_analytics.sql")
    then = part("spark_analytics.time_travel").resolve_as_of(as_of, lake, datetime.now(UTC)) if as_of else None
    if then is not None and then.asked is not None:
        typer.echo(f"as of {then.at:%Y-%m-%dT%H:%M:%SZ}, the last versions before that are retained", err=True)
    sql_session = spark.SqlSession(lake, as_of=then, engine=spark.Engine(engine), ahead=ahead)
    try:
        lake.create()
        yield sql_session
    finally:
        sql_session.close()


def _asked(query: str | None) -> Iterable[str]:
    split = part("sojourn.cli.statements").split
    if query is not None:
        return [query]
    asked = [statement for statement in split(sys.stdin.read()) if statement]
    if not asked:
        raise UserError("there is no statement", 'write it behind: sojourn sql "SELECT …"')
    return asked


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    """The screen, or the file ``output``, which appears whole or not at all."""
    if output is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            yield file
        draft.replace(output)
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}", "choose another --output") from error
    finally:
        draft.unlink(missing_ok=True)
