"""Statements between the harmless and the hostile, made from a seed: the same number gives the same statement."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

TABLES = ("partials", "limits", "queue_samples", "queue_health_now", "tenant_backlog_now", "actions")
COLUMNS = (
    *("broker", "queue", "tenant", "backlog", "enqueued", "rate", "bucket_start", "depth", "reason", "x", "`queue`"),
    *("b", "`c`", "t.a", "`a b`", "t.`–`", "A", "`select`", "`from`", "t.s.f", "`1`"),
)
_TEXTS = (
    *(
        "'a'",
        '"b"',
        "'it\\'s'",
        "'\\\\'",
        "'\\\\d+'",
        "'a\\nb'",
        "'–ü漢'",
        "'--'",
        "'/*'",
        "'*/'",
        "';'",
        "'%'",
        "'`'",
        "''",
    ),
    *("'\"'", '"\'"', "'a\tb'", "'\\\"'", "' OR 1=1 -- '", "'\\\\\\''", "'$'", "'{x}'", "':y'", "'?'"),
)
_NUMBERS = ("0", "1", "1.5", ".5", "1e3", "10L", "2S", "3Y", "1.5D", "1.50BD", "-1", "- -1", "1.")
_OPERATORS = (
    *("+", "-", "*", "/", "%", "DIV", "=", "<>", "<=>", "<", ">=", "AND", "OR", "||", "&", "|", "^", "LIKE", "RLIKE"),
    *("!=", "==", "ILIKE", "IS DISTINCT FROM"),
)
_FUNCTIONS = (
    *("abs", "coalesce", "concat", "upper", "date_trunc", "percentile", "percentile_approx", "collect_list", "first"),
    *("named_struct", "struct", "array", "map", "sequence", "size", "split", "regexp_extract", "to_json", "trunc"),
    *("get_json_object", "date_add", "datediff", "year", "nvl", "unix_timestamp", "from_unixtime", "to_date", "ceil"),
    *("log", "pow", "isnull", "element_at", "try_divide", "bit_and", "left", "right", "replace", "if", "count_if"),
)
_SPACES = (" ", "\n", "\t", " /* x */ ", " -- y\n", "  ", " /* 'z */ ", ' -- "\n', "\r\n")
#: What a statement must never reach, with {marker} for the file that it would make.
HOSTILE = (
    "reflect('java.lang.Runtime', 'getRuntime')",
    "java_method('java.nio.file.Files', 'createFile', '{marker}')",
    "try_reflect('java.lang.System', 'getenv', 'SOJOURN_FUZZ_SECRET')",
    "call_function('reflect', 'java.lang.System', 'getenv')",
    'call_function("reflect/**/", "x")',
    "is_user_defined_function('x')",
    "IDENTIFIER('reflect')('x')",
    "`reflect`('java.lang.System', 'exit')",
    "system.builtin.reflect('a', 'b')",
    "from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '{marker}'))",
    "xpath_string('<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>', 'a')",
    "input_file_name()",
    "current_user()",
    "read_csv('/etc/passwd')",
    "getenv('SOJOURN_FUZZ_SECRET')",
    "getvariable('x')",
    "query('SELECT 1')",
    "'${env:SOJOURN_FUZZ_SECRET}'",
    "1 AS `${env:SOJOURN_FUZZ_SECRET}`",
    "`${spark.driver.host}`",
    "${env:SOJOURN_FUZZ_SECRET}",
    "${spark.driver.host}",
    "{{ secret }}",
    "@@version",
    ":x",
    "?",
)
SOURCES = (
    "text.`/etc/passwd`",
    "csv.`{marker}`",
    "delta.`/`",
    "`text`.`/etc/passwd`",
    "parquet.`file:///etc/passwd`",
    "'/etc/passwd'",
    '"/etc/passwd"',
    "read_text('/etc/passwd')",
    "glob('/*')",
    "duckdb_settings()",
    "information_schema.tables",
    "IDENTIFIER('partials')",
    "TABLE(partials)",
    "STREAM(partials)",
    "partials VERSION AS OF 0",
    "partials@v0",
    "partials TABLESAMPLE (1 ROWS)",
    "range(3)",
    "(SELECT TRANSFORM(queue) USING 'touch {marker}' AS (b STRING) FROM partials)",
    "(VALUES ('q')) AS t(x)",
    "spark_catalog.default.partials",
)
WHOLE = (
    "INSERT OVERWRITE DIRECTORY '{marker}' USING csv SELECT 1",
    "SELECT 1 INTO OUTFILE '{marker}'",
    "COPY partials TO '{marker}'",
    "CREATE TABLE t AS SELECT 1",
    "DELETE FROM partials",
    "SET spark.sql.variable.substitute=true",
    "ADD JAR '{marker}'",
    "ATTACH '{marker}'",
    "INSTALL httpfs",
    "EXPLAIN SELECT 1",
    "CALL system.x()",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "BEGIN SELECT 1; END",
    "FROM partials |> WHERE true |> DROP x",
    "SELECT TRANSFORM(queue) USING 'touch {marker}' AS (b STRING) FROM partials",
    "FROM (FROM partials MAP queue USING 'touch {marker}' AS b) t INSERT OVERWRITE DIRECTORY '{marker}' SELECT *",
    "PIVOT partials ON queue",
    "PRAGMA database_list",
)
#: Pieces where two readers of SQL part company.
PIECES = (
    *(
        "--",
        "-- \\\n",
        "--\n",
        "-- x\r",
        "/*",
        "*/",
        "/* /* */",
        "/* /*+ x */",
        "/*+ BROADCAST(a) */",
        "/*!1",
        "#",
        "//",
    ),
    *(
        "'",
        '"',
        "`",
        "``",
        "''",
        "\\",
        "\\'",
        "\\\n",
        "\\u0027",
        "\\047",
        "$$",
        "$x$",
        "r'\\'",
        'R"x"',
        "x'41'",
        "E'\\''",
    ),
    *(
        "${env:PATH}",
        "${x}",
        "${",
        "}",
        "{",
        ";",
        "; SELECT 1",
        ",",
        "(",
        ")",
        "[",
        "]",
        "=>",
        "->",
        "::",
        ":",
        "|>",
        "||",
    ),
    *("\x00", "\n", "\r", "\t", "\v", "\f", "\x1b[2J", "\xa0", "\u2028", "\u200b", "\ufeff", "\u202e", "\u3000"),
    *("\ufb02", "\u0131", "\u017f", "\u212a", "\uff07", "\u02bc", "\ud800", "\U0001f986", "\u037e", "\u2215", "\u0130"),
    *(
        "'a''b'",
        "'a' 'b'",
        "X'1F'",
        "'\\0'",
        "`a``b`",
        "`abs`(1)",
        "system.builtin.abs(1)",
        "$1",
        "@x",
        "{{x}}",
        ":x",
        "?",
    ),
    *("IDENTIFIER('a')", "TABLE", "USING 'cat'", "reﬂect(1)", "reflect('a')"),
    *(" UNION ALL SELECT ", " USING ", " LATERAL VIEW ", " AS ", " NOT ", "- - ", " INTERVAL ", " TABLE ", " VALUES "),
)
#: Letters that fold to ASCII somewhere.
_ALIKE = {"k": "\u212a", "s": "\u017f", "i": "\u0131", "fl": "\ufb02", "fi": "\ufb01", "a": "\uff41", "e": "\u0435"}
_BORDER = re.compile(r"(?<=\w)(?=\W)|(?<=\W)(?=\w)|(?<=\W)(?=\W)")


class Words(NamedTuple):
    """What statements are made of: tables, and the shares, 0 to 1, of what a statement must never reach."""

    tables: Sequence[str]
    hostile_values: float = 0.0
    hostile_sources: float = 0.0


_HOSTILE_WORDS = Words(TABLES, 0.02, 0.06)


def statement(seed: int, number: int, marker: str, corpus: Sequence[str] = ()) -> str:
    """Statement ``number`` of the run ``seed``; one in eight begins with a statement of ``corpus``."""
    chance = random.Random(f"{seed}:{number}")
    if corpus and chance.random() < 0.125:
        text = chance.choice(corpus)
    elif chance.random() < 0.05:
        text = chance.choice(WHOLE)
    else:
        text = _query(chance, _HOSTILE_WORDS, 3)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        text = chance.choice(_CHANGES)(chance, text)
    return text.replace("{marker}", marker)


def honest(seed: int, number: int, tables: Sequence[str]) -> str:
    """Statement ``number`` of the run ``seed`` over ``tables``, reaching for nothing else; some are no SQL at all."""
    chance = random.Random(f"{seed}:{number}")
    text = _query(chance, Words(tables), 3)
    text = "".join(chance.choice(_SPACES) if letter == " " and chance.random() < 0.2 else letter for letter in text)
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        text = _insert(chance, text)
    return text


def _query(chance: random.Random, words: Words, depth: int) -> str:
    columns = ", ".join(
        _value(chance, words, depth) + chance.choice(("", " AS x", " AS `y z`", " q"))
        for _ in range(chance.randint(1, 3))
    )
    text = f"SELECT {chance.choice(('', '', 'DISTINCT '))}{columns}"
    if chance.random() < 0.9:
        text += f" FROM {_source(chance, words, depth)}"
    if chance.random() < 0.4:
        text += f" WHERE {_value(chance, words, depth)}"
    if chance.random() < 0.2:
        text += (
            f" GROUP BY {chance.choice((_value(chance, words, 1), 'ALL', 'CUBE (a, b)', 'GROUPING SETS ((a), ())'))}"
        )
    if chance.random() < 0.2:
        order = chance.choice(("ASC", "DESC", "DESC NULLS LAST", "NULLS FIRST"))
        text += f" ORDER BY {_value(chance, words, 1)} {order}"
    if chance.random() < 0.2:
        text += " LIMIT 3"
    if depth > 1 and chance.random() < 0.2:
        together = chance.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
        text = f"{text} {together} {_query(chance, words, depth - 2)}"
    if depth > 1 and chance.random() < 0.2:
        text = f"WITH w AS ({_query(chance, words, depth - 2)}) {text}"
    return text


def _source(chance: random.Random, words: Words, depth: int) -> str:
    if chance.random() < words.hostile_sources:
        return chance.choice(SOURCES)
    if depth > 1 and chance.random() < 0.2:
        return f"({_query(chance, words, depth - 2)}) AS t"
    t = chance.choice(words.tables)
    return chance.choice(
        (
            *(t, t, t, f"{t} AS t", f"{t} AS u", f"`{t}`", t.upper(), "range(3)"),
            *(f"{t} JOIN {t} v ON {t}.a = v.a", f"{t} LEFT JOIN {t} v USING (a)", f"{t}, {t} AS v"),
            *(f"{t} CROSS JOIN {t} v", f"{t} NATURAL JOIN {t} v", f"{t} LEFT ANTI JOIN {t} v ON {t}.a <=> v.a"),
            *(f"{t} LATERAL VIEW explode(array(1)) e AS x", f"{t}, LATERAL (SELECT {t}.a AS la)"),
            "(VALUES (1, 'x'), (2, 'y')) AS v(a, b)",
        )
    )


def _value(chance: random.Random, words: Words, depth: int) -> str:
    if chance.random() < words.hostile_values:
        return chance.choice(HOSTILE)
    if depth <= 0:
        rest = ("NULL", "true", "DATE '2026-01-01'", "INTERVAL 3 DAYS")
        return chance.choice((*_TEXTS, *_NUMBERS, *COLUMNS, *rest))
    one, two = _value(chance, words, depth - 1), _value(chance, words, depth - chance.randint(1, 3))
    return chance.choice(
        (
            f"{one} {chance.choice(_OPERATORS)} {two}",
            f"({one} {chance.choice(_OPERATORS)} {two})",
            f"{chance.choice(_FUNCTIONS)}({one}, {two})",
            f"{chance.choice(_FUNCTIONS)}({one})",
            f"CASE WHEN {one} THEN {two} ELSE 1 END",
            f"CAST({one} AS {chance.choice(('INT', 'STRING', 'DECIMAL(10, 2)', 'ARRAY<INT>', 'STRUCT<a: INT>'))})",
            f"{one} {chance.choice(('IN (1, 2)', 'IS NOT NULL', 'BETWEEN 1 AND 2', 'NOT IN (3)', 'NOT LIKE _'))}",
            f"transform(array(1), n -> n + {two})",
            f"sum({one}) OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            f"count(DISTINCT {one}) FILTER (WHERE a > 1)",
            f"NOT {one}",
            f"-{one}",
            f"{chance.choice(COLUMNS)}[{chance.choice(('0', _TEXTS[0]))}]",
            f"extract(HOUR FROM {one})",
            f"({_query(chance, words, 0)})" if depth > 1 else one,
            f"EXISTS ({_query(chance, words, 0)})" if depth > 1 else one,
            f"timestampdiff(SECOND, {one}, {two})",
            "*",
            one,
        )
    )


def _insert(chance: random.Random, text: str) -> str:
    borders = [found.start() for found in _BORDER.finditer(text)] or [0]
    place = chance.choice(borders) if chance.random() < 0.8 else chance.randint(0, len(text))
    return text[:place] + chance.choice(PIECES) + text[place:]


def _wrap(chance: random.Random, text: str) -> str:
    inner = chance.choice(HOSTILE)
    return chance.choice(
        (
            f"-- \\\n/*\nUNION ALL {text}\n-- \\\n*/",
            f"{text} -- \\\n/*\nUNION ALL SELECT {inner}\n-- \\\n*/",
            f"SELECT /* /*+ x */, {inner} --… */ 1",
            f"{text} /*+ {inner} */",
            f"SELECT /*+ {inner} */ 1 FROM partials",
            f"SELECT '\\' || {inner} || '\\'",
            f"SELECT 'a''; {text}; --'",
        )
    )


def _fold(chance: random.Random, text: str) -> str:
    plain, alike = chance.choice(tuple(_ALIKE.items()))
    places = [found.start() for found in re.finditer(plain, text, re.IGNORECASE)]
    if not places:
        return text
    place = chance.choice(places)
    return text[:place] + alike + text[place + len(plain) :]


def _cut(chance: random.Random, text: str) -> str:
    first, last = sorted((chance.randint(0, len(text)), chance.randint(0, len(text))))
    return text[:first] + text[last:] if last - first < 20 else text[:last]


def _repeat(chance: random.Random, text: str) -> str:
    piece = chance.choice(("(", "NOT ", "- ", "CASE WHEN ", "SELECT (", "[", "a.", "1 + ", "UNION ALL SELECT 1 "))
    place = chance.randint(0, len(text))
    return text[:place] + piece * chance.choice((2, 9, 60, 500)) + text[place:]


_CHANGES: tuple[Callable[[random.Random, str], str], ...] = (
    _insert,
    _insert,
    _insert,
    _insert,
    _wrap,
    _fold,
    _fold,
    _cut,
    _repeat,
)
