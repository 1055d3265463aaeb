"""Statements by the hundred from a seed: pieces of Spark's SQL, put together in ways that nobody thought of."""

from __future__ import annotations

import random

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
_NAMES = ("a", "b", "`c`", "t.a", "`a b`", "t.`–`", "A", "`select`", "`from`", "t.s.f", "`1`")
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
_ODD = (
    *(
        "-- \\\n",
        "/* /*+ x */ */",
        "/*+ BROADCAST(t) */",
        "${env:HOME}",
        "'a''b'",
        "'a' 'b'",
        "r'\\'",
        "'\\u0027'",
        ";",
    ),
    *("reﬂect(1)", "\u00a0", "`a``b`", "{{x}}", ":x", "?", "X'1F'", "'\\0'", "IDENTIFIER('a')", "TABLE", "USING 'cat'"),
    *("reflect('a')", "`abs`(1)", "system.builtin.abs(1)", "$1", "@x", "#", "\\", "'", '"', "`", "/*", "*/", "--"),
)


def statement(seed: int) -> str:
    """One statement over the table ``t``; some are no SQL at all."""
    chance = random.Random(seed)
    sql = _query(chance, 3)
    sql = "".join(chance.choice(_SPACES) if letter == " " and chance.random() < 0.2 else letter for letter in sql)
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        at = chance.randrange(len(sql) + 1)
        sql = sql[:at] + chance.choice(_ODD) + sql[at:]
    return sql


def _query(chance: random.Random, depth: int) -> str:
    columns = ", ".join(
        _value(chance, depth) + chance.choice(("", " AS x", " AS `y z`", " q")) for _ in range(chance.randint(1, 3))
    )
    sql = f"SELECT {chance.choice(('', '', 'DISTINCT '))}{columns} FROM {_source(chance, depth)}"
    if chance.random() < 0.4:
        sql += f" WHERE {_value(chance, depth)}"
    if chance.random() < 0.2:
        sql += f" GROUP BY {chance.choice((_value(chance, 1), 'ALL', 'CUBE (a, b)', 'GROUPING SETS ((a), ())'))}"
    if chance.random() < 0.2:
        sql += f" ORDER BY {_value(chance, 1)} {chance.choice(('ASC', 'DESC', 'DESC NULLS LAST', 'NULLS FIRST'))}"
    if chance.random() < 0.2:
        sql += " LIMIT 3"
    if depth > 1 and chance.random() < 0.2:
        sql = f"{sql} {chance.choice(('UNION ALL', 'UNION', 'EXCEPT', 'INTERSECT'))} {_query(chance, depth - 2)}"
    if depth > 1 and chance.random() < 0.2:
        sql = f"WITH w AS ({_query(chance, depth - 2)}) {sql}"
    return sql


def _source(chance: random.Random, depth: int) -> str:
    if depth > 1 and chance.random() < 0.2:
        return f"({_query(chance, depth - 2)}) AS t"
    return chance.choice(
        (
            *(
                "t",
                "t",
                "t AS u",
                "`t`",
                "t JOIN t v ON t.a = v.a",
                "t LEFT JOIN t v USING (a)",
                "t, t AS v",
                "range(3)",
            ),
            *("t CROSS JOIN t v", "t LATERAL VIEW explode(array(1)) e AS x", "(VALUES (1, 'x'), (2, 'y')) AS v(a, b)"),
            *("t LEFT ANTI JOIN t v ON t.a <=> v.a", "t, LATERAL (SELECT t.a AS la)", "T", "t NATURAL JOIN t v"),
        )
    )


def _value(chance: random.Random, depth: int) -> str:
    if depth <= 0:
        return chance.choice((*_TEXTS, *_NUMBERS, *_NAMES, "NULL", "true", "DATE '2026-01-01'", "INTERVAL 3 DAYS"))
    one, two = _value(chance, depth - 1), _value(chance, depth - chance.randint(1, 3))
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
            f"{chance.choice(_NAMES)}[{chance.choice(('0', _TEXTS[0]))}]",
            f"extract(HOUR FROM {one})",
            f"({_query(chance, 0)})" if depth > 1 else one,
            f"timestampdiff(SECOND, {one}, {two})",
            "*",
            one,
        )
    )
