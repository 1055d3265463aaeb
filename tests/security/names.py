"""Hostile names: what somebody may call a queue, a tenant, a subscriber or a message, and what must stay a name."""

from __future__ import annotations

#: Name of the hostility → the name. All of them are texts that UTF-8 can encode.
NAMES: dict[str, str] = {
    "a link": '<a href="http://evil.example">free</a>',
    "a script": "<script>alert(1)</script>",
    "an entity": "&lt;b&gt;&#60;",
    "markdown": "[x](http://evil.example) **b** `c`",
    "an address": "www.evil.example",
    "a terminal's title": "\x1b]0;owned\x07",
    "a terminal's colour": "\x1b[31mred\x1b[2J",
    "an eight-bit escape": "\x9b31m",
    "a forged line": "a\n2026-01-01 ERROR all is lost",
    "a carriage return": "a\rb",
    "a NUL": "a\x00b",
    "right to left": "pay\u202efdp.exe",
    "nothing to see": "\u200b\u2060\ufeff",
    "a path": "../../../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "a path of Windows": "..\\..\\windows",
    "SQL": "'; DROP TABLE partials; --",
    "SQL in another quote": '`"); SELECT 1; /*',
    "a hint": "/*+ BROADCAST(x) */",
    "a substitution": "${env:PATH} ${spark.driver.host}",
    "a template": "{{ labels.__class__ }} {% for x in range(9) %}",
    "a format": "%s%n%d {0.__class__} {}",
    "a formula": "=HYPERLINK(1)",
    "an exposition": 'a"} 1\nforged_metric{x="y',
    "a partition": "tenant=x/date=__HIVE_DEFAULT_PARTITION__",
    "JSON": '{"a": [1]}',
    "emoji": "🦆👩‍🚒",
    "many combining signs": "e" + "\u0301" * 200,
    "a long name": "n" * 16_384,
    "blank": " \t ",
    "a private sign": "\ue000\uffff\U0010ffff",
}
#: Not text: halves of surrogate pairs, as JSON may spell them.
HALVES = ("\ud800x", "x\udfff", "\udc00\ud800")
#: Longer than anybody's name.
ENDLESS = "n" * (64 * 1024)
