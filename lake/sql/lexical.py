"""SQL text before and after it is parsed: what two parsers would read differently is refused by its letters alone.

:func:`scan` goes over what was sent, before anything parses it; :func:`calls` over what will run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lake.errors import UserError

#: A longer statement is refused, before it is looked at.
MOST_CHARACTERS = 64 * 1024
#: Parentheses, brackets and CASEs inside one another.
MOST_NESTED = 40
#: Words, numbers and signs of a statement.
MOST_TOKENS = 8_000
#: Signs of an expression that stand one behind the other, as in ``- - - 1`` or ``NOT NOT x``.
MOST_SIGNS = 8

#: JOINs whose ON or USING has not come yet: for each, sqlglot's parser tries the rest of the statement twice.
MOST_JOINS_OPEN = 6
#: What no condition of a JOIN begins with: ON before these is some name.
_NO_CONDITION = frozenset(
    (*("JOIN", ",", ")", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL"), "SEMI", "ANTI", "AS")
)

_SENT = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<quoted>`[^`]+`)"
    r"|(?P<open>/\*)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<number>\d[\w.]*|\.\d\w*)"
    r"|(?P<sign>[-+*/%<>=!~|&^.,()\[\];:])"
    r"|(?P<odd>.)",
    re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
#: Escapes that every parser reads alike.
_ESCAPES = frozenset("\\'\"nrt")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_PREFIXES = frozenset("rxbneuq")
_QUERIES = frozenset(("SELECT", "WITH", "FROM", "VALUES", "("))
_KINDS = {"text": "text", "quoted": "`"}
_ONE = "write one SELECT in Spark's dialect"


def scan(sql: str) -> None:
    """Raises UserError if ``sql`` is too long, nested too deeply, or holds what parsers disagree about."""
    if len(sql) > MOST_CHARACTERS:
        raise UserError(f"the statement has more than {MOST_CHARACTERS // 1024} KiB", "ask for less at a time")
    if found := _CONTROL.search(sql):
        raise UserError(f"the statement holds the character U+{ord(found.group()):04X}", "leave it out")
    depth = tokens = signs = joins = ended = 0
    before, before_end = "", -1
    for match in _SENT.finditer(sql):
        kind, piece = match.lastgroup, match.group()
        if kind == "space":
            continue
        if kind == "comment":
            _check_comment(piece)
            continue
        word = piece.upper()
        tokens += word != ";"
        ended += word == ";" and tokens > 0
        if kind in ("odd", "open"):
            _refuse(piece)
        if tokens == 1 and word not in (*_QUERIES, ";"):
            raise UserError(f"{word[:40]} is not a query", "only SELECT is allowed: the lake is read-only here")
        if ended and word != ";":
            raise UserError("expected one statement, found several", _ONE)
        if "${" in piece:
            raise UserError("the statement holds ${", "write concat('$', '{…')")
        if kind == "quoted" and before == "`" and before_end == match.start():
            raise UserError("a name holds a backtick", "leave it out")
        if kind == "text":
            _check_text(piece)
            if before == "text":
                raise UserError("texts stand one behind the other", "write \\' for a quote inside a text, or concat")
            if before in _PREFIXES and before_end == match.start():
                raise UserError(f"the text {before}{piece[:20]} has a prefix", "write it as a plain text in quotes")
        depth += (word in ("(", "[", "CASE")) - (word in (")", "]", "END"))
        signs = signs + 1 if word in ("-", "+", "~", "!", "NOT") else 0
        if word == "JOIN" and before not in ("cross", "natural"):
            joins += 1
        elif before in ("on", "using") and word not in _NO_CONDITION:
            joins = max(0, joins - 1)
        if joins > MOST_JOINS_OPEN:
            raise UserError(
                f"more than {MOST_JOINS_OPEN} JOINs stand without ON", "write ON behind each, or CROSS JOIN"
            )
        if depth > MOST_NESTED or signs > MOST_SIGNS:
            raise UserError(f"the statement is nested more than {MOST_NESTED} levels deep", "name parts of it by WITH")
        if tokens > MOST_TOKENS:
            raise UserError(f"the statement has more than {MOST_TOKENS:,} words and signs", "ask for less at a time")
        before, before_end = _KINDS.get(str(kind)) or piece.lower(), match.end()
    if tokens == 0:
        raise UserError("expected one statement, found none", _ONE)


def _check_comment(piece: str) -> None:
    if piece.startswith("--") and piece.rstrip("\r").endswith("\\"):
        raise UserError("a comment ends in a backslash, which Spark continues", "leave out the backslash")
    if "/*" in piece[2:] and piece.startswith("/*"):
        raise UserError("a comment holds another", "close the first by */")


def _check_text(piece: str) -> None:
    for letter in _ESCAPE.findall(piece):
        if letter not in _ESCAPES:
            raise UserError(f"the escape \\{letter} in a text is read in several ways", "write \\\\ for a backslash")


def _refuse(piece: str) -> None:
    if piece in ("'", '"', "`", "/*"):
        raise UserError(f"not valid SQL: {piece} is not closed", _ONE)
    if piece in "?{}$":
        raise UserError(f"parameters ({piece}) have no values here", "write the value itself")
    raise UserError(f"not valid SQL: {piece} (U+{ord(piece):04X}) outside of quotes", _ONE)


_SPARK = re.compile(
    r"(?P<space> +)"
    r"|(?P<text>'(?:[^'\\\x00-\x1f]|\\[\\'nrt])*')"
    r"|(?P<quoted>`[^`\x00-\x1f]+`)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)"
    r"|(?P<sign>-(?!-)|/(?!\*)|:(?= )|[+*%<>=!~|&^.,()\[\]])",
    re.ASCII,
)
_DUCKDB = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<quoted>\"(?:[^\"\x00-\x1f]|\"\")+\")"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)"
    r"|(?P<sign>-(?!-)|/(?!\*)|[+*%<>=!~|&^.,()\[\]:{}])",
    re.ASCII,
)
#: Words of the language that may stand before a parenthesis.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "all and any array as between by case cast cross cube decimal distinct div else except exists extract filter "
        "from group having if ilike in intersect is join lateral like limit map not numeric offset on or over rlike "
        "rollup select sets struct then try_cast union using values varchar when where with",
    )
)
_LEXERS = {"spark": (_SPARK, _WORDS), "duckdb": (_DUCKDB, _WORDS | {"coalesce", "exclude", "struct"})}


def calls(sql: str, engine: str) -> Iterator[str]:
    """The names of the functions that ``sql``, a text of our own rendering, calls.

    Raises UserError for what is no such text: a comment, a prefixed or unclosed text, a quoted name that is called.
    """
    lexer, words = _LEXERS[engine]
    place, called, before, naming = 0, "", "", False
    while place < len(sql):
        match = lexer.match(sql, place)
        if match is None:
            raise UserError(f"not understood: {sql[place : place + 40]}", _ONE)
        kind, piece = str(match.lastgroup), match.group()
        # AS name(columns) stands in quotes in Spark's text.
        named = naming and (engine == "duckdb" or called == "`")
        if piece == "(" and called == "`" and not named:
            raise UserError("a quoted name is called as a function", "call functions by their plain names")
        if piece == "(" and called and not named and called.lower() not in words:
            yield called
        if kind == "text" and before == "word" and sql[place - 1] != " ":
            raise UserError(f"the text {piece[:20]} has a prefix", "write it as a plain text in quotes")
        if kind != "space":
            naming = called.lower() in ("as", "with")  # AS name(columns)
            called = piece if kind == "word" else "`" if kind == "quoted" else ""
        before, place = kind, match.end()
