"""``sojourn init``: a first settings file for what runs here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from lake.errors import UserError
from lake.visible import visible


def init(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write; one that is there is kept.")
    ] = Path("sojourn.toml"),
    at: Annotated[
        list[str] | None, typer.Option("--at", help="host:port to look at, too; may be given several times.")
    ] = None,
) -> None:
    """Find what runs on this machine (ports, environment) and write an annotated sojourn.toml; never over another."""
    if output.exists():
        raise UserError(f"{output} is there already", "name another with -o, or move it away: it is not overwritten")
    from sojourn.first_settings import written
    from sojourn.found import look

    found = look(os.environ, at or ())
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(written(found, output.name))
    except FileExistsError:
        raise UserError(f"{output} is there already", "name another with -o: it is not overwritten") from None
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}", "name another with -o") from None
    for one in found:
        layouts = f", with queues of {', '.join(one.layouts)}" if one.layouts else ""
        typer.echo(visible(f"found {one.kind} at {one.host}:{one.port}, by {one.by}{layouts}"))
    if not found:
        typer.echo("found no broker: the file shows how one is written")
    typer.echo(f"wrote {output}; check it with: sojourn doctor -c {output}")
