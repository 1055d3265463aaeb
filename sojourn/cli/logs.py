"""How a part logs when it runs by itself: one line for each entry, whatever the names in it hold."""

from __future__ import annotations

import logging
import os

from lake.visible import visible, visible_lines


class OneLine(logging.Formatter):
    """An entry is one line, which no name can forge or colour; tracebacks follow in lines of their own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The entry without its traceback."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        """The traceback; what the exception says may come from outside."""
        return visible_lines(super().formatException(ei))  # type: ignore[arg-type]


def start() -> None:
    """Log to stderr, at ``SOJOURN_LOG``'s level."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=os.environ.get("SOJOURN_LOG", "INFO").upper(), handlers=[handler])
