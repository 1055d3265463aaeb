"""Hostile statements: each wants more than to ask. None may have an effect, at whatever entrance it comes in.

A statement may be refused, or answered as the harmless one that it was understood as. It has an effect if the file
``MARKER`` is there afterwards, or if the answer, or the error, holds ``SECRET`` or the content of ``READABLE``.
"""

from __future__ import annotations

from pathlib import Path

#: Stand for paths, in the texts below.
MARKER = "@MARKER@"
READABLE = "@READABLE@"
#: A variable of the environment, whose value no answer may hold.
VARIABLE = "SOJOURN_TEST_SECRET"
SECRET = "s3cret-of-the-environment"
#: What the file ``READABLE`` holds.
CONTENT = "c0ntent-of-a-file"

_PROPERTY = "'java.lang.System', 'getenv', 'SOJOURN_TEST_SECRET'"
_TOUCH = f"TRANSFORM(x) USING 'touch {MARKER}' AS (b STRING) FROM (VALUES ('q')) AS t(x)"
_WRITE = f"INSERT OVERWRITE DIRECTORY '{MARKER}' USING csv SELECT 1"


def _hidden(attack: str) -> str:
    """``attack``, which one parser takes for a comment: the other continues a line that ends in a backslash."""
    return f"SELECT 'a' AS b -- \\\n/*\n{attack}\n-- \\\n*/"


_COMMENTS = [
    ("a continued comment hides a script", _hidden(f"UNION ALL SELECT {_TOUCH}")),
    ("a continued comment hides a second statement", _hidden(f"; {_WRITE}")),
    ("a continued comment hides a DELETE", "-- \\\n/*\nDELETE FROM partials\n-- \\\n*/ SELECT 1 AS b"),
    ("a continued comment hides an INSERT", f"-- \\\n/*\n{_WRITE}\n-- \\\n*/ SELECT 1 AS b"),
    ("a continued comment, carriage returns", _hidden(f"UNION ALL SELECT {_TOUCH}").replace("\n", "\r\n")),
    ("a continued comment, form feeds", _hidden(f"UNION ALL SELECT {_TOUCH}").replace("\n", "\f")),
    ("a carriage return ends a comment for one", f"SELECT 'a' AS b -- x\rUNION ALL SELECT {_TOUCH}"),
    ("a line separator ends a comment for one", f"SELECT 'a' AS b -- x\u2028UNION ALL SELECT {_TOUCH}"),
    ("a next line ends a comment for one", f"SELECT 'a' AS b -- x\u0085UNION ALL SELECT {_TOUCH}"),
    ("a hint inside of a comment", f"SELECT 1 /* /*+ x */, reflect({_PROPERTY}) --… */ AS b"),
    ("a hint that calls", f"SELECT /*+ REPARTITION(reflect({_PROPERTY})) */ 1 AS b"),
    ("a hint that is not closed", f"SELECT /*+ BROADCAST(a), reflect({_PROPERTY}) AS b"),
    ("a comment inside of a comment", f"SELECT 1 /* /* */ , reflect({_PROPERTY}) /* */ */ AS b"),
    ("a comment that looks like a version", f"SELECT 1 /*! , reflect({_PROPERTY}) */ AS b"),
    ("a comment that is not closed", f"SELECT 1 AS b /* reflect({_PROPERTY})"),
    ("a hash comment", f"SELECT 1 AS b # \n, reflect({_PROPERTY})"),
    ("a double slash comment", f"SELECT 1 AS b // \n, reflect({_PROPERTY})"),
    ("a comment within a name", f"SELECT re/**/flect({_PROPERTY})"),
    ("a comment between name and parenthesis", f"SELECT reflect/**/({_PROPERTY})"),
    ("a line comment between name and parenthesis", f"SELECT reflect --\n({_PROPERTY})"),
]

_SUBSTITUTION = [
    ("the environment in a text", "SELECT '${env:SOJOURN_TEST_SECRET}' AS b"),
    ("the environment in a number", "SELECT ${env:SOJOURN_TEST_SECRET} AS b"),
    ("the environment in a name", "SELECT 1 AS `${env:SOJOURN_TEST_SECRET}`"),
    ("the environment in a double-quoted text", 'SELECT "${env:SOJOURN_TEST_SECRET}" AS b'),
    ("the environment in a comment", "SELECT 1 AS b -- ${env:SOJOURN_TEST_SECRET}"),
    ("system properties", "SELECT '${system:user.dir}', '${hiveconf:x}', '${spark:spark.app.id}' AS b"),
    ("a setting", "SELECT ${spark.sql.execution.arrow.zz} AS b"),
    ("a setting with a default", f"SELECT ${{x:-{_TOUCH}}} AS b"),
    ("nested substitution", "SELECT '${env:${env:SOJOURN_TEST_SECRET}}' AS b"),
    ("a parameter", "SELECT :x AS b"),
    ("a positional parameter", "SELECT ? AS b"),
    ("an identifier parameter", "SELECT IDENTIFIER(:x)(1) AS b"),
]

_FUNCTIONS = [
    *(
        (f"{name} reads the environment", f"SELECT {name}({_PROPERTY}) AS b")
        for name in ("reflect", "REFLECT", "java_method", "Java_Method", "try_reflect", "`reflect`", "`java_method`")
    ),
    ("a qualified function", f"SELECT system.builtin.reflect({_PROPERTY}) AS b"),
    ("a qualified, quoted function", f"SELECT `system`.`builtin`.`reflect`({_PROPERTY}) AS b"),
    ("a quoted path", f"SELECT `system.builtin.reflect`({_PROPERTY}) AS b"),
    ("a function of the session", f"SELECT session.reflect({_PROPERTY}) AS b"),
    ("a ligature", f"SELECT reﬂect({_PROPERTY}) AS b"),
    ("a ligature in quotes", f"SELECT `reﬂect`({_PROPERTY}) AS b"),
    ("a dotless i", "SELECT ıdentifier('reflect')('java.lang.System', 'getProperty', 'user.dir') AS b"),
    ("a dotted capital I", "SELECT İDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.dir') AS b"),
    ("a Kelvin sign", "SELECT inverse_\u212aind(1), \u212areflect(1) AS b"),
    ("a full-width name", f"SELECT ｒｅｆｌｅｃｔ({_PROPERTY}) AS b"),
    ("a soft hyphen", f"SELECT re\u00adflect({_PROPERTY}) AS b"),
    ("a zero-width space", f"SELECT reflect\u200b({_PROPERTY}) AS b"),
    ("a no-break space", f"SELECT reflect\u00a0({_PROPERTY}) AS b"),
    ("an ideographic space", f"SELECT reflect\u3000({_PROPERTY}) AS b"),
    ("a byte order mark", f"\ufeffSELECT reflect({_PROPERTY}) AS b"),
    ("a line break before the parenthesis", f"SELECT reflect\n({_PROPERTY}) AS b"),
    ("identifier makes a function of text", f"SELECT IDENTIFIER('reflect')({_PROPERTY}) AS b"),
    ("identifier of a concatenation", f"SELECT IDENTIFIER('re' || 'flect')({_PROPERTY}) AS b"),
    ("identifier of adjacent texts", f"SELECT IDENTIFIER('re' 'flect')({_PROPERTY}) AS b"),
    ("identifier with a comment", f"SELECT IDENTIFIER/**/('reflect')({_PROPERTY}) AS b"),
    ("call_function", f"SELECT call_function('reflect', {_PROPERTY}) AS b"),
    ("call_function with a comment", f"SELECT call_function('reflect/**/', {_PROPERTY}) AS b"),
    ("a name that holds a comment", f"SELECT `reflect -- x`({_PROPERTY}) AS b"),
    ("a name with a comment in it", f"SELECT `reflect/**/`({_PROPERTY}) AS b"),
    ("is_user_defined_function", "SELECT is_user_defined_function('reflect') AS b"),
    ("getvariable", "SELECT getvariable('x'), session.x AS b"),
    ("a lambda calls", f"SELECT transform(array(1), n -> reflect({_PROPERTY})) AS b"),
    ("a window calls", f"SELECT reflect({_PROPERTY}) OVER () AS b"),
    ("a filter calls", f"SELECT count(*) FILTER (WHERE reflect({_PROPERTY}) IS NULL) AS b"),
    ("an interval calls", f"SELECT INTERVAL reflect({_PROPERTY}) DAYS AS b"),
    ("an order calls", f"SELECT 1 AS b ORDER BY reflect({_PROPERTY})"),
    ("a limit calls", "SELECT 1 AS b LIMIT length(reflect('java.lang.System', 'getProperty', 'user.dir'))"),
    ("a default calls", f"SELECT coalesce(NULL, reflect({_PROPERTY})) AS b"),
    ("a named argument calls", f"SELECT mask(str => reflect({_PROPERTY})) AS b"),
    (
        "from_xml validates by a schema from outside",
        f"SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '{READABLE}')) AS b",
    ),
    (
        "from_xml resolves entities",
        f"SELECT from_xml('<!DOCTYPE a [<!ENTITY x SYSTEM \"{READABLE}\">]><a>&x;</a>', 'a INT')",
    ),
    ("schema_of_xml", f"SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '{READABLE}')) AS b"),
    (
        "xpath resolves entities",
        f"SELECT xpath_string('<!DOCTYPE a [<!ENTITY x SYSTEM \"{READABLE}\">]><a>&x;</a>', 'a')",
    ),
    ("from_avro", f"SELECT from_avro(x, '', map('avroSchemaUrl', 'file://{READABLE}')) FROM VALUES ('a') AS t(x)"),
    ("from_protobuf loads a descriptor", f"SELECT from_protobuf(x, 'M', '{READABLE}') FROM VALUES ('a') AS t(x)"),
    ("rows where Spark sees a call", "SELECT count(VALUES (1 < 2)) AS b FROM partials"),
    ("options of JSON", "SELECT from_json('{}', 'a INT', map('locale', 'x')) AS b"),
    ("options of CSV", "SELECT from_csv('1', 'a INT', map('sep', ';')) AS b"),
    (
        "SQL in the defaults of a schema",
        r"""SELECT from_json('{}', '{"type":"struct","fields":[{"metadata":{"EXISTS_DEFAULT":"reflect(1)"}}]}') AS b""",
    ),
    ("the user", "SELECT current_user, current_user(), session_user(), user(), `current_user` AS b"),
    ("the place of files", "SELECT input_file_name(), _metadata.file_path AS b FROM partials"),
    ("the environment of DuckDB", "SELECT getenv('SOJOURN_TEST_SECRET') AS b"),
    ("a setting of DuckDB", "SELECT current_setting('temp_directory') AS b"),
    ("text that DuckDB runs", f"SELECT * FROM query('COPY (SELECT 1) TO ''{MARKER}''')"),
    ("text that DuckDB runs, as JSON", "SELECT json_execute_serialized_sql('{}') AS b"),
    ("DuckDB sleeps", "SELECT sleep_ms(1), pg_sleep(1) AS b"),
    ("Spark asks a model", "SELECT ai_query('m', 'x'), http_request('GET', 'http://127.0.0.1:1/') AS b"),
]

_FILES = [
    *(
        (f"{name} as a table", f"SELECT * FROM {name}('{READABLE}')")
        for name in ("read_csv", "read_csv_auto", "read_text", "read_blob", "read_json", "read_parquet", "parquet_scan")
    ),
    *((f"{name} as a table", f"SELECT * FROM {name}('{READABLE}')") for name in ("glob", "sniff_csv", "read_files")),
    *(
        (f"a file as a table of {form}", f"SELECT * FROM {form}.`{READABLE}`")
        for form in ("text", "csv", "json", "parquet", "orc", "delta", "binaryFile", "avro", "xml", "`text`", "jdbc")
    ),
    ("a path for a table", f"SELECT * FROM '{READABLE}'"),
    ("a path in double quotes", f'SELECT * FROM "{READABLE}"'),
    ("a path in backticks", f"SELECT * FROM `{READABLE}`"),
    ("a WITH clause named like a format", f"WITH text AS (SELECT 1) SELECT * FROM text.`{READABLE}`"),
    ("an alias named like a format", f"SELECT * FROM partials text, text.`{READABLE}`"),
    ("a table of another database", "SELECT * FROM information_schema.tables"),
    ("a catalogue of DuckDB", "SELECT * FROM sqlite_master"),
    ("settings of DuckDB", "SELECT * FROM duckdb_settings()"),
    ("secrets of DuckDB", "SELECT * FROM duckdb_secrets()"),
    (
        "a name out of its scope",
        "SELECT * FROM (WITH sqlite_master AS (SELECT 1) SELECT * FROM sqlite_master) a, sqlite_master",
    ),
    ("changes of a table", "SELECT * FROM table_changes('partials', 0)"),
    ("changes by path", f"SELECT * FROM table_changes_by_path('{READABLE}', 0)"),
    ("logs of workers", "SELECT * FROM python_worker_logs()"),
    ("an alias that closes its quotes", "SELECT * FROM partials LATERAL VIEW explode(array(1)) `t, reflect(1)` AS x"),
    ("a name with a backtick", "SELECT 1 AS `a``, reflect(1) AS ``b`"),
    ("IDENTIFIER of a table", f"SELECT * FROM IDENTIFIER('text.`{READABLE}`')"),
    ("a version of a table", "SELECT * FROM partials VERSION AS OF 0"),
    ("options of a table", f"SELECT * FROM partials WITH ('path' = '{READABLE}')"),
]

_STATEMENTS = [
    ("a script", f"SELECT {_TOUCH}"),
    ("a script, MAP", f"FROM (VALUES ('q')) AS t(x) MAP x USING 'touch {MARKER}' AS b"),
    ("a script, REDUCE", f"FROM (VALUES ('q')) AS t(x) REDUCE x USING 'touch {MARKER}' AS b"),
    ("a script in a subquery", f"SELECT (SELECT {_TOUCH}) AS b"),
    ("a script in a WITH clause", f"WITH w AS (SELECT {_TOUCH}) SELECT * FROM w"),
    ("a script behind FROM", f"FROM (VALUES ('q')) AS t(x) SELECT TRANSFORM(x) USING 'touch {MARKER}'"),
    ("writing a folder", _WRITE),
    ("writing a folder in a WITH clause", f"WITH w AS (SELECT 1) {_WRITE}"),
    ("many inserts", f"FROM partials {_WRITE} INSERT INTO x SELECT 1"),
    ("CREATE TABLE", f"CREATE TABLE x USING csv LOCATION '{MARKER}' AS SELECT 1"),
    ("CREATE FUNCTION", f"CREATE TEMPORARY FUNCTION f AS 'x.Y' USING JAR '{READABLE}'"),
    ("SELECT INTO", "SELECT 1 AS b INTO x"),
    ("COPY", f"COPY (SELECT 1) TO '{MARKER}'"),
    ("COPY of DuckDB after a query", f"SELECT 1; COPY (SELECT 1) TO '{MARKER}'"),
    ("EXPORT", f"EXPORT DATABASE '{MARKER}'"),
    ("ATTACH", f"ATTACH '{MARKER}' AS x"),
    ("INSTALL", "INSTALL httpfs"),
    ("PRAGMA", "PRAGMA database_list"),
    ("CALL", "CALL pragma_version()"),
    ("ADD JAR", f"ADD JAR {READABLE}"),
    ("SET", "SET spark.sql.variable.substitute = true"),
    ("SET VAR", "SET VAR x = 1"),
    ("DECLARE", "DECLARE VARIABLE x INT DEFAULT 1"),
    ("EXECUTE IMMEDIATE", f'EXECUTE IMMEDIATE "{_WRITE}"'),
    ("a compound statement", f"BEGIN {_WRITE}; END"),
    ("DELETE", "DELETE FROM partials"),
    ("UPDATE", "UPDATE partials SET broker = 'x'"),
    ("MERGE", "MERGE INTO partials USING partials p ON true WHEN MATCHED THEN DELETE"),
    ("TRUNCATE", "TRUNCATE TABLE partials"),
    ("VACUUM", "VACUUM partials RETAIN 0 HOURS"),
    ("OPTIMIZE", "OPTIMIZE partials"),
    ("DROP", "DROP VIEW partials"),
    ("EXPLAIN", f"EXPLAIN SELECT {_TOUCH}"),
    ("CACHE", "CACHE TABLE x AS SELECT 1"),
    ("REFRESH", f"REFRESH '{MARKER}'"),
    ("SHOW", "SHOW FUNCTIONS"),
    ("pipes", f"FROM partials |> SELECT reflect({_PROPERTY})"),
    ("FOR UPDATE", "SELECT 1 AS b FROM partials FOR UPDATE"),
    ("two statements", "SELECT 1 AS b; DROP VIEW partials"),
    ("WITH RECURSIVE", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"),
    ("PIVOT", "SELECT * FROM partials PIVOT (count(1) FOR broker IN ('x'))"),
    ("nothing", ""),
    ("nothing but a comment", "-- SELECT 1"),
    ("a semicolon", ";"),
]

_TEXTS = [
    ("a unicode escape that ends a text", f"SELECT '\\u0027, reflect({_PROPERTY}) AS c -- ' AS b"),
    ("an octal escape that ends a text", f"SELECT '\\047, reflect({_PROPERTY}) AS c -- ' AS b"),
    ("a raw text that ends in a backslash", f"SELECT r'\\', reflect({_PROPERTY}), r'' AS b"),
    ("a raw text in double quotes", f'SELECT r"\\", reflect({_PROPERTY}), r"" AS b'),
    ("a text that ends in a backslash", f"SELECT '\\', reflect({_PROPERTY}), '' AS b"),
    ("two quotes in a text", f"SELECT 'a'', reflect({_PROPERTY}), ''b' AS b"),
    ("two double quotes in a text", f'SELECT "a"", reflect({_PROPERTY}), ""b" AS b'),
    ("a double-quoted name", f'SELECT "a", reflect({_PROPERTY}), "b" AS b'),
    ("adjacent texts", f"SELECT 'reflect' '(' \"{VARIABLE}\" ')' AS b"),
    ("an E text", f"SELECT E'\\', reflect({_PROPERTY}), E'' AS b"),
    ("a dollar-quoted text", f"SELECT $$a', reflect({_PROPERTY}), 'b$$ AS b"),
    ("a text that is not closed", f"SELECT 'a, reflect({_PROPERTY})"),
    ("a name that is not closed", f"SELECT `a, reflect({_PROPERTY})"),
    ("a NUL", f"SELECT 'a\0', reflect({_PROPERTY}) AS b"),
    ("a lone surrogate", "SELECT '\ud800' AS b"),
    ("a template", "SELECT {{ x }} AS b"),
    ("a Jinja statement", "SELECT {% x %} 1 AS b"),
    ("an end of file", f"SELECT 1 AS b \x1a, reflect({_PROPERTY})"),
]

_HEAVY = [
    ("3,000 parentheses", "SELECT " + "(" * 3000 + "1" + ")" * 3000),
    ("3,000 open parentheses", "SELECT " + "(" * 3000),
    ("3,000 brackets", "SELECT a" + "[" * 3000 + "1" + "]" * 3000),
    ("10,000 terms", "SELECT 1" + " + 1" * 10_000 + " AS b"),
    ("2,000 conditions", "SELECT 1 AS b WHERE " + " OR ".join(["1 = 2"] * 2_000)),
    ("1,000 signs", "SELECT " + "- " * 1000 + "1"),
    ("1,000 negations", "SELECT " + "NOT " * 1000 + "true"),
    ("1,000 CASEs", "SELECT " + "CASE WHEN true THEN " * 1000 + "1" + " END" * 1000),
    ("1,000 lambdas", "SELECT transform(a, " + "a -> " * 1000 + "1)"),
    ("1,000 casts", "SELECT 1" + "::int" * 1000),
    ("1,000 parts of a name", "SELECT a" + ".a" * 1000),
    ("1,000 array types", "SELECT CAST(1 AS " + "array<" * 1000 + "int" + ">" * 1000 + ")"),
    ("1,000 subqueries", "SELECT * FROM " + "(SELECT * FROM " * 1000 + "partials" + ")" * 1000),
    ("1,000 joins", "SELECT 1 AS b FROM partials" + " JOIN partials" * 1000),
    ("1,000 unions", "SELECT 1 AS b" + " UNION ALL SELECT 1" * 1000),
    ("1,000 intervals", "SELECT " + "INTERVAL " * 1000 + "'1' DAY"),
    ("1,000 function calls", "SELECT " + "abs(" * 1000 + "1" + ")" * 1000),
    ("a megabyte of text", "SELECT '" + "x" * 1_000_000 + "' AS b"),
    ("a megabyte of comment", "SELECT 1 AS b /*" + "x" * 1_000_000 + "*/"),
    ("100,000 semicolons", "SELECT 1 AS b" + ";" * 60_000),
]

STATEMENTS: list[tuple[str, str]] = [
    *(*_COMMENTS, *_SUBSTITUTION, *_FUNCTIONS),
    *(*_FILES, *_STATEMENTS, *_TEXTS, *_HEAVY),
]


def placed(sql: str, marker: Path, readable: Path) -> str:
    """``sql`` with the paths for which its placeholders stand."""
    return sql.replace(MARKER, str(marker)).replace(READABLE, str(readable))
