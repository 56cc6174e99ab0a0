"""The image and the cluster in containers: by our own reading; docs/deploying.md says what was run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.checks import DEPLOY, HANDOVER_S, check_command, check_ports, commented_commands, load_settings
from tests.places import ROOT
from trimaran.cluster.settings.config_layers import load_node_config

DOCKERFILE: Final = DEPLOY / "Dockerfile"
COMPOSE: Final = DEPLOY / "compose.yaml"
MEMBERS: Final = ("member-0", "member-1", "member-2")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments, lines that go on joined."""
    text = "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#"))
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in lines)]


def last(name: str) -> str:
    return next(rest for found, rest in reversed(instructions()) if found == name)


def image_environment() -> dict[str, str]:
    pairs = dict(pair.split("=", 1) for pair in shlex.split(last("ENV")))
    return {name: value for name, value in pairs.items() if name.startswith("TRIMARAN_")}


def compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def test_the_image_runs_a_member_as_a_user_without_rights() -> None:
    assert json.loads(last("ENTRYPOINT")) + json.loads(last("CMD")) == ["trimaran", "node"]
    assert last("USER") == "10001:10001"
    assert any("useradd --system --uid 10001" in rest for name, rest in instructions() if name == "RUN")
    assert last("STOPSIGNAL") == "SIGTERM"
    assert str(Path(image_environment()["TRIMARAN_DIRECTORY"]).parent) == last("VOLUME")


def test_the_settings_of_the_image_and_its_ports_are_a_members() -> None:
    config = load_settings(
        image_environment(), member_id="0", members="0=a:9000", service="a:B", insecure_plaintext="true"
    )

    check_ports(config)
    assert last("EXPOSE") == "9000-9004 9464"


def test_the_health_check_is_a_command_of_ours() -> None:
    command = last("HEALTHCHECK").partition(" CMD ")[2].partition(" || ")[0]

    check_command(shlex.split(command.replace("$TRIMARAN_MEMBER_ID", "0")))


@pytest.mark.slow
def test_what_the_build_may_read_is_enough_for_the_package(tmp_path: Path) -> None:
    """What .dockerignore leaves out, such as tests and the history, the image does not need."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    for name in (rule.removeprefix("!") for rule in rules if rule.startswith("!")):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for file in filter(None, listed.stdout.split("\0")):
            target = tmp_path / "context" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            source = ROOT / file
            if source.is_symlink():
                target.symlink_to(source.readlink())
            else:
                target.write_bytes(source.read_bytes())

    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path / "context")], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len([*tmp_path.glob("trimaran-*.whl")]) == 1


@pytest.mark.parametrize("name", MEMBERS)
def test_the_settings_of_each_container_are_those_of_a_member(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = compose()["services"][name]
    for variable, value in {**image_environment(), **service["environment"]}.items():
        monkeypatch.setenv(variable, value)

    config = load_node_config(None, {}).config

    check_ports(config)
    assert config.me.ingress == f"{service['hostname']}:9000" == f"{name}:9000"
    assert config.tls is not None, "other containers reach what it binds"


def test_containers_share_nothing_and_publish_on_loopback_alone() -> None:
    services = compose()["services"]
    published = [port for service in services.values() for port in service["ports"]]
    volumes = [service["volumes"][0].split(":") for service in services.values()]

    assert tuple(services) == MEMBERS
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len(set(published)) == 6
    assert sorted(volumes) == [[f"data-{i}", last("VOLUME")] for i in range(3)]
    assert {*compose()["volumes"]} == {volume for volume, _ in volumes}
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert float(service["stop_grace_period"].removesuffix("s")) > 2 * HANDOVER_S


@pytest.mark.parametrize("file", [COMPOSE, DEPLOY / "kubernetes.yaml"], ids=lambda file: file.name)
def test_the_commands_in_the_comments_are_commands_of_ours(file: Path) -> None:
    commands = commented_commands(file.read_text(), ("certs", "status", "health"))

    assert commands
    for command in commands:
        check_command(command)
