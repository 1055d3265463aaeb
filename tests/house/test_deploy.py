"""What deploy/ says agrees with the command line, the settings and itself, and is what kubectl and systemd take."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from alerts.settings import AlertSettings
from collectors.settings import CollectSettings
from dashboard.settings import DashboardSettings
from lake.secret import Secret
from sojourn.cli.main import app
from sojourn.settings import SECTIONS, LakeSettings, load
from spark_analytics.settings import AnalyzeSettings
from tests.support.programs import go_program

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
PARTS = ("collect", "analyze", "alert", "dashboard")
MODELS = {
    "lake": LakeSettings,
    "collect": CollectSettings,
    "analyze": AnalyzeSettings,
    "alert": AlertSettings,
    "dashboard": DashboardSettings,
}


def documents() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((KUBERNETES / name).read_text())


def one(kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in documents() if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(part: str) -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment", f"sojourn-{part}")["spec"]["template"]["spec"]
    return spec


def container(part: str) -> dict[str, Any]:
    [found] = pod(part)["containers"]
    return dict(found)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """The sections of the manifests' sojourn.toml, read as the command reads them."""
    path = tmp_path / "sojourn.toml"
    path.write_text(one("ConfigMap", "sojourn-settings")["data"]["sojourn.toml"], encoding="utf-8")
    read = load(path, {})
    assert set(read.tables) <= set(SECTIONS)
    return {name: read.section(name, MODELS[name]) for name in read.tables}


def test_every_manifest_is_listed() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(path.name for path in KUBERNETES.iterdir())


@pytest.mark.parametrize("part", PARTS)
def test_the_command_of_each_part_and_its_options_are_sojourn_s(part: str, settings: dict[str, Any]) -> None:
    name, *words = container(part)["args"]
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert name == part and {word for word in words if word.startswith("-")} <= known
    mounts = {mount["name"]: mount["mountPath"] for mount in container(part)["volumeMounts"]}
    assert words[words.index("--lake") + 1] == str(settings["lake"].root) == mounts["lake"]
    assert words[words.index("-c") + 1].startswith(mounts["settings"] + "/")
    assert {volume["name"] for volume in pod(part)["volumes"]} == set(mounts)


@pytest.mark.parametrize("part", PARTS)
def test_nobody_is_root_or_writes_beside_the_volumes(part: str) -> None:
    assert pod(part)["securityContext"]["runAsNonRoot"] and pod(part)["securityContext"]["runAsUser"]
    mine = container(part)["securityContext"]
    assert (mine["readOnlyRootFilesystem"], mine["allowPrivilegeEscalation"]) == (True, False)
    assert container(part)["resources"]["limits"]["memory"]
    assert pod(part)["terminationGracePeriodSeconds"] >= 10, "a part may take so long to end in order"


def test_ports_and_probes_are_those_of_the_settings(settings: dict[str, Any]) -> None:
    told = {
        "collect": settings["collect"].metrics_port,
        "alert": settings["alert"].port,
        "dashboard": settings["dashboard"].port,
    }
    for part, port in told.items():
        [mine] = container(part)["ports"]
        [served] = one("Service", f"sojourn-{part}")["spec"]["ports"]
        assert (mine["containerPort"], served["port"], served["targetPort"]) == (port, port, mine["name"])
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container(part)[probe]["httpGet"]["port"] == mine["name"]


def test_each_secret_that_the_settings_name_comes_from_the_secret(settings: dict[str, Any]) -> None:
    named = {
        "collect": {each.env for broker in settings["collect"].brokers for each in _secrets(broker)},
        "alert": {settings["alert"].token_env, *(each.secret_env for each in settings["alert"].receivers)},
    }
    for part, variables in named.items():
        given = {entry["name"] for entry in container(part)["env"] if "secretKeyRef" in entry.get("valueFrom", {})}
        assert given == variables
    assert not [each for each in documents() if each["kind"] == "Secret"], "no value of a secret stands here"


def test_over_an_object_store_each_part_has_credentials_and_a_home_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = DEPLOY / "kubernetes-s3"
    told = yaml.safe_load((folder / "kustomization.yaml").read_text())
    files = [one["path"] for one in told["patches"] if "path" in one]
    assert told["resources"] == ["../kubernetes"] and sorted(["kustomization.yaml", *files]) == sorted(
        path.name for path in folder.iterdir()
    )
    patches = [one for name in files for one in yaml.safe_load_all((folder / name).read_text())]
    for each in patches:
        assert one(each["kind"], each["metadata"]["name"]), "there is what it changes"
    [config] = [each for each in patches if each["kind"] == "ConfigMap"]
    path = tmp_path / "sojourn.toml"
    path.write_text(config["data"]["sojourn.toml"], encoding="utf-8")
    read = load(path, {})
    lake = read.section("lake", LakeSettings)
    assert lake.path is not None and str(lake.root) == "/lake"
    secrets = {value.env for value in lake.storage_options.values() if isinstance(value, Secret)}
    alerts = read.section("alert", AlertSettings)
    assert alerts.store is not None and alerts.store.env is not None
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in patches if each["kind"] == "Deployment"
    }
    assert set(pods) == {f"sojourn-{part}" for part in PARTS}
    for part in PARTS:
        [mine] = pods[f"sojourn-{part}"]["containers"]
        assert mine["name"] == container(part)["name"]
        assert {entry["name"] for entry in mine["env"]} == secrets | ({alerts.store.env} if part == "alert" else set())
        volumes = {volume["name"]: volume for volume in pods[f"sojourn-{part}"].get("volumes", [])}
        assert ("lake" in volumes) is (part != "analyze"), "the analysis keeps its checkpoints"
        assert all("emptyDir" in volume and volume["persistentVolumeClaim"] is None for volume in volumes.values())
    assert "spark_analytics.runtime --s3" in (DEPLOY / "Dockerfile").read_text(), (
        "a root that is read-only fetches no jars"
    )


def _secrets(broker: Any) -> list[Secret]:
    return [value for _, value in broker if isinstance(value, Secret)]


def test_the_image_runs_sojourn_as_the_user_of_the_manifests() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    [user] = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert {pod(part)["securityContext"]["runAsUser"] for part in PARTS} == {int(user)}
    assert 'ENTRYPOINT ["sojourn"]' in text
    root = DEPLOY.parent
    copied = re.findall(r"^COPY (?!--from)(.+) \./$", text, re.MULTILINE)
    assert copied and all((root / name).is_file() for line in copied for name in line.split())


def test_the_unit_of_spark_connect_has_a_user_of_its_own_who_may_change_nothing() -> None:
    lines = (DEPLOY / "systemd" / "sojourn-connect.service").read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert said["User"] not in ("", "root") and "sojourn connect" in said["ExecStart"]
    assert (said["ProtectSystem"], said["NoNewPrivileges"], said["CapabilityBoundingSet"]) == ("strict", "yes", "")
    assert (said["ProtectHome"], said["PrivateTmp"], said["IPAddressDeny"]) == ("yes", "yes", "any")
    assert said["ReadOnlyPaths"] in said["ExecStart"] and "ReadWritePaths" not in said
    known = {option for one in typer.main.get_command(app).commands["connect"].params for option in one.opts}  # type: ignore[attr-defined]
    assert set(re.findall(r"--[a-z-]+", said["ExecStart"])) <= known


def rendered(folder: str) -> list[dict[str, Any]]:
    """What ``kubectl apply -k`` would send to the API server."""
    if (kubectl := shutil.which("kubectl")) is None:
        pytest.skip("no kubectl on this machine")
    asked = [kubectl, "kustomize", str(DEPLOY / folder)]
    if folder == "kubernetes-s3":  # the folder below it stands beside it
        asked.append("--load-restrictor=LoadRestrictionsNone")
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-s3"])
def test_kubectl_renders_what_is_laid_over_one_another(folder: str) -> None:
    found = {(each["kind"], each["metadata"]["name"]) for each in rendered(folder)}
    assert {("Deployment", f"sojourn-{part}") for part in PARTS} <= found


#: The oldest and the newest version of Kubernetes whose types the manifests are held to.
VERSIONS = ("1.25", "1.37")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_of_the_types_of_the_kubernetes_api(version: str) -> None:
    for each in documents():
        assert kubernetes_validate.validate(each, version, strict=True) == version


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", ["kubernetes", "kubernetes-s3"])
def test_what_kubectl_renders_is_of_the_types_of_the_kubernetes_api(folder: str, version: str) -> None:
    for each in rendered(folder):
        assert kubernetes_validate.validate(each, version, strict=True) == version


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("replicas",), "one"),
        (("template", "spec", "containers", 0, "livenessProbes"), {}),
        (("template", "spec", "securityContext", "runAsUser"), "10001"),
    ],
)
def test_what_the_kubernetes_api_would_refuse_is_found(path: tuple[str | int, ...], wrong: object) -> None:
    manifest = one("Deployment", "sojourn-alert")
    place: Any = manifest["spec"]
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = wrong
    with pytest.raises(kubernetes_validate.ValidationError, match=str(path[-1]) if wrong == {} else "not of type"):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("unit", sorted(path.name for path in (DEPLOY / "systemd").iterdir()))
def test_systemd_takes_each_unit(unit: str, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd on this machine")
    text = (DEPLOY / "systemd" / unit).read_text(encoding="utf-8")
    (tmp_path / unit).write_text(text.replace("/opt/sojourn/.venv/bin/sojourn", "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / unit)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in done.stderr.splitlines() if unit in line]
    assert done.returncode == 0 and not said, done.stderr


def test_the_unit_of_all_parts_writes_its_state_alone() -> None:
    lines = (DEPLOY / "systemd" / "sojourn.service").read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    name, *words = said["ExecStart"].split()[1:]
    known = {option for one in typer.main.get_command(app).commands[name].params for option in one.opts}  # type: ignore[attr-defined]
    assert name == "up" and {word for word in words if word.startswith("-")} <= known
    assert said["User"] not in ("", "root") and (said["ProtectSystem"], said["NoNewPrivileges"]) == ("strict", "yes")
    assert words[words.index("--lake") + 1].startswith(f"/var/lib/{said['StateDirectory']}/")
    assert "ReadWritePaths" not in said


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file as `docker compose` reads it, by the same library: checked against its schema, all merged."""
    done = _composed(DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _composed(file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = go_program(Path(__file__).with_name("programs") / "compose")
    given = {"PATH": os.environ["PATH"], "SOJOURN_API_TOKEN": "hush", **variables}
    return subprocess.run([program, str(file)], env=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [("mem_limit: 4g", "memory_limit: 4g", "memory_limit"), ("read_only: true", "read_only: [yes]", "read_only")],
)
def test_what_compose_does_not_know_would_be_told(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    (tmp_path / "compose.yaml").write_text(text.replace(right, wrong), encoding="utf-8")
    done = _composed(tmp_path / "compose.yaml")
    assert right in text and done.returncode and told in done.stderr


def test_compose_starts_nothing_without_a_token() -> None:
    done = _composed(DEPLOY / "compose.yaml", SOJOURN_API_TOKEN="")
    assert done.returncode and "give the token of the limits and alerts API" in done.stderr


def test_the_compose_file_runs_each_part_as_nobody_and_opens_loopback_alone(
    settings: dict[str, Any], compose: dict[str, Any]
) -> None:
    assert set(compose["services"]) == set(PARTS)
    [user] = re.findall(r"^USER (\d+:\d+)$", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    for part, service in compose["services"].items():
        name, *words = service["command"]
        known = {option for one in typer.main.get_command(app).commands[name].params for option in one.opts}  # type: ignore[attr-defined]
        assert name == part and {word for word in words if word.startswith("-")} <= known
        mounts = {one["target"]: one for one in service["volumes"]}
        assert mounts[words[words.index("-c") + 1]]["read_only"]
        assert mounts[words[words.index("--lake") + 1]]["source"] in compose["volumes"]
        assert (service["user"], service["read_only"], service["cap_drop"]) == (user, True, ["ALL"])
        built = Path(service["build"]["context"]) / service["build"]["dockerfile"]
        assert int(service["mem_limit"]) >= 512 * 1024**2 and built == DEPLOY / "Dockerfile"
        assert service["environment"][settings["alert"].token_env] == "hush"
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1" and settings[part].host == "0.0.0.0"
            assert int(port["published"]) == port["target"] == settings[part].port
    open_ones = {part for part, service in compose["services"].items() if service.get("ports")}
    assert open_ones == {"alert", "dashboard"}, "what people and clients ask"
