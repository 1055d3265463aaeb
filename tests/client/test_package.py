"""What an application installs: one import name, and nothing of the service."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import sojourn
assert sojourn.__file__.startswith(sys.argv[1]), sojourn.__file__
from sojourn import FairOrder, Limits, Recorder
recorder = Recorder("http://127.0.0.1:1", broker="app")
recorder.enqueued("orders", "1", tenant="acme")
assert Limits("http://127.0.0.1:1").acquire("orders", "acme"), "whoever cannot ask is not limited"
assert recorder.stats().recorded == 1
ours = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
print(*sorted(ours))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([str(ROOT / "scripts" / "client"), sys.executable, str(folder)], check=True, capture_output=True)
    return folder


def test_the_wheel_has_the_client_and_nothing_else(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert wheel.name == f"sojourn_client-{VERSION}-py3-none-any.whl"
    with ZipFile(wheel) as files:
        names = files.namelist()
        [metadata] = [name for name in names if name.endswith("/METADATA")]
        told = files.read(metadata).decode()
    code = {name for name in names if ".dist-info/" not in name}
    client = {str(path.relative_to(ROOT)) for path in (ROOT / "sojourn" / "client").rglob("*.py")}
    assert code == client | {"sojourn/__init__.py", "sojourn/py.typed"}
    assert "Requires-Dist" not in told
    assert "The small library that applications embed" in told


def test_the_archive_of_sources_builds_by_itself(built: Path) -> None:
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "VERSION", "LICENSE", "README.md", "sojourn/client/recorder.py"} <= names


def test_it_works_where_nothing_else_is_installed(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    with ZipFile(wheel) as files:
        files.extractall(tmp_path)
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["sojourn"]), done.stderr
