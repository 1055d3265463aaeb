"""Where a lake's tables are, and what its home remembers of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lake.address import Address, address_of, home_for, is_url
from lake.errors import UserError
from lake.secret import Secret
from lake.store import Lake
from sojourn.settings import LakeSettings, Settings

OPTIONS = {"AWS_Access_Key_ID": "me", "aws_secret_access_key": Secret(env="THEIR_SECRET")}


@pytest.mark.parametrize("name", ["aws_secret_access_key", "AWS_SESSION_TOKEN", "azure_storage_account_key", "sas_key"])
def test_a_secret_is_never_written_down(name: str) -> None:
    with pytest.raises(ValidationError, match="is a secret"):
        Address(path="s3://bucket/lake", storage_options={name: "hush"})


@pytest.mark.parametrize("path", ["/a/folder", "http://host/x", "s3://", "bucket/prefix", "s3://me:hush@bucket/lake"])
def test_what_is_no_address_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        Address(path=path)


def test_an_address_is_told_apart_from_a_folder() -> None:
    assert is_url("s3://bucket/lake") and is_url(Path("s3://bucket/lake")) and is_url("gs://bucket")
    assert not is_url("lake-data") and not is_url("/srv/lake") and not is_url("c:/lake")


def test_a_home_remembers_the_address_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_SECRET", "hush")
    address = Address(path="s3a://bucket/lake/", storage_options=OPTIONS)
    address.keep(tmp_path)
    known = address_of(tmp_path)
    assert known == address and known.path == "s3://bucket/lake"
    assert "hush" not in (tmp_path / "address.json").read_text()
    assert known.options()["aws_secret_access_key"] == "hush" and known.options()["aws_access_key_id"] == "me"
    assert str(Lake(tmp_path).path("partials")) == "s3://bucket/lake/gold/partials"


def test_a_home_belongs_to_one_lake(tmp_path: Path) -> None:
    Address(path="s3://bucket/one").keep(tmp_path / "home")
    with pytest.raises(UserError, match="belongs to the lake at s3://bucket/one"):
        Address(path="s3://bucket/two").keep(tmp_path / "home")
    Lake(tmp_path / "own").create()
    with pytest.raises(UserError, match="holds a lake's tables itself"):
        Address(path="s3://bucket/one").keep(tmp_path / "own")


def test_what_is_not_said_is_asked_of_the_environment() -> None:
    told = Address(path="s3://bucket/lake").options({"AWS_ENDPOINT_URL": "http://store:9000", "AWS_REGION": "eu-x"})
    assert (told["aws_endpoint_url"], told["aws_region"], told["aws_allow_http"]) == (
        "http://store:9000",
        "eu-x",
        "true",
    )
    assert told["aws_conditional_put"] == "etag"


def test_settings_name_the_address_and_the_home(tmp_path: Path) -> None:
    table = {"root": str(tmp_path), "path": "s3://bucket/lake", "storage_options": {"aws_region": "eu-x"}}
    settings = Settings({"lake": table}, "sojourn.toml")
    assert settings.lake_root() == tmp_path
    assert address_of(tmp_path) == LakeSettings.model_validate(table).address("s3://bucket/lake")
    other = tmp_path / "another"
    assert settings.lake_root(other) == other and address_of(other) is None, "a folder that is named is meant"


def test_an_address_on_the_command_line_has_a_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    home = Settings().lake_root(Path("s3://bucket/some/lake"))
    assert home == home_for("s3://bucket/some/lake") == tmp_path / "sojourn" / "bucket-some-lake"
    known = address_of(home)
    assert known is not None and known.path == "s3://bucket/some/lake"


@pytest.mark.parametrize(
    "table",
    [
        {"path": "ftp://host/x"},
        {"path": "s3://b/l", "storage_options": {"aws_token": "x"}},
        {"storage_options": {"a": "b"}},
    ],
)
def test_settings_that_cannot_be_meant_are_one_line(table: dict[str, object]) -> None:
    with pytest.raises(UserError) as told:
        Settings({"lake": table}, "sojourn.toml").lake_root()
    assert "\n" not in str(told.value) and "lake" in str(told.value)
