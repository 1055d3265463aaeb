"""The error base that every part of Sojourn raises from."""

from __future__ import annotations


class SojournError(Exception):
    """Something Sojourn could not do; the command line exits with code 1."""

    exit_code = 1


class UserError(SojournError):
    """A mistake that the user can fix; one clear line, exit code 2, no traceback.

    ``what`` says what is wrong, ``fix`` how to put it right.
    """

    exit_code = 2

    def __init__(self, what: str, fix: str = "") -> None:
        self.what = what.strip()
        self.fix = fix.strip()
        super().__init__(f"{self.what} – {self.fix}" if self.fix else self.what)


def first_line(error: BaseException) -> str:
    """The first line of what ``error`` says; its class where it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
