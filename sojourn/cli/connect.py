"""``sojourn connect``: the views for notebooks, by Spark Connect."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, cast

import typer

from lake.errors import UserError
from sojourn.cli import logs
from sojourn.cli.options import ConfigOption, LakeOption, existing, part, stopping

#: The environment's name for the token; a file is named on the command line. The token itself never is.
TOKEN = "SOJOURN_CONNECT_TOKEN"


def connect(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The port to listen at.")] = 15002,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen at; beyond the loopback only with a token.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help=f"A file that holds the token; or set {TOKEN}.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="A certificate in PEM, with its chain: speak TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="The certificate's private key, in PEM.")] = None,
    refresh: Annotated[float, typer.Option("--refresh", min=0.1, help="Seconds between looks for new rows.")] = 5.0,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Serve the views to notebooks by Spark Connect."""
    logs.start()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    _, root = existing(config, lake)
    token = _token(token_file)
    serving = part("spark_analytics.connect")
    serving.check_address(host, port, token)
    if (certificate is None) is not (key is None):
        raise UserError("TLS needs a certificate and its key", "give both --certificate and --key, or neither")
    tls = serving.Tls(certificate, key) if certificate else None
    with stopping() as stop:
        endpoint = serving.Endpoint(part("lake.store").Lake(root), host=host, port=port, token=token, tls=tls)
        try:
            asked = [*(["use_ssl=true"] if tls else []), *(["token=…"] if token else [])]
            address = "/;".join([f"sc://{_shown(host)}:{port}", *([";".join(asked)] if asked else [])])
            typer.echo(f"Spark Connect at {address}, Ctrl-C to stop")
            endpoint.serve(stop, refresh)
        finally:
            endpoint.close()


def _token(file: Path | None) -> str | None:
    if file is None and not os.environ.get(TOKEN):
        return None
    secret = part("lake.secret").Secret
    reference = secret(env=TOKEN) if file is None else secret(file=file)
    return cast(str, reference.read("the token of Spark Connect"))


def _shown(host: str) -> str:
    """The name by which pyspark's client takes a token without TLS: it knows the loopback by this name alone."""
    return "localhost" if host in ("127.0.0.1", "::1") else host
