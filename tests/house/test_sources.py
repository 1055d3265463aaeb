"""What holds for every file of the repository."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = TOOLS["importlinter"]["root_packages"]
LONGEST = 450

#: Packages come from wherever the user's pip and Maven settings say: no registry's address stands in our files.
#: Written in pieces, or this file would be the first offender.
REGISTRIES = re.compile("|".join(rf"{name}\.{end}" for name, end in (
    ("py" + "pi", "org"), ("pythonhost" + "ed", "org"), ("repo1?\\.mav" + "en", "org"), ("mav" + "en\\.apache", "org"),
    ("npm" + "js", "(?:org|com)"), ("anac" + "onda", "org"), ("sona" + "type", "(?:org|com)"), ("crat" + "es", "io"),
    ("jit" + "pack", "io"), ("yarn" + "pkg", "com"), ("ghc" + "r", "io"), ("dock" + "er", "io"),
)))  # fmt: skip


def tracked() -> list[Path]:
    """The files of the repository that are there; those of a copy without history if git knows nothing."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        hidden_or_made = re.compile(r"/(\.[^/]+|build|dist|[^/]+\.egg-info|__pycache__)/")
        paths = [path for path in ROOT.rglob("*") if not hidden_or_made.search(f"/{path.relative_to(ROOT)}/")]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def texts() -> Iterator[tuple[Path, str]]:
    """Every file that is text, named as seen from the root."""
    for path in tracked():
        content = path.read_bytes()
        if b"\0" not in content[:8192]:
            yield path.relative_to(ROOT), content.decode("utf-8", "replace")


def test_no_file_names_a_package_registry() -> None:
    assert [str(path) for path, text in texts() if REGISTRIES.search(text)] == []


def test_no_source_file_is_longer_than_a_person_can_hold_in_mind() -> None:
    long = {str(path): text.count("\n") for path, text in texts() if path.suffix in (".py", ".sql")}
    assert {path: lines for path, lines in long.items() if lines > LONGEST} == {}


def test_every_package_stands_in_the_layers_the_types_and_the_distribution() -> None:
    beside = ("tests", "benchmarks", "examples")
    folders = sorted(
        path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file() and path.name not in beside
    )
    assert sorted(PACKAGES) == folders
    assert sorted(TOOLS["mypy"]["packages"]) == folders
    assert sorted(TOOLS["setuptools"]["packages"]["find"]["include"]) == [f"{name}*" for name in folders]
    (layers,) = [contract for contract in TOOLS["importlinter"]["contracts"] if contract["type"] == "layers"]
    assert sorted(" | ".join(layers["layers"]).split(" | ")) == folders


def test_every_folder_of_modules_is_a_package() -> None:
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    lacking = {str(path.parent.relative_to(ROOT)) for path in modules if not (path.parent / "__init__.py").is_file()}
    assert lacking == set()


def test_the_import_layers_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def imported(source: Path) -> Iterator[str]:
    """The absolute names of the modules that ``source`` imports, at its top or anywhere inside."""
    package = source.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            yield from (".".join((*base, *filter(None, [node.module]), alias.name)) for alias in node.names)


@pytest.mark.parametrize("source", [ROOT / "sojourn" / "__init__.py", *(ROOT / "sojourn" / "client").rglob("*.py")])
def test_what_applications_embed_needs_the_standard_library_alone(source: Path) -> None:
    # An adapter, or a mirror, is there for those who have the library that it is named after.
    its_own = {source.stem} if source.parent.name in ("adapters", "mirrors") else set()
    foreign = {
        name
        for name in imported(source)
        if name.split(".")[0] not in sys.stdlib_module_names | its_own and not f"{name}.".startswith("sojourn.client.")
    }
    assert foreign == set()


def test_delta_tables_are_read_by_arrow_without_objects_of_python() -> None:
    """deltalake's own way may abort a process that leaves: lake/dataset.py is the only place that opens a data set."""
    readers = re.compile(r"\.to_pyarrow_(dataset|table)\(")
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in modules if readers.search(path.read_text())}
    assert found == {"lake/dataset.py"}


def test_shell_scripts_can_be_read_by_the_shell() -> None:
    for script in [*(ROOT / "scripts").iterdir(), ROOT / ".ci" / "run"]:
        run = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert script.stat().st_mode & 0o100, f"{script} cannot be run"
