"""The command `trimaran`, as a process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system.commands import run_trimaran_blocking
from tests.waiting import patient
from trimaran.cluster.cli.app import COMMANDS
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import flag_name
from trimaran.cluster.settings.fields import HEADINGS
from trimaran.cluster.settings.variables import clean_environment

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m trimaran` with a plain environment, no terminal and wide lines."""
    clean = clean_environment()
    return subprocess.run(
        [sys.executable, "-m", "trimaran", *arguments],
        env=clean | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )


def show_config(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `trimaran config show` likewise, in a process that has imported it already."""
    plain = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    printed = run_trimaran_blocking("config", "show", *arguments, **plain, **environment)
    return subprocess.CompletedProcess(arguments, printed.exit_status, printed.output, printed.errors)


def test_help_lists_every_command_and_answers_at_once() -> None:
    run("--help")
    start = time.perf_counter()
    result = run("--help")
    elapsed_s = time.perf_counter() - start

    assert result.returncode == 0
    assert all(name in result.stdout for name in ("node", "status", "config", "demo", "archive", "snapshot"))
    assert elapsed_s < patient(1.5)  # about 0.13 s on an idle machine


def test_every_command_has_an_example_and_a_module_with_its_name() -> None:
    for name, command in COMMANDS.items():
        assert command.example.startswith(f"trimaran {name} ")
        assert name.replace("-", "_") in command.target.partition(":")[0].rpartition(".")[2]


@pytest.mark.parametrize("name", ["status", "log", "recovery-plan"])
def test_the_help_of_a_command_ends_with_an_example(name: str) -> None:
    result = run(name, "--help")

    assert result.returncode == 0
    assert f"Example: {COMMANDS[name].example}" in " ".join(result.stdout.split())


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from trimaran.cluster.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('pydantic', 'uvloop', 'structlog', 'asyncio', 'trimaran.archive.format', 'trimaran.client')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patient(60), check=True
    )

    assert result.stdout.splitlines()[-1] == "[]"


def test_version_prints_the_version_the_package_and_the_interpreter() -> None:
    result = run("--version")

    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[0].startswith("trimaran ")
    assert [line.split()[0] for line in lines[1:]] == ["commit", "package", "python"]
    assert Path(lines[2].split()[1], "py.typed").is_file()


def test_an_unknown_command_is_wrong_usage() -> None:
    result = run("nod")

    assert result.returncode == 2
    assert "'nod'" in result.stderr


def test_config_show_tells_where_each_value_came_from(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'members = "{MEMBERS}"\ndirectory = "data"\nservice = "quota:AccessQuota"\n')

    result = show_config("--config", str(file), "--no-checksums", TRIMARAN_MEMBER_ID="2")

    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line and "==" not in line}
    assert result.returncode == 0, result.stderr
    assert rows["members"] == [MEMBERS, f"{file}:1"]
    assert rows["member_id"] == ["2", "TRIMARAN_MEMBER_ID"]
    assert rows["checksums"] == ["false", "--checksums"]
    assert rows["term_length_bytes"] == ["64MiB", "default"]
    assert set(rows) == {"setting", *NodeConfig.model_fields}


def test_config_show_has_each_setting_under_its_heading() -> None:
    shown = [line.split()[0] for line in show_config().stdout.replace("== ", "==").splitlines()[1:] if line]

    assert shown == [name for key, fields in HEADINGS.items() for name in (f"=={key}", *fields.model_fields)]


def test_the_config_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(f'member_id = 0\nmembers = "{MEMBERS}"\ndirectory = "data"\nservice = "quota:AccessQuota"\n')

    result = show_config("-o", "json", TRIMARAN_CONFIG=str(file))

    assert result.returncode == 0, result.stderr
    assert f'"from": "{file}:1"' in result.stdout


def test_config_show_works_without_required_settings_and_shows_what_is_missing() -> None:
    table, document = show_config(), show_config("-o", "json", "--session-limit", "7")

    assert (table.returncode, document.returncode) == (0, 0), table.stderr + document.stderr
    for name in ("member_id", "members", "directory", "service"):
        assert re.search(rf"^{name} +missing: give {flag_name(name)} or TRIMARAN_{name.upper()}$", table.stdout, re.M)
    shown = json.loads(document.stdout)
    assert shown["directory"] == {"value": None, "from": "missing"}
    assert shown["session_limit"] == {"value": 7, "from": "--session-limit"}
    assert shown["file_sync_level"] == {"value": 1, "from": "default"}


def test_config_show_has_a_flag_for_every_setting() -> None:
    result = show_config("--help-all")

    assert all(flag_name(name) in result.stdout for name in NodeConfig.model_fields)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--members", "0=127.0.0.1"), "endpoint='127.0.0.1'"),
        (
            ("--member-id", "zero"),
            "member_id='zero' from --member-id:",
        ),
        (("--member-id", "5"), "member_id=5 expected one of [0, 1, 2]"),
        (("--config", "absent.toml"), "file=absent.toml"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_status_2(arguments: tuple[str, ...], expected: str) -> None:
    given = ["--member-id", "0", "--members", MEMBERS, "--directory", "d", "--service", "m:C", *arguments]

    result = show_config(*given)

    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("trimaran: ")
    assert expected in result.stderr
