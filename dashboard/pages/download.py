"""Tables as files: what a page shows, as CSV, made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import streamlit as st

from lake.texts import csv_text

_WHAT = "This table as a file, as it stands here"


def csv(name: str, columns: Sequence[str], rows: Callable[[], Sequence[Sequence[str]]], *, what: str = _WHAT) -> None:
    """A button that downloads ``rows`` of texts below ``columns``; ``name`` is the file's beginning and the key,
    ``what`` is said of it."""

    def made() -> bytes:
        found = list(rows())
        arrays = [pa.array([row[place] for row in found], pa.string()) for place in range(len(columns))]
        table = pa.table(dict(zip(_apart(columns), arrays, strict=True)))
        return "".join(csv_text(table.schema, table.to_batches(), for_spreadsheets=True)).encode()

    st.download_button(
        "CSV",
        data=made,
        file_name=f"sojourn-{name}-{datetime.now(UTC):%Y%m%dT%H%MZ}.csv",
        mime="text/csv",
        on_click="ignore",
        key=f"csv {name}",
        icon=":material/download:",
        type="tertiary",
        help=what,
    )


def _apart(columns: Sequence[str]) -> list[str]:
    """Names of columns, of which an empty one gets its place for a name."""
    return [name or f"column {place + 1}" for place, name in enumerate(columns)]
