"""A real RabbitMQ node on the loopback, with its management API and Prometheus metrics; ended by its process ids."""

from __future__ import annotations

import hmac
import json
import os
import shutil
import subprocess
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika

from tests.support.certificates import make_certificates
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.servers import require_server
from tests.support.waiting import wait_until

_BIN = Path("/usr/lib/rabbitmq/bin")
#: How often queues tell their numbers, and how often the management plugin takes them up.
_QUICK = """collect_statistics_interval = 300
management.sample_retention_policies.global.minute = 1
management.sample_retention_policies.basic.minute = 1
management.sample_retention_policies.detailed.minute = 1
"""


class RabbitServer(ServerProcess):
    """One ``rabbitmq-server``; its ports and durable queues outlast ``kill`` and ``start``.

    Statistics are renewed each second or so rather than each five, so that tests need not wait for them; ``slow``
    leaves them at RabbitMQ's own pace. With ``token_key`` it takes OAuth 2 tokens that are signed with it (HS256)
    for the audience ``rabbitmq``, too. With ``shovels`` it carries messages between
    queues itself. With ``tls`` it listens for TLS as well, with ``certificates`` of its own.
    """

    user, password = "guest", "guest"

    def __init__(
        self,
        folder: Path,
        *,
        slow: bool = False,
        tls: bool = False,
        token_key: str | None = None,
        shovels: bool = False,
    ) -> None:
        super().__init__(folder)
        self._token_key = token_key
        self._slow, self._shovels = slow, shovels
        self.certificates = make_certificates(folder / "certificates") if tls else None
        self.tls_port, self.tls_api_port = free_ports(2)
        self.port, self.api_port, self.metrics_port, self._dist_port, self._epmd_port = free_ports(5)
        self.node = f"sojourn-{self.port}@localhost"

    @property
    def url(self) -> str:
        """The management API, without a closing slash."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def metrics_url(self) -> str:
        """The Prometheus endpoint, without a closing slash."""
        return f"http://127.0.0.1:{self.metrics_port}"

    @property
    def amqp_url(self) -> str:
        """Where clients connect."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self._folder / "out").read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether it was started and not ended."""
        return self._process is not None

    def start(self) -> None:
        """Start the node and wait until its API and its metrics answer (about 5 s)."""
        assert self._process is None, "it runs already"
        if not (_BIN / "rabbitmq-server").exists() or shutil.which("erl") is None:
            require_server("there is no rabbitmq-server")
        self._folder.mkdir(parents=True, exist_ok=True)
        plugins = "rabbitmq_management,rabbitmq_prometheus"
        plugins += ",rabbitmq_shovel,rabbitmq_shovel_management" if self._shovels else ""
        plugins += ",rabbitmq_auth_backend_oauth2" if self._token_key else ""
        (self._folder / "plugins").write_text(f"[{plugins}].\n")
        (self._folder / "advanced.config").write_text(self._advanced())
        (self._folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.api_port}\n"
            f"prometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {self.metrics_port}\n"
            f"{'' if self._slow else _QUICK}{self._tls()}"
        )
        with (self._folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [_BIN / "rabbitmq-server"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment(),
                start_new_session=True,
            )
        wait_until(self._ready, "rabbitmq-server to be ready", seconds=60)

    def _advanced(self) -> str:
        if self._token_key is None:
            return "[].\n"
        said = {"kty": "MAC", "alg": "HS256", "use": "sig", "value": self._token_key}
        key = ", ".join(f'<<"{name}">> => <<"{value}">>' for name, value in said.items())
        keys = f'{{signing_keys, #{{<<"test">> => {{map, #{{{key}}}}}}}}}, {{default_key, <<"test">>}}'
        oauth = f'{{resource_server_id, <<"rabbitmq">>}}, {{key_config, [{keys}]}}'
        backends = "{auth_backends, [rabbit_auth_backend_oauth2, rabbit_auth_backend_internal]}"
        return f"[{{rabbit, [{backends}]}}, {{rabbitmq_auth_backend_oauth2, [{oauth}]}}].\n"

    def _tls(self) -> str:
        if self.certificates is None:
            return ""
        lines = [f"listeners.ssl.default = 127.0.0.1:{self.tls_port}"]
        lines += ["management.ssl.ip = 127.0.0.1", f"management.ssl.port = {self.tls_api_port}"]
        for options in ("ssl_options", "management.ssl"):
            lines.append(f"{options}.cacertfile = {self.certificates.ca}")
            lines.append(f"{options}.certfile = {self.certificates.certificate}")
            lines.append(f"{options}.keyfile = {self.certificates.key}")
        return "\n".join(lines) + "\n"

    def _environment(self) -> dict[str, str]:
        """The node, its store and the port mapper that only it uses are all this test's own."""
        folder = self._folder
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"
            + ("" if self._slow else " -rabbit quorum_tick_interval 300 -rabbit stream_tick_interval 300"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
        }

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"rabbitmq-server ended:\n{self.log[-3000:]}"
        try:
            self.api("GET", "overview")
            urllib.request.urlopen(f"{self.metrics_url}/metrics", timeout=2).close()
            return True
        except OSError:
            return False

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The management API's answer as its administrator sees it; OSError where it refuses."""
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, self.url, self.user, self.password)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        with opener.open(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def ctl(self, *arguments: str) -> str:
        """What ``rabbitmqctl`` says to ``arguments`` (about a second)."""
        command = [_BIN / "rabbitmqctl", "--node", self.node, "--quiet", *arguments]
        done = subprocess.run(command, env=self._environment(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def add_user(self, name: str, password: str, tags: str, **vhosts: str) -> None:
        """A user who may read what matches the pattern in each virtual host (``default`` stands for "/")."""
        self.api("PUT", f"users/{name}", {"password": password, "tags": tags})
        for vhost, pattern in vhosts.items():
            where = quote("/" if vhost == "default" else vhost, safe="")
            rights = {"configure": pattern, "write": pattern, "read": pattern}
            self.api("PUT", f"permissions/{where}/{name}", rights)

    def connect(self, vhost: str = "/", **options: Any) -> Any:
        """An application's connection."""
        parameters = pika.ConnectionParameters(
            "127.0.0.1",
            self.port,
            vhost,
            pika.PlainCredentials(self.user, self.password),
            socket_timeout=20,
            blocked_connection_timeout=20,
            **options,
        )
        return pika.BlockingConnection(parameters)

    def _end(self, *, crash: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        ours = _processes_of(self._folder)
        beam = [pid for pid, command in ours.items() if "beam" in command]
        for pid in beam:
            _signal(pid, 9 if crash else 15)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # What the node started outlives it: its port mapper, and helpers that notice their end only later.
        for pid in _processes_of(self._folder):
            _signal(pid, 9)


def _base64(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def signed_token(key: str, claims: Mapping[str, Any]) -> str:
    """A JSON web token of ``claims`` (RFC 7519), signed with ``key`` by HS256; servers call that key ``test``."""
    head = json.dumps({"alg": "HS256", "typ": "JWT", "kid": "test"})
    said = f"{_base64(head)}.{_base64(json.dumps(dict(claims)))}"
    signature = hmac.digest(key.encode(), said.encode(), "sha256")
    return f"{said}.{urlsafe_b64encode(signature).decode().rstrip('=')}"


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _processes_of(folder: Path) -> dict[int, str]:
    """Process id → program of every process whose HOME is ``folder``: the node and what it started."""
    mark = f"HOME={folder}\0".encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (entry / "environ").read_bytes() + b"\0":
                found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found
