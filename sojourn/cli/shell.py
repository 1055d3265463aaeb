"""The prompt of ``sojourn sql``: statements over several lines, history, completion, and what there is to ask."""

from __future__ import annotations

import re
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer  # type: ignore[import-untyped]

from lake.errors import SojournError
from lake.visible import visible
from sojourn.cli.about import columns_of, described, listed
from sojourn.cli.rows import FORMATS
from sojourn.cli.statements import Answer, Answering, split, write

HELP = """\
A statement ends with a semicolon and may have several lines. Beside them:

  \\d             the views and tables
  \\d NAME        a view's columns, with units and what they mean
  \\timing        tell how long statements take: on, off
  \\format NAME   table, csv or json
  \\q             leave, as Ctrl-D does

Ctrl-C ends the statement that runs.
"""
#: The history keeps about this much.
HISTORY_BYTES = 256 * 1024
_KEYWORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "USING", "WITH"),
    *("AND", "OR", "NOT", "NULL", "IS NULL", "DISTINCT", "CASE WHEN", "THEN", "ELSE", "END", "DESC", "OVER"),
    *("PARTITION BY", "count", "sum", "max", "min", "avg", "date_trunc", "histogram_merge", "histogram_quantile"),
)
_COMMANDS = ("\\d", "\\timing", "\\format", "\\q", "\\?")
_WORD = re.compile(r"\\?\w*$")
_PATIENCE_SECONDS = 0.2


class Shell:
    """Asks ``answering`` what is typed until Ctrl-D."""

    def __init__(self, answering: Answering, format: str, history: Path) -> None:
        self._answering = answering
        self._format = format
        self._timing = False
        self._worker = ThreadPoolExecutor(1, "statement")
        self._prompt: PromptSession[str] = PromptSession(
            message="sojourn> ",
            prompt_continuation=lambda width, line, wrapped: "   ...> ",
            history=_kept(history),
            completer=_Names(),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=Condition(lambda: not _complete(get_app().current_buffer.text)),
        )

    def run(self) -> None:
        """Until Ctrl-D or ``\\q``. A statement that fails is told in one line, and the prompt comes back."""
        print("Spark SQL over the lake. \\? for help, \\d for what there is, Ctrl-D to leave.")
        with _typed_ahead(sys.stdin.fileno()):
            self._until_left()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _until_left(self) -> None:
        while True:
            try:
                text = self._typed()
                if text.rstrip(";") in ("\\q", "\\quit", "\\exit"):
                    return
                if text.startswith("\\"):
                    print(self._command(*text.rstrip(";").split()))
                elif text:
                    self._ask(text)
            except EOFError:
                return
            except KeyboardInterrupt:
                print("cancelled")

    def _typed(self) -> str:
        """What is typed until it is complete; nothing if Ctrl-C drops it.

        KeyboardInterrupt: Ctrl-C came when the prompt had just given the keyboard back; it is for the statement.
        """
        late = threading.Event()
        before = signal.signal(signal.SIGINT, lambda *_: late.set())
        try:
            text = self._prompt.prompt(handle_sigint=False).strip()
        except KeyboardInterrupt:
            text = ""
        finally:
            signal.signal(signal.SIGINT, before)
        if late.is_set():
            raise KeyboardInterrupt
        return text

    def _command(self, name: str, *words: str) -> str:
        if name == "\\d":
            return described(words[0]) if words else listed()
        if name == "\\timing":
            self._timing = words[0] == "on" if words else not self._timing
            return f"timing is {'on' if self._timing else 'off'}"
        if name == "\\format":
            if words and words[0] in FORMATS:
                self._format = words[0]
                return f"format is {self._format}"
            return f"\\format {' | '.join(FORMATS)}"
        return HELP if name in ("\\?", "\\h", "\\help") else f"there is no {name}: \\? tells what there is"

    def _ask(self, text: str) -> None:
        for statement in filter(None, split(text)):
            started = time.monotonic()
            try:
                answer = self._answered(statement)
                write(answer, self._format, sys.stdout)
            except SojournError as error:
                print(f"error: {visible(' '.join(str(error).split()))}")
                return
            if self._timing:
                print(f"{time.monotonic() - started:.2f} s")

    def _answered(self, statement: str) -> Answer:
        """The answer, from a thread of its own: Ctrl-C reaches us meanwhile, and what runs is told to end."""
        answer: Future[Answer] = self._worker.submit(self._answering.answer, statement)
        try:
            return _wait(answer)
        except KeyboardInterrupt:
            if not answer.cancel():
                threading.Thread(target=_insist, args=(self._answering, answer), daemon=True).start()
                _wait_over(answer)
            raise


@contextmanager
def _typed_ahead(terminal: int) -> Iterator[None]:
    """Between two prompts, keep each key for the next one: neither shown twice nor, like Ctrl-D, eaten by the terminal.

    Ctrl-C is a signal still.
    """
    before = termios.tcgetattr(terminal)
    kept = termios.tcgetattr(terminal)
    kept[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(terminal, termios.TCSADRAIN, kept)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(answer: Future[Answer]) -> Answer:
    while True:
        try:
            return answer.result(timeout=_PATIENCE_SECONDS)  # without a limit, no signal would be seen
        except TimeoutError:
            if answer.done():
                raise


def _wait_over(answer: Future[Answer]) -> None:
    """Until the cancelled statement is over; a second Ctrl-C leaves it to itself."""
    while not answer.done():
        time.sleep(_PATIENCE_SECONDS)


def _insist(answering: Answering, answer: Future[Answer]) -> None:
    """A statement may be between two jobs, or still be planned, when it is told to end: tell it until it is over."""
    while not answer.done():
        answering.cancel()
        time.sleep(_PATIENCE_SECONDS)


def _complete(text: str) -> bool:
    return text.strip() == "" or text.lstrip().startswith("\\") or split(text)[-1] == ""


class _Names(Completer):
    """Views behind FROM and JOIN; otherwise the columns of the views that the statement names, then all else."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        found = _WORD.search(before)
        word = found.group() if found else ""
        for name in self._names(document.text, before[: len(before) - len(word)], word):
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word))

    def _names(self, text: str, before: str, word: str) -> Iterable[str]:
        everything = columns_of()
        if word.startswith("\\"):
            return _COMMANDS
        if re.search(r"(\b(from|join)|\\d)\s+$", before, re.IGNORECASE):
            return everything
        named = [name for name in everything if re.search(rf"\b{name}\b", text)]
        columns = {column: None for name in named or everything for column in everything[name]}
        return [*columns, *everything, *_KEYWORDS]


def _kept(path: Path) -> FileHistory:
    """The history at ``path``, which nobody else may read, cut to its newest part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.chmod(0o600)
    content = path.read_bytes()
    if len(content) > 2 * HISTORY_BYTES:
        newest = content[-HISTORY_BYTES:]
        path.write_bytes(newest[newest.find(b"\n# ") + 1 :])
    return FileHistory(str(path))
