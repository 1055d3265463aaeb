"""``sojourn``: the entry point, and the one place where an error becomes an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.exceptions import TyperException

from lake.errors import SojournError, UserError
from lake.visible import visible
from sojourn.cli import (
    actions,
    alerts,
    connect,
    demo,
    doctor,
    init,
    lab,
    limits,
    maintain,
    mcp,
    parts,
    redrive,
    replay,
    rules,
    sql,
    top,
    up,
    why,
)

#: Options that typer adds, each for the shell that it is run in.
_COMPLETION = ("--install-completion", "--show-completion")

app = typer.Typer(
    name="sojourn",
    help="What messages live through in asynchronous queues: measured per tenant, alerted on, and acted on.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sojourn {version('sojourn')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    pass


app.command("init")(init.init)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("collect")(parts.collect)
app.command("analyze")(parts.analyze)
app.command("alert")(parts.alert)
app.command("dashboard")(parts.dashboard)
app.command("replay")(replay.replay)
app.command("sql")(sql.sql)
app.command("top")(top.top)
app.command("why")(why.why)
app.command("mcp")(mcp.mcp)
app.command("connect")(connect.connect)
app.command("maintain")(maintain.maintain)
app.add_typer(rules.app, name="rules")
app.add_typer(alerts.app, name="alerts")
app.command("limits")(limits.limits)
app.add_typer(actions.app, name="actions")
app.add_typer(redrive.app, name="redrive")
app.command("lab")(lab.lab)
app.command("doctor")(doctor.doctor)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a failure of ours, 2 the user's to fix, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Set ``SOJOURN_DEBUG`` to see tracebacks."""
    command = typer.main.get_command(app)
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _check_completion(words)
        code = command.main(words, "sojourn", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except (TyperException, SojournError, OSError, ImportError) as error:
        if os.environ.get("SOJOURN_DEBUG"):
            raise
        return _complain(error)
    except Exception as error:
        if os.environ.get("SOJOURN_DEBUG"):
            raise
        return _complain(SojournError(f"{type(error).__name__}: {error} (SOJOURN_DEBUG=1 shows where)"))


def _check_completion(words: Sequence[str]) -> None:
    """UserError where a word follows an option for shell completion: typer would leave it unread, and write for the
    shell that it runs in."""
    if len(words) > 1 and words[0] in _COMPLETION:
        raise UserError(
            f"{words[0]} takes no value: {words[1]!r}", "leave it out, and run it in the shell that it is for"
        )


def _complain(error: Exception) -> int:
    """Say what is wrong in one line on stderr; the exit code that goes with it."""
    if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    text = error.format_message() if isinstance(error, TyperException) else str(error)
    # Where no command was named, typer's "error" is the help.
    said = text if text.startswith("Usage: ") else f"sojourn: {visible(' '.join(text.split()))}"
    print(said, file=sys.stderr)
    return getattr(error, "exit_code", 1)


if __name__ == "__main__":
    main()
