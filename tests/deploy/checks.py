"""What the files in deploy/ have in common: settings, ports, and commands that have to exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
import typer

from tests.places import ROOT
from tests.waiting import patient
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import load_node_config
from trimaran.cluster.settings.variables import ENV_PREFIX
from trimaran.service_api.endpoint import Endpoint

DEPLOY: Final = ROOT / "deploy"
PORTS: Final = {"ingress": 9000, "consensus": 9001, "log": 9002, "catchup": 9003, "archive": 9004}
METRICS_PORT: Final = 9464
HANDOVER_S: Final = NodeConfig.model_fields["handover_timeout_ms"].default / 1e3


def load_settings(environment: Mapping[str, str], **more: str) -> NodeConfig:
    """Read the settings in an environment, and `more`, as a member does; the test's own environment has none."""
    own = {name.removeprefix(ENV_PREFIX).lower(): text for name, text in environment.items() if "TRIMARAN" in name}
    assert len(own) == len(environment)
    return load_node_config(None, {**own, **more}).config


def check_ports(config: NodeConfig) -> None:
    """The ports that a member binds are those that the files declare."""
    bound = (Endpoint.parse(endpoint).port for endpoint in config.listening.endpoints)
    assert dict(zip(PORTS, bound, strict=True)) == PORTS
    assert Endpoint.parse(config.metrics_endpoint).port == METRICS_PORT


def check_command(arguments: Sequence[str]) -> None:
    """The command line takes these arguments; nothing is run.

    Raises:
        click.UsageError: it does not.
    """
    assert arguments[0] == "trimaran"
    group: Any = typer.main.get_command(build_app(arguments[1:]))
    parent = click.Context(group)
    name, rest = arguments[1], list(arguments[2:])
    command = group.get_command(parent, name)
    while isinstance(command, click.Group):
        parent, name, rest = click.Context(command, parent=parent), rest[0], rest[1:]
        command = command.get_command(parent, name)
    assert command is not None, f"no command: {arguments}"
    command.make_context(name, rest, parent=parent)


def commented_commands(text: str, prompts: Iterable[str]) -> list[list[str]]:
    """Find the commands of ours in the comment at the beginning of a file, whatever runs them."""
    lines = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    found = [re.search(r"\btrimaran (?:" + "|".join(prompts) + r")\b.*", line) for line in lines]
    return [match[0].split() for match in found if match]


def run_tool(*arguments: str) -> str | None:
    """Run a tool that checks files; gives what it complains of, or None where this machine does not have the tool."""
    if shutil.which(arguments[0]) is None:
        print(f"{arguments[0]} is not on this machine: only our own checks were made")
        return None
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=patient(120), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
