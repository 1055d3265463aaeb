"""One settings file, its overrides, and errors that say what to fix."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import UserError
from sojourn.settings import Settings, load


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cat(_Strict):
    kind: Literal["cat"] = "cat"
    whiskers: int = 12


class Dog(_Strict):
    kind: Literal["dog"]
    tail_length: float = 1.0


class Listen(_Strict):
    host: str = "127.0.0.1"
    port: int = Field(default=9095, ge=0, le=65535)


class Section(_Strict):
    listen: Listen = Listen()
    pets: tuple[Annotated[Cat | Dog, Field(discriminator="kind")], ...] = ()
    tenants: tuple[str, ...] = ()
    name: str = "x"


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sojourn.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_environment_variable_overrides_the_file(tmp_path: Path) -> None:
    path = _file(tmp_path, "[alert.listen]\nport = 1\nhost = '0.0.0.0'")
    section = load(path, {"SOJOURN_ALERT__LISTEN__PORT": "9099"}).section("alert", Section)
    assert section.listen == Listen(host="0.0.0.0", port=9099)


def test_an_environment_variable_reaches_into_lists_and_adds_to_them(tmp_path: Path) -> None:
    path = _file(tmp_path, "[[alert.pets]]\nkind = 'cat'\nwhiskers = 3")
    env = {
        "SOJOURN_ALERT__PETS__0__WHISKERS": "4",
        "SOJOURN_ALERT__PETS__1__WHISKERS": "5",
        "SOJOURN_ALERT__PETS__1__KIND": "cat",
    }
    assert [pet.whiskers for pet in load(path, env).section("alert", Section).pets] == [4, 5]  # type: ignore[union-attr]


def test_without_a_file_the_environment_alone_is_enough() -> None:
    env = {"SOJOURN_ALERT__TENANTS": '["a", "b"]', "SOJOURN_ALERT__NAME": "plain words"}
    section = load(None, env).section("alert", Section)
    assert (section.tenants, section.name) == (("a", "b"), "plain words")


def test_variables_of_sojourn_that_are_no_settings_are_left_alone() -> None:
    assert load(None, {"SOJOURN_LAKE": "/x", "SOJOURN_DEBUG": "1", "SOJOURN_CACHE": "/y"}).tables == {}


@pytest.mark.parametrize(
    ("text", "named", "nearest"),
    [
        ("[alrt]\nx = 1", "'alrt'", "'alert'"),
        ("[alert]\nlistn = 1", "'listn'", "'listen'"),
        ("[alert.listen]\nprot = 1", "'prot'", "'port'"),
        ("[[alert.pets]]\nkind = 'cat'\nwhisker = 1", "'whisker'", "'whiskers'"),
        ("[[alert.pets]]\nkind = 'dog'\ntail_lenght = 1", "'tail_lenght'", "'tail_length'"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(tmp_path: Path, text: str, named: str, nearest: str) -> None:
    with pytest.raises(UserError) as caught:
        load(_file(tmp_path, text), {}).section("alert", Section)
    assert f"unknown setting {named}" in caught.value.what
    assert caught.value.fix == f"did you mean {nearest}?"


def test_an_unknown_section_in_the_environment_is_named_with_its_variable() -> None:
    with pytest.raises(UserError, match=r"SOJOURN_ALRT__PORT.*did you mean 'alert'\?"):
        load(None, {"SOJOURN_ALRT__PORT": "1"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[alert.listen]\nport = 'many'", "alert.listen.port"),
        ("[alert.listen]\nport = 70000", "less than or equal to 65535"),
        ("[alert\n", "not valid TOML"),
    ],
)
def test_a_wrong_value_is_named_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        load(_file(tmp_path, text), {}).section("alert", Section)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        load(tmp_path / "nowhere.toml", {})


def test_the_lake_on_the_command_line_outranks_the_file(tmp_path: Path) -> None:
    settings = Settings({"lake": {"root": str(tmp_path / "a")}})
    assert settings.lake_root(tmp_path / "b") == tmp_path / "b"
    assert settings.lake_root() == tmp_path / "a"
