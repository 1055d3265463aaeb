"""Templates in annotations: ``{{ labels.tenant }} waits {{ value | humanize_duration }}``, in jinja2's sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from jinja2 import Template, TemplateSyntaxError

from alerts.rules.sandbox import LONGEST_TEMPLATE, LONGEST_TEXT, Sandbox, rendered
from lake.errors import UserError, first_line


def humanize(value: float | None) -> str:
    """``value`` with a metric prefix: 1234567 → 1.235M."""
    if value is None:
        return "unknown"
    number = float(value)
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000 or prefix == "T":
            return f"{number:.4g}{prefix}"
        number /= 1000
    raise AssertionError("unreachable: the last prefix returns")


def humanize_duration(seconds: float | None) -> str:
    """``seconds`` in words for people: 12.3 → 12.3s, 3725 → 1h 2m 5s."""
    if seconds is None:
        return "an unknown time"
    if abs(seconds) < 60:
        return f"{seconds:.3g}s"
    left, parts = abs(int(seconds)), []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if seconds < 0 else "") + " ".join(parts)


def humanize_percentage(ratio: float | None) -> str:
    """``ratio`` as a percentage: 0.123 → 12.3%."""
    return "unknown" if ratio is None else f"{ratio * 100:.4g}%"


def messages(count: float | None, noun: str = "message") -> str:
    """``count`` with its ``noun``: 1 → 1 message, 1244 → 1,244 messages."""
    if count is None:
        return f"an unknown number of {noun}s"
    whole = round(count)
    return f"{whole:,} {noun}{'' if whole == 1 else 's'}"


#: What a template may name.
NAMES = ("labels", "value", "row")
_SANDBOX = Sandbox(
    NAMES,
    {
        "humanize": humanize,
        "humanize_duration": humanize_duration,
        "humanize_percentage": humanize_percentage,
        "messages": messages,
    },
)
_LONGEST_ERROR = 300


@lru_cache(maxsize=4096)
def compiled(text: str) -> Template:
    """The template in ``text``; UserError, with its line, if it is not one or may do more than fill a text in."""
    if len(text) > LONGEST_TEMPLATE:
        raise UserError(f"a template has at most {LONGEST_TEMPLATE} characters, not {len(text)}", "shorten it")
    try:
        return _SANDBOX.from_string(text)
    except TemplateSyntaxError as error:
        why = f"line {error.lineno}: {error.message}"
    except Exception as error:  # the parser and Python's compiler say in several ways that it is nested too deeply
        why = first_line(error)
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    raise UserError(f"template {shown!r} is not valid: {why}", "write {{ labels.tenant }} or {{ value }}")


def render(text: str, labels: Mapping[str, str], value: float | None, row: Mapping[str, object]) -> str:
    """``text`` filled in; a template that fails says so in its place, as in Prometheus, and never stops an alert."""
    if "{" not in text:
        return text
    try:
        known = {name: label[:LONGEST_TEXT] for name, label in labels.items()}
        return rendered(compiled(text), {"labels": known, "value": value, "row": dict(row)})
    except Exception as error:  # a template may raise whatever it likes
        return f"<error expanding template: {first_line(error)[:_LONGEST_ERROR]}>"


class Annotations(Mapping[str, str]):
    """Annotations rendered when they are first read: most evaluations change values that nobody looks at."""

    __slots__ = ("_labels", "_rendered", "_row", "_templates", "_value")

    def __init__(
        self,
        templates: Mapping[str, str],
        labels: Mapping[str, str],
        value: float | None,
        row: Mapping[str, object],
    ) -> None:
        self._templates = templates
        self._labels = labels
        self._value = value
        self._row = row
        self._rendered: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._rendered is None:
            self._rendered = {
                name: render(text, self._labels, self._value, self._row) for name, text in self._templates.items()
            }
        return self._rendered

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def __repr__(self) -> str:
        return repr(self._all())
