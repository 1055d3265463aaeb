"""Statements and their answers: taken apart at semicolons, answered one by one, written as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from lake.select import check, tables_of
from lake.sql.parameters import Value, with_values
from lake.state import require_finished
from lake.tables import TABLES
from lake.views import VIEWS
from lake.worker.worker import Worker
from sojourn.cli import rows

#: A quoted text, a comment, or a single character: where a semicolon ends a statement is the last alone.
_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|.", re.DOTALL)


class Answer(Protocol):
    """Rows that come batch by batch."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def batches(self) -> Iterable[pa.RecordBatch]:
        """The rows, to be read once."""


class Answering(Protocol):
    """Whoever answers statements."""

    def answer(self, sql: str) -> Any:
        """The :class:`Answer` to one SELECT; UserError for what is none."""

    def cancel(self) -> None:
        """End the statement that runs; from another thread."""


class WithValues:
    """Puts the values of parameters into statements that others answer."""

    def __init__(self, answering: Answering, values: Mapping[str, Value]) -> None:
        self._answering = answering
        self._values = values

    def answer(self, sql: str) -> Any:
        """As the other's; UserError where a parameter has no value."""
        return self._answering.answer(with_values(sql, self._values))

    def cancel(self) -> None:
        """End the statement that runs."""
        self._answering.cancel()


class ByReader:
    """Answers by the JVM-free reader, in a process that can be killed: Spark's dialect, without Spark."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._worker = Worker(root, spare=False)

    def answer(self, sql: str) -> Answer:
        """As :meth:`lake.worker.worker.Worker.query`; UserError for a question about what nobody has finished."""
        require_finished(self._root, tables_of(check(sql, {*TABLES, *VIEWS})))
        return _Table(self._worker.query(sql))

    def cancel(self) -> None:
        """End the statement that runs."""
        self._worker.cancel()

    def close(self) -> None:
        """End the process."""
        self._worker.close()


class _Table:
    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self.rows = table.num_rows
        self.batches = table.to_batches()


def split(text: str) -> list[str]:
    """The statements of ``text``, and last what follows the last semicolon: empty if all are complete.

    Semicolons in quotes and comments end nothing. A statement of comments alone is none.
    """
    statements, current = [], ""
    for piece in _PIECE.findall(text):
        if piece == ";":
            if _says_something(current):
                statements.append(current.strip())
            current = ""
        else:
            current += piece
    return [*statements, current.strip() if _says_something(current) else ""]


def write(answer: Answer, format: str, out: IO[str]) -> None:
    """Write ``answer`` to ``out``."""
    rows.write(format, answer.schema, answer.batches, out)


def _says_something(statement: str) -> bool:
    return any(piece.strip() and not piece.startswith(("--", "/*")) for piece in _PIECE.findall(statement))
