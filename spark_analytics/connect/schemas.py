"""Schemas that clients write as text: types and names, and nothing that Spark would evaluate or load a class for.

Spark reads such text as DDL, and as JSON where that fails. In JSON a user-defined type names a Java class, which would
be loaded and constructed; in both, a column's default is an expression, which would be evaluated.
"""

from __future__ import annotations

import json
import re
from typing import Any

from lake.errors import UserError, first_line

MOST_CHARACTERS = 64 * 1024
_MOST_NESTED = 50

_OPEN, _CLOSED = "<({[", ">)}]"
_EVALUATED = re.compile(r"\b(default|generated|identity)\b|[{}\[\];$\\]|--|/\*", re.IGNORECASE)
_KEYS = {
    "struct": {"type", "fields"},
    "array": {"type", "elementType", "containsNull"},
    "map": {"type", "keyType", "valueType", "valueContainsNull"},
    "field": {"name", "type", "nullable", "metadata"},
}
_PRIMITIVE = re.compile(r"[a-z][a-z_ ]{0,40}(\( *-?\d{1,3} *(, *-?\d{1,3} *)?\))?")


def checked_schema(text: str) -> str:
    """``text`` if it is a harmless schema, as it was understood. Raises UserError otherwise."""
    if len(text) > MOST_CHARACTERS or _nested(text) > _MOST_NESTED:
        raise _refusal("it is too long, or nested too deeply")
    if text.lstrip()[:1] not in ("{", '"'):
        if found := _EVALUATED.search(text):
            raise _refusal(f"it holds {found.group()}")
        return text
    try:
        schema = json.loads(text, object_pairs_hook=_unique)
    except ValueError as error:
        raise _refusal(first_line(error)) from error
    _check_type(schema)
    return json.dumps(schema, separators=(",", ":"))


def check_metadata(text: str) -> None:
    """Raises UserError unless ``text``, a column's metadata in JSON, is a comment at most."""
    if text not in ("", "{}"):
        try:
            _check_comment(json.loads(text[:MOST_CHARACTERS], object_pairs_hook=_unique))
        except (ValueError, RecursionError) as error:
            raise _refusal("its metadata are no JSON") from error


def _check_type(kind: Any) -> None:
    if isinstance(kind, str):
        if not _PRIMITIVE.fullmatch(kind) or kind == "udt":
            raise _refusal(f"{kind[:80]} is not one of Spark's own types")
        return
    name = kind.get("type") if isinstance(kind, dict) else None
    if name not in ("struct", "array", "map") or not kind.keys() <= _KEYS[name]:
        raise _refusal("it holds more than structs, arrays, maps and Spark's own types")
    for part in ("elementType", "keyType", "valueType"):
        if part in kind:
            _check_type(kind[part])
    for field in kind.get("fields", ()):
        if not isinstance(field, dict) or not field.keys() <= _KEYS["field"]:
            raise _refusal("a field holds more than its name, type and comment")
        _check_type(field.get("type"))
        _check_comment(field.get("metadata", {}))


def _check_comment(metadata: Any) -> None:
    if not isinstance(metadata, dict) or any(
        key != "comment" or not isinstance(value, str) for key, value in metadata.items()
    ):
        raise _refusal("a field's metadata hold more than a comment")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; two parsers may keep different values of a key that stands there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _nested(text: str) -> int:
    depth = most = 0
    for letter in text:
        if letter in _OPEN:
            depth += 1
            most = max(most, depth)
        elif letter in _CLOSED:
            depth -= 1
    return most


def _refusal(why: str) -> UserError:
    return UserError(f"this schema is not allowed here: {why}", "name columns and Spark's own types")
