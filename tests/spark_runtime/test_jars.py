"""The jars: declared, fetched once, checked, kept."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lake.errors import UserError
from spark_analytics.runtime import repository
from spark_analytics.runtime.coordinates import read_coordinates
from spark_analytics.runtime.jars import ensure_jars

CONTENT = os.urandom(700_000)
PATH = "org/example/tool_2.13/1.2.3/tool_2.13-1.2.3.jar"


def declare(folder: Path, *, content: bytes = CONTENT) -> Path:
    file = folder / "jars.toml"
    digest = hashlib.sha256(content).hexdigest()
    file.write_text(
        f'spark = "4.2.0"\n[[jar]]\ncoordinate = "org.example:tool_2.13:1.2.3"\nsha256 = "{digest}"\n',
    )
    return file


def environment(folder: Path, maven: str, **declared: bytes) -> dict[str, str]:
    return {
        "SOJOURN_CACHE": str(folder / "cache"),
        "SOJOURN_JARS": str(declare(folder, **declared)),
        "SOJOURN_MAVEN_REPOSITORY": maven,
    }


@pytest.fixture
def folder_repository(tmp_path: Path) -> Path:
    jar = tmp_path / "maven" / PATH
    jar.parent.mkdir(parents=True)
    jar.write_bytes(CONTENT)
    return tmp_path / "maven"


class Maven(ThreadingHTTPServer):
    """A repository on the loopback that answers what the test put into ``script``, then the jar."""

    def __init__(self) -> None:
        self.script: list[int | str] = []
        self.asked: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), MavenHandler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}/maven2"


class MavenHandler(BaseHTTPRequestHandler):
    server: Maven

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        step = self.server.script.pop(0) if self.server.script else "whole"
        if isinstance(step, int):
            self.send_error(step)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if step == "half" else CONTENT)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch) -> Iterator[Maven]:
    monkeypatch.setattr(repository, "PAUSES_SECONDS", (0.01, 0.01, 0.01))
    server = Maven()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache" / "jars").iterdir())


def test_a_jar_is_fetched_once_and_reused_off_line(tmp_path: Path, folder_repository: Path) -> None:
    environ = environment(tmp_path, str(folder_repository))
    (jar,) = ensure_jars(environ)
    assert jar.read_bytes() == CONTENT
    environ["SOJOURN_MAVEN_REPOSITORY"] = "http://127.0.0.1:1/nobody/"
    assert ensure_jars(environ) == [jar]


def test_a_damaged_jar_in_the_cache_is_fetched_again(tmp_path: Path, folder_repository: Path) -> None:
    environ = environment(tmp_path, str(folder_repository))
    (jar,) = ensure_jars(environ)
    jar.write_bytes(CONTENT[:-1])
    ensure_jars(environ)
    assert jar.read_bytes() == CONTENT


def test_other_bytes_than_declared_are_refused_and_not_kept(tmp_path: Path, folder_repository: Path) -> None:
    environ = environment(tmp_path, str(folder_repository), content=b"what we wanted")
    with pytest.raises(UserError, match="SHA-256 differs"):
        ensure_jars(environ)
    assert kept(tmp_path) == []


def test_passing_failures_and_broken_transfers_are_tried_again(tmp_path: Path, maven: Maven) -> None:
    maven.script = [503, "half", 429]
    (jar,) = ensure_jars(environment(tmp_path, f"http://{maven.address}"))
    assert jar.read_bytes() == CONTENT
    assert [path for path, _ in maven.asked] == [f"/maven2/{PATH}"] * 4
    assert kept(tmp_path) == [jar.name]


def test_a_jar_that_is_not_there_is_asked_for_once_and_explained(tmp_path: Path, maven: Maven) -> None:
    maven.script = [404]
    with pytest.raises(UserError, match="answers 404") as caught:
        ensure_jars(environment(tmp_path, f"http://{maven.address}"))
    assert "SOJOURN_MAVEN_REPOSITORY" in caught.value.fix
    assert len(maven.asked) == 1
    assert kept(tmp_path) == []


def test_a_repository_that_does_not_answer_is_a_users_error(tmp_path: Path, maven: Maven) -> None:
    maven.script = [500] * 9
    with pytest.raises(UserError, match="answers 500"):
        ensure_jars(environment(tmp_path, f"http://{maven.address}"))
    assert len(maven.asked) == 4


def test_a_password_is_sent_but_never_shown(tmp_path: Path, maven: Maven) -> None:
    maven.script = [403]
    with pytest.raises(UserError) as caught:
        ensure_jars(environment(tmp_path, f"http://user:s%40cret@{maven.address}"))
    assert "cret" not in str(caught.value)
    assert "cret" not in repr(repository.parse_repository(f"http://user:s%40cret@{maven.address}"))
    assert maven.asked == [(f"/maven2/{PATH}", "Basic dXNlcjpzQGNyZXQ=")]


def test_a_folder_that_is_no_repository_is_a_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a folder nor"):
        ensure_jars(environment(tmp_path, str(tmp_path / "nowhere")))


def test_progress_goes_to_stderr_in_one_line_a_jar(
    tmp_path: Path, folder_repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ensure_jars(environment(tmp_path, str(folder_repository)))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Spark's jars, 1 of 1: tool_2.13-1.2.3.jar, 0.7 MiB fetched\n"


def test_an_unwritable_cache_is_a_users_error(tmp_path: Path, folder_repository: Path) -> None:
    environ = environment(tmp_path, str(folder_repository))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cache"):
        ensure_jars(environ)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "spark = "),
        ('spark = "4.2.0"', r"no \[\[jar\]\]"),
        ('spark = "4.2.0"\n[[jar]]\ncoordinate = "a:b:1"', "exactly the keys"),
        (f'spark = "4.2.0"\n[[jar]]\ncoordinate = "a:../../b:1"\nsha256 = "{"0" * 64}"', "group:artifact:version"),
        ('spark = "4.2.0"\n[[jar]]\ncoordinate = "a:b:1"\nsha256 = "abc"', "64 lower-case"),
        ("spark = [", "cannot be used"),
    ],
)
def test_a_list_that_cannot_be_understood_is_a_users_error(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "jars.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=why):
        read_coordinates(file)


def test_the_default_repository_is_the_one_that_sparks_own_resolver_names() -> None:
    address = repository.default_address()
    assert address.startswith("https://")
    assert address.endswith("/maven2/")
