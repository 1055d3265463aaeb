"""What the image is made of: its steps are run here by hand, where no daemon builds images."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = [name.rstrip("*") for name in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]]


def sent(path: str) -> bool:
    """Whether ``path`` goes to the builder: the last pattern of the ignore file that it, or a folder above it, fits."""
    parents = ["/".join(path.split("/")[: deep + 1]) for deep in range(path.count("/") + 1)]
    goes = True
    for line in IGNORED.read_text(encoding="utf-8").split():
        pattern = line.removeprefix("!")
        names = [one.rpartition("/")[2] for one in parents] if pattern.startswith("**/") else parents
        if any(fnmatch.fnmatchcase(one, pattern.removeprefix("**/")) for one in names):
            goes = line.startswith("!")
    return goes


def files() -> list[str]:
    """What stands in the repository's packages, and beside them."""
    found = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in found if "__pycache__" not in path.parts]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the image's own step installs Sojourn to, from what the builder is sent and no more."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    beside = [path.name for path in ROOT.iterdir() if path.is_file()]
    for name in filter(sent, [*files(), *beside]):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    [step] = re.findall(r"^RUN /opt/sojourn/bin/pip (install .*--no-deps) \.$", DOCKERFILE.read_text(), re.MULTILINE)
    asked = [sys.executable, "-m", "pip", *step.split(), "--no-index", "--quiet", "--target", str(site), str(source)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return site


def test_the_builder_is_sent_every_package_and_nothing_of_an_installation() -> None:
    assert {name.split("/")[0] for name in files() if sent(name)} == set(PACKAGES)
    for name in ("requirements.lock", "requirements-build.lock", "pyproject.toml", "README.md", "LICENSE"):
        assert sent(name), name
    for name in (
        ".git/config",
        ".venv/bin/python",
        "sojourn.toml",
        "lake-data/state/alerts.sqlite",
        "tests/conftest.py",
    ):
        assert not sent(name), name
    assert not sent("lake/__pycache__/store.cpython-311.pyc")


@pytest.mark.timeout(900)
def test_what_the_image_installs_has_every_file_of_every_package(installed: Path) -> None:
    assert [name for name in files() if not (installed / name).is_file()] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", ["collect", "analyze", "alert", "dashboard"])
def test_each_part_starts_from_what_the_image_installs(installed: Path, part: str, tmp_path: Path) -> None:
    # Libraries as they are, but nothing of this repository, to which the environment's own links lead.
    paths = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    done = subprocess.run(
        [sys.executable, "-S", "-m", "sojourn.cli.main", part, "--help"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "--lake" in done.stdout, done.stdout + done.stderr
