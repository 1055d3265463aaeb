"""Judging lifecycle events that come from outside: which are message events, and why the others are not.

:class:`Event` judges one record and names its fault; :func:`clean_rows` finds in one pass over Arrow columns the rows
that need no such judgement. Both accept the same records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    StringConstraints,
    ValidationError,
)

from lake.tables import EVENT_TYPES, MESSAGE_EVENTS

#: The longest piece of a rejected record that is kept.
RAW_LIMIT = 64 * 1024
#: The columns that a record must have.
REQUIRED = ("event_type", "broker", "queue", "message_id", "occurred_at")
CLOCKS = ("broker", "producer")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, tzinfo=UTC)
_INT32_MAX = 2**31 - 1


def as_utc(value: object) -> datetime:
    """An aware UTC datetime from an ISO 8601 string, a datetime (naive = UTC) or a number of seconds since 1970."""
    if isinstance(value, bool):
        raise ValueError("a timestamp cannot be a truth value")
    if isinstance(value, int | float):
        try:
            moment = _EPOCH + timedelta(microseconds=round(value * 1_000_000))
        except (OverflowError, ValueError):
            raise ValueError("a numeric timestamp is in seconds since 1970, and this is none") from None
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError("a timestamp is an ISO 8601 string or a number of seconds since 1970") from None
    elif isinstance(value, datetime):
        moment = value
    else:
        raise ValueError("a timestamp is an ISO 8601 string or a number of seconds since 1970")
    try:
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a timestamp lies between 1970 and 9999") from None
    if not _EPOCH <= moment < _END:
        raise ValueError("a timestamp lies between 1970 and 9999")
    return moment


def _absent(value: object) -> object:
    """An empty string in an optional column means that there is no value."""
    return None if value == "" else value


def _known_type(value: str) -> str:
    if value not in EVENT_TYPES:
        raise ValueError(f"one of {', '.join(EVENT_TYPES)} is expected")
    return value


def _numbered(value: int) -> int:
    if value < 1:
        raise ValueError("attempts are numbered from 1; leave out the number that nobody gave")
    return value


EventType = Annotated[str, AfterValidator(_known_type)]
Timestamp = Annotated[datetime, BeforeValidator(as_utc)]
Name = Annotated[str, StringConstraints(min_length=1)]
_ABSENT = BeforeValidator(_absent)
Text = Annotated[str | None, _ABSENT]


class Event(BaseModel):
    """One message event as a file brings it; fields of other names are ignored."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    event_id: Text = None
    event_type: EventType
    broker: Name
    queue: Name
    subscriber: Text = None
    tenant: Text = None
    message_id: Name
    attempt: Annotated[Annotated[int, Field(le=_INT32_MAX), AfterValidator(_numbered)] | None, _ABSENT] = None
    enqueued_at: Annotated[Timestamp | None, _ABSENT] = None
    occurred_at: Timestamp
    processing_seconds: Annotated[Annotated[FiniteFloat, Field(ge=0)] | None, _ABSENT] = None
    priority: Annotated[Annotated[int, Field(ge=-_INT32_MAX - 1, le=_INT32_MAX)] | None, _ABSENT] = None
    worker: Text = None
    trace_id: Text = None
    reason: Text = None
    clock: Annotated[Literal["broker", "producer"] | None, _ABSENT] = None
    source: Text = None
    ingested_at: Annotated[Timestamp | None, _ABSENT] = None


#: The columns that a file may fill; ``ingest_date`` follows ``ingested_at``.
FIELDS = tuple(Event.model_fields)
_SCHEMA = pa.schema([MESSAGE_EVENTS.schema.field(name).with_nullable(True) for name in FIELDS])


def explain(error: ValidationError) -> str:
    """One line that names what is wrong with a record, without the record's values, so that equal faults are equal."""
    faults = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        field = ".".join(str(part) for part in fault["loc"][:1])
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "json_invalid":
            message = "not a JSON object"
        faults.append(f"{field}: {message}" if field else message)
    return "; ".join(dict.fromkeys(faults))


def to_arrow(events: Sequence[Event]) -> pa.Table:
    """The events as a table with one column for each of :data:`FIELDS`."""
    return pa.table(
        [pa.array([getattr(event, name) for event in events], _SCHEMA.field(name).type) for name in FIELDS],
        schema=_SCHEMA,
    )


def legible_rows(table: pa.Table) -> tuple[pa.Table, pa.BooleanArray]:
    """``table`` with U+FFFD for what is no UTF-8 in its texts, and which rows had none of that.

    Parquet says of a text that it is UTF-8, and whoever wrote it may not have looked.
    """
    try:
        table.validate(full=True)
        return table, pa.repeat(True, table.num_rows)
    except pa.ArrowInvalid:
        pass
    legible = [True] * table.num_rows
    for number, name in enumerate(table.column_names):
        column = table.column(number)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            given = column.cast(pa.large_binary()).to_pylist()
            texts = [None if one is None else one.decode("utf-8", "replace") for one in given]
            same = [one is None or one.decode("utf-8", "ignore").encode() == one for one in given]
            legible = [row and text for row, text in zip(legible, same, strict=True)]
            table = table.set_column(number, name, pa.array(texts, pa.string()))
    return table, pa.array(legible, pa.bool_())


def clean_rows(
    table: pa.Table, latest: datetime = _END, legible: pa.BooleanArray | None = None
) -> tuple[pa.Table, pa.Array]:
    """The rows of ``table`` that are surely events, as columns :data:`FIELDS`, and a mask that says which they are.

    What occurred after ``latest`` is not sure, nor are rows that are not ``legible``.
    A column of a type that needs reading value by value (a timestamp written as a string, say) makes no row sure.
    """
    columns = {}
    sure = pa.repeat(True, table.num_rows) if legible is None else legible
    for field in _SCHEMA:
        if field.name not in table.column_names:
            columns[field.name] = pa.nulls(table.num_rows, field.type)
            if field.name in REQUIRED:
                sure = pa.repeat(False, table.num_rows)
            continue
        column = _native(table.column(field.name).combine_chunks(), field.type)
        if column is None:
            return _SCHEMA.empty_table(), pa.repeat(False, table.num_rows)
        columns[field.name] = column
        sure = pc.and_(sure, _holds(field.name, column))
        if field.name == "occurred_at":
            sure = pc.and_(sure, pc.fill_null(pc.less_equal(column, pa.scalar(latest, field.type)), False))
    return pa.table(columns, schema=_SCHEMA).filter(sure), sure


def _native(column: pa.Array, wanted: pa.DataType) -> pa.Array | None:
    """``column`` in the type ``wanted`` if that is a mere change of representation, else None."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    given = column.type
    if pa.types.is_null(given):
        return pa.nulls(len(column), wanted)
    if pa.types.is_string(wanted) and (pa.types.is_string(given) or pa.types.is_large_string(given)):
        return column.cast(wanted)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(given):
        # A timestamp without a zone is UTC; what is finer than a microsecond is cut off, what is too large is not sure.
        try:
            return column.cast(pa.timestamp("us", tz="UTC"), safe=given.unit != "ns")
        except pa.ArrowInvalid:
            return None
    if pa.types.is_integer(wanted) and pa.types.is_integer(given):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            return None
    if pa.types.is_floating(wanted) and (pa.types.is_floating(given) or pa.types.is_integer(given)):
        return column.cast(wanted, safe=False)
    return None


def _holds(name: str, column: pa.Array) -> pa.Array:
    """For each value of column ``name`` whether it is surely allowed there; false where it is not sure."""
    if pa.types.is_timestamp(column.type):
        good = pc.and_(pc.greater_equal(column, pa.scalar(_EPOCH)), pc.less(column, pa.scalar(_END)))
    elif name == "event_type":
        good = pc.is_in(column, value_set=pa.array(EVENT_TYPES))
    elif name == "clock":
        good = pc.is_in(column, value_set=pa.array(CLOCKS))
    elif name == "attempt":
        good = pc.greater_equal(column, 1)
    elif name == "processing_seconds":
        good = pc.and_(pc.is_finite(column), pc.greater_equal(column, 0.0))
    elif pa.types.is_string(column.type):
        good = pc.greater(pc.binary_length(column), 0)
    else:
        good = pc.is_valid(column)
    return pc.fill_null(good, name not in REQUIRED)  # an optional value may be null, a required one may not


def default_event_id(
    broker: str, queue: str, subscriber: str | None, message_id: str, event_type: str, attempt: int | None, micros: int
) -> str:
    """The id of an event that brings none: equal for a re-sent event. ``micros`` is ``occurred_at`` since 1970."""
    text = json.dumps([broker, queue, subscriber, message_id, event_type, attempt, micros], ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def clipped(raw: str) -> str:
    """``raw``, cut to at most :data:`RAW_LIMIT` bytes of UTF-8."""
    encoded = raw.encode("utf-8", "replace")
    return encoded[:RAW_LIMIT].decode("utf-8", "ignore")
