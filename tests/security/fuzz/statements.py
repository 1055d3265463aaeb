"""Statements between the harmless and the hostile, made from a seed: the same number gives the same statement."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

TABLES = ("partials", "limits", "queue_samples", "queue_health_now", "tenant_backlog_now", "actions")
COLUMNS = ("broker", "queue", "tenant", "backlog", "enqueued", "rate", "bucket_start", "depth", "reason", "x")
FUNCTIONS = ("sum", "count", "upper", "lower", "concat", "coalesce", "abs", "max", "length", "date_trunc", "array")
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
    *(" UNION ALL SELECT ", " USING ", " LATERAL VIEW ", " AS ", " NOT ", "- - ", " INTERVAL ", " TABLE ", " VALUES "),
)
#: Letters that fold to ASCII somewhere.
_ALIKE = {"k": "\u212a", "s": "\u017f", "i": "\u0131", "fl": "\ufb02", "fi": "\ufb01", "a": "\uff41", "e": "\u0435"}
_BORDER = re.compile(r"(?<=\w)(?=\W)|(?<=\W)(?=\w)|(?<=\W)(?=\W)")


def statement(seed: int, number: int, marker: str, corpus: Sequence[str] = ()) -> str:
    """Statement ``number`` of the run ``seed``; one in eight begins with a statement of ``corpus``."""
    chance = random.Random(f"{seed}:{number}")
    if corpus and chance.random() < 0.125:
        text = chance.choice(corpus)
    elif chance.random() < 0.05:
        text = chance.choice(WHOLE)
    else:
        text = _select(chance, 0)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 3))):
        text = chance.choice(_CHANGES)(chance, text)
    return text.replace("{marker}", marker)


def _select(chance: random.Random, depth: int) -> str:
    items = ", ".join(_expression(chance, depth) for _ in range(chance.randint(1, 3)))
    text = f"SELECT {items}"
    if chance.random() < 0.85:
        text += f" FROM {_source(chance, depth)}"
        if chance.random() < 0.5:
            text += f" WHERE {_expression(chance, depth)}"
        if chance.random() < 0.2:
            text += f" GROUP BY {chance.choice(COLUMNS)}"
        if chance.random() < 0.2:
            text += f" ORDER BY {chance.choice(COLUMNS)} DESC LIMIT {chance.randint(0, 9)}"
    if chance.random() < 0.1 and depth < 2:
        text += f" UNION ALL {_select(chance, depth + 1)}"
    if chance.random() < 0.1 and depth == 0:
        text = f"WITH c AS ({_select(chance, 1)}) {text}"
    return text


def _source(chance: random.Random, depth: int) -> str:
    dice = chance.random()
    if dice < 0.06:
        return chance.choice(SOURCES)
    if dice < 0.16 and depth < 2:
        return f"({_select(chance, depth + 1)}) AS s"
    if dice < 0.26:
        return f"{chance.choice(TABLES)} AS a JOIN {chance.choice(TABLES)} AS b ON a.{chance.choice(COLUMNS)} = b.queue"
    return chance.choice(TABLES)


def _expression(chance: random.Random, depth: int) -> str:
    dice = chance.random()
    if dice < 0.05:
        return chance.choice(HOSTILE)
    if dice < 0.35 or depth > 3:
        return chance.choice((*COLUMNS, "1", "'a'", "NULL", "true", "2.5", "`queue`"))
    if dice < 0.6:
        arguments = ", ".join(_expression(chance, depth + 1) for _ in range(chance.randint(0, 2)))
        return f"{chance.choice(FUNCTIONS)}({arguments})"
    if dice < 0.85:
        sign = chance.choice(("+", "=", "<", "AND", "||", "LIKE", "<=>", "%", "IN", "IS NOT DISTINCT FROM"))
        return f"({_expression(chance, depth + 1)} {sign} {_expression(chance, depth + 1)})"
    return chance.choice(
        (
            f"CAST({_expression(chance, depth + 1)} AS STRING)",
            f"CASE WHEN {_expression(chance, depth + 1)} THEN 1 ELSE 2 END",
            f"sum({chance.choice(COLUMNS)}) OVER (PARTITION BY {chance.choice(COLUMNS)})",
            f"transform(array(1, 2), v -> {_expression(chance, depth + 1)})",
            f"EXISTS (SELECT 1 FROM {_source(chance, depth + 1)})",
            "INTERVAL 5 SECONDS",
            "*",
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
