"""``sojourn mcp``: the lake's evidence for programs that speak the Model Context Protocol."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from sojourn.cli.options import ConfigOption, LakeOption, existing, part


def mcp(config: ConfigOption = None, lake: LakeOption = None) -> None:
    """Answer the Model Context Protocol on standard input and output: read-only, proposals as dry runs alone."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # while it waits for a line, nothing else ends it
    with suppress(KeyboardInterrupt):
        _serve(config, lake)


def _serve(config: Path | None, lake: Path | None) -> None:
    _, root = existing(config, lake)
    tools, protocol = part("sojourn.mcp.tools"), part("sojourn.mcp.protocol")
    with part("lake.worker.worker").Worker(root, spare=False) as worker:
        evidence = tools.Evidence(root, worker)
        server = protocol.Server("sojourn", version("sojourn"), tools.INSTRUCTIONS, evidence.tools())
        server.serve(sys.stdin, sys.stdout)
