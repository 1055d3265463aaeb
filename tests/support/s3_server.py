"""``python -m tests.support.s3_server PORT``: moto's server of the S3 protocol, which keeps objects in memory.

moto looks whether an object is there and then puts it, two steps that its threads may take at once; S3 does not. Here
puts come one after the other.
"""

from __future__ import annotations

import logging
import sys
import threading
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

    def application(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            return list(answer(environ, start))
        with _ONE_PUT:
            return list(answer(environ, start))

    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=_Quiet)


if __name__ == "__main__":
    main()
