"""The demo's webhook receiver: a stranger that believes only what is signed.

``python -m sojourn.demo.receiver PORT SECRET_FILE OUTPUT``. Each request becomes one JSON line of OUTPUT, with the
instant it arrived; the signature is checked by the Standard Webhooks project's own library, not by our code.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

LARGEST_BODY = 1 << 20


def serve(port: int, secret: str, output: Path) -> ThreadingHTTPServer:
    """A server on loopback that appends what it receives to ``output``; POST /webhook, GET /healthz."""
    webhook, lock = Webhook(secret), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """Answers 204 to what is signed well, 401 to all else."""

        def do_GET(self) -> None:
            self._answer(200 if self.path == "/healthz" else 404)

        def do_POST(self) -> None:
            received_at = datetime.now(UTC)
            size = int(self.headers.get("Content-Length") or 0)
            if self.path != "/webhook" or size > LARGEST_BODY:
                self._answer(404 if self.path != "/webhook" else 413)
                return
            body = self.rfile.read(size)
            try:
                payload, verified = webhook.verify(body, dict(self.headers.items())), True
            except (WebhookVerificationError, ValueError):
                payload, verified = None, False
            entry = {
                "received_at": received_at.isoformat(),
                "webhook_id": self.headers.get("webhook-id"),
                "verified": verified,
                "payload": payload,
            }
            with lock, output.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(entry) + "\n")
            self._answer(204 if verified else 401)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are in the output; standard error stays for what is wrong."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve until told to stop."""
    port, secret_file, output = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    server = serve(port, secret_file.read_text(encoding="utf-8").strip(), output)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
