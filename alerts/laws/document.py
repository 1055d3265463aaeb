"""The reference page of the laws that policies may choose, generated from them: ``python -m alerts.laws.document``."""

from __future__ import annotations

import sys
from dataclasses import MISSING, Field
from typing import Any

from alerts.laws import registry

_INTRO = """# Laws that policies choose

This page is generated (`make docs`) from `alerts/laws/registry.py` and the laws themselves. How policies act, and what
keeps them safe: [backpressure.md](backpressure.md); every key of a policy: [settings.md](settings.md).

A policy names one in `law`, and changes its options in `options`; numbers in seconds, or messages, as the tables say. A
law or an option that there is none of is refused, and the nearest name told (`sojourn rules check`).

```toml
[[alert.control.policies]]
name = "slow-receiver"
law = "output_rate"
floor = 0.1
ceiling = 500
options = { every_seconds = 30, tolerable = 0.05 }
```

Whichever it is, a limit stays between `floor` and `ceiling`, changes by `max_step` of itself at most and no sooner than
`cooldown_seconds` after the last change, has a lease, is a dry run until `mode` says otherwise, and is limited to whom
an alert names. Where the data are old or missing, or events show too little of the queue, nothing changes, and the
lease runs out.

## By how long quiet tenants wait

The first limit needs harm: quiet tenants that wait longer than the target, seen twice. `aimd` is the default.

| law | with a limit it |
|---|---|
"""
_OWN = """
## By a signal of their own

What they are judged by is not who waits, but what is said there; the first limit needs two looks at which the law asks
for less than is sent. None of them is a default, and where the lab found one to be worse than doing nothing, that is
told with it, here and by `sojourn rules check` where such a policy may act. If the measurement is missing – a broker
of whose publishes nobody tells, say – they change nothing, and the journal says `no_signal`.
"""


def markdown() -> str:
    """The whole page."""
    shares = "\n".join(f"| `{name}` | {says} |" for name, says in registry.SHARES.items())
    parts = [_INTRO + shares, _OWN, *(_section(name) for name in registry.LAWS)]
    return "\n".join(parts).rstrip() + "\n"


def _section(name: str) -> str:
    law = registry.law_class(name)
    text = " ".join((law.__doc__ or "").partition("\n\n")[2].replace("``", "`").split())
    lines = [f"### `{name}`", "", f"{_capital(law.says)}. Source: {law.source}. Fed by {law.fed_by}.", "", text, ""]
    if law.worse:
        told = "; ".join(f"`{name}`: {', '.join(what)}" for name, what in law.worse.items())
        lines += [f"In the lab it is worse than doing nothing in {told}.", ""]
    lines += ["| option | default | |", "|---|---|---|", *map(_row, registry.options_of(name)), ""]
    return "\n".join(lines)


def _row(one: Field[Any]) -> str:
    default = "**required**" if one.default is MISSING else f"`{one.default:g}`"
    unit = f" ({one.metadata['unit']})" if one.metadata["unit"] else ""
    return f"| `{one.name}` | {default} | {one.metadata['says']}{unit} |"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    sys.stdout.write(markdown())
