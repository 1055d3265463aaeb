"""``python -m tests.support.s3_server PORT [NOTES]``: moto's server of the S3 protocol, which keeps objects in memory.

moto looks whether an object is there and then puts it, two steps that its threads may take at once; S3 does not. Here
puts come one after the other. In the file NOTES each request has a line: when it was over, the seconds that it took,
method, status, client and path.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple

_ONE_PUT = threading.Lock()


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Say nothing of requests."""


def main() -> None:
    """Serve until the process is ended."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    answer = DomainDispatcherApplication(create_backend_app)
    notes = open(sys.argv[2], "a", buffering=1, encoding="utf-8") if len(sys.argv) > 2 else None  # noqa: SIM115

    def application(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if notes is None:
            return served(environ, start)
        began, told = time.monotonic(), [""]

        def noted(status: str, *rest: Any) -> Any:
            told[0] = status[:3]
            return start(status, *rest)

        body = served(environ, noted)
        client = environ.get("HTTP_USER_AGENT", "-").split("/")[0]
        line = (time.time(), time.monotonic() - began, environ["REQUEST_METHOD"], told[0], client, environ["RAW_URI"])
        notes.write("\t".join(map(str, line)) + "\n")
        return body

    def served(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            return list(answer(environ, start))
        with _ONE_PUT:
            return list(answer(environ, start))

    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=_Quiet)


if __name__ == "__main__":
    main()
