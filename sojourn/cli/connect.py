"""``sojourn connect``: the views for notebooks, by Spark Connect."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, cast

import typer

from lake.errors import UserError
from lake.stopping import stopping
from sojourn.cli import logs
from sojourn.cli.options import ConfigOption, LakeOption, existing, part

log = logging.getLogger(__name__)

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
    unconfined: Annotated[
        bool, typer.Option("--unconfined", help="Let Spark's Java process see and write what this user may.")
    ] = False,
    refresh: Annotated[float, typer.Option("--refresh", min=0.1, help="Seconds between looks for new rows.")] = 5.0,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", min=0.1, help="Seconds that a query may run [default: ten minutes]."),
    ] = None,
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
    confined = _confined(unconfined)
    part("lake.web.accept").use_all_files()
    with stopping() as stop:
        lake_there = part("lake.store").Lake(root)
        endpoint = serving.Endpoint(
            lake_there, host=host, port=port, token=token, tls=tls, confined=confined, max_seconds=max_seconds
        )
        try:
            asked = [*(["use_ssl=true"] if tls else []), *(["token=…"] if token else [])]
            address = "/;".join([f"sc://{_shown(host)}:{port}", *([";".join(asked)] if asked else [])])
            typer.echo(f"Spark Connect at {address}, Ctrl-C to stop")
            endpoint.serve(stop, refresh)
        finally:
            endpoint.close()


def _confined(unconfined: bool) -> bool:
    """Whether the kernel confines the Java process; UserError for root where it cannot and nobody asked for that."""
    confinement = part("spark_analytics.runtime.confinement")
    version = part("spark_analytics.runtime.confined").landlock_version()
    confined = bool(confinement.must_be_confined(version, root=os.geteuid() == 0, unconfined=unconfined))
    if not confined:
        log.warning("Spark's Java process is not confined: it may read and write whatever this user may")
    return confined


def _token(file: Path | None) -> str | None:
    if file is None and not os.environ.get(TOKEN):
        return None
    secret = part("lake.secret").Secret
    reference = secret(env=TOKEN) if file is None else secret(file=file)
    return cast(str, reference.read("the token of Spark Connect"))


def _shown(host: str) -> str:
    """The name by which pyspark's client takes a token without TLS: it knows the loopback by this name alone."""
    return "localhost" if host in ("127.0.0.1", "::1") else host
