"""The unit for systemd: by our own reading, and by systemd's where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.deploy.checks import DEPLOY, HANDOVER_S, check_command, load_settings, run_tool

UNIT: Final = DEPLOY / "trimaran@.service"


def values(key: str) -> list[str]:
    """The values of a key, in order, for member 0."""
    lines = [line.replace("%i", "0") for line in UNIT.read_text().splitlines()]
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def test_its_settings_and_a_file_make_a_member(tmp_path: Path) -> None:
    environment = dict(value.split("=", 1) for value in values("Environment"))
    assert environment.pop("TRIMARAN_CONFIG") == "/etc/trimaran/node.toml"
    assert environment.pop("XDG_RUNTIME_DIR") == f"/run/{values('RuntimeDirectory')[0]}"

    config = load_settings(environment, members="0=127.0.0.1:9000", service="a:B")

    assert config.member_id == 0
    assert str(config.directory) == f"/var/lib/{values('StateDirectory')[0].split()[1]}"
    assert config.log_format == "json"


def test_it_runs_a_member_and_waits_for_the_hand_over() -> None:
    command = values("ExecStart")[0].removeprefix("/opt/trimaran/bin/").split()

    assert command == ["trimaran", "node"]
    check_command(command)
    assert float(values("TimeoutStopSec")[0]) > 2 * HANDOVER_S
    assert values("Type") == ["exec"], "a member sends systemd no notice"
    assert values("RestartPreventExitStatus") == ["2"], "of settings that cannot be used"
    assert "PrivateUsers" not in UNIT.read_text(), "root would be nobody to the control socket"


def test_systemd_takes_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/trimaran/bin/trimaran", sys.executable))

    complaints = run_tool("systemd-analyze", "verify", "--man=no", str(unit))

    assert not complaints, complaints
