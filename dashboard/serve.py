"""The dashboard's process: Streamlit's application behind access control of every listener.

Started by :func:`dashboard.run.command` in :func:`dashboard.run.environment`.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from starlette.types import ASGIApp
from streamlit.web import bootstrap
from streamlit.web.server.starlette import App

from dashboard.returning import Returning
from dashboard.rooted import Rooted
from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE, address
from dashboard.settings import DashboardSettings
from dashboard.theme import options as theme_options
from dashboard.trusted_header import TrustedHeader
from lake.web.accept import use_all_files
from lake.web.access import AccessControl
from lake.web.policy import Entrance, Limits, Policy
from lake.web.server import WebServer, listen

_APP = Path(__file__).with_name("entry") / "app.py"
#: What the first page loads, of ours and of others.
_FIRST = ("dashboard.pages.overview", "dashboard.pages.sql", "dashboard.pages.lab", "plotly.io", "plotly.graph_objects")
#: For how long the start waits for the lake.
WARM_SECONDS = 10.0
#: Nobody has anything to send to a dashboard; each browser holds a connection, and some more while a page loads.
_LIMITS = Limits(body_bytes=0, bytes_in_flight=1)


def options(settings: DashboardSettings) -> dict[str, object]:
    """What is asked of Streamlit. It stands here rather than in a file, so that no ``config.toml`` lying about can
    open the server up."""
    return {
        **theme_options(),
        "server.address": settings.host,
        "server.port": settings.port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.enableAgentApi": False,
        "server.allowedHosts": list(settings.hosts),
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "viewer",
        "runner.postScriptGC": False,  # a whole collection after each renewal: more than half of what renewals cost
    }


def policy(settings: DashboardSettings) -> Policy:
    """Under which names, and from which pages, the dashboard may be asked; by whom is a proxy's business."""
    origins = [f"{scheme}://{name}" for name in settings.allowed_hosts for scheme in ("http", "https")]
    return Policy(
        settings.host,
        names=settings.allowed_hosts,
        origins=origins,
        entrances={"/": Entrance(open=True)},
        limits=_LIMITS,
        pages=True,
    )


def application(settings: DashboardSettings) -> ASGIApp:
    """What is served behind access control. Raises UserError where a secret is not where the settings say."""
    app: ASGIApp = Rooted(App(_APP, secrets=_sign_in(settings)))
    app = app if settings.oidc is None else Returning(app)
    return app if settings.proxy is None else TrustedHeader(app, settings.proxy.header, settings.proxy.addresses)


def _sign_in(settings: DashboardSettings) -> dict[str, Any] | None:
    """What Streamlit's sign-in is told, in the place of its own file of secrets."""
    if (oidc := settings.oidc) is None:
        return None
    cookie = oidc.cookie_secret
    return {
        "auth": {
            "redirect_uri": oidc.redirect_uri,
            "cookie_secret": secrets.token_hex(32) if cookie is None else cookie.read("[dashboard.oidc] cookie_secret"),
            "client_id": oidc.client_id,
            "client_secret": oidc.client_secret.read("[dashboard.oidc] client_secret"),
            "server_metadata_url": oidc.metadata_url,
        }
    }


def main() -> None:
    """Serve until SIGTERM or Ctrl-C, whatever it is at, and say where as soon as it listens there."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn ends well, and then hands the signal on to this
    with suppress(KeyboardInterrupt):
        _serve(DashboardSettings.model_validate_json(os.environ[SETTINGS_VARIABLE]))


def _serve(settings: DashboardSettings) -> None:
    bootstrap.load_config_options(options(settings))
    # Pages are imported before there is a server, which Streamlit warns of for each cache that they declare.
    logging.getLogger("streamlit.runtime.caching.cache_data_api").setLevel(logging.ERROR)
    use_all_files()
    front = AccessControl(application(settings), policy(settings))
    lake = Path(os.environ.get(LAKE_VARIABLE) or "lake-data").expanduser().absolute()
    warming = Thread(target=import_module("dashboard.repository").warm, args=(lake,), name="warm", daemon=True)
    warming.start()
    # What the first page needs is there before anybody is told where to ask for it: modules, and what the lake says of
    # now. A large lake may take longer than anybody waits for an address.
    for module in _FIRST:
        import_module(module)
    warming.join(WARM_SECONDS)
    gc.collect()
    gc.freeze()  # modules stay: no collection has to look at them again
    listener = listen(settings.host, settings.port, "choose another: --port, or [dashboard] port")
    server = WebServer(front, listener, front.limits, websockets=True)
    print(f"Dashboard at {address(settings)}, Ctrl-C to stop", flush=True)
    server.run()


if __name__ == "__main__":
    main()
