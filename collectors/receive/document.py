"""Rewrites the tables of docs/otlp.md from what is declared: ``python -m collectors.receive.document``."""

from __future__ import annotations

from pathlib import Path

from collectors.receive.attributes import markdown

BEGIN, END = "<!-- begin: attributes -->\n", "<!-- end: attributes -->"
PAGE = Path(__file__).parents[2] / "docs" / "otlp.md"


def renewed(page: str) -> str:
    """``page`` with the tables as they are declared now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown()}\n{END}{after}"


def main() -> None:
    """Rewrite the page in place."""
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
