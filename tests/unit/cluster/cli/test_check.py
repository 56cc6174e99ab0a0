"""`trimaran check`: targets, statuses and outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.testing.check import RULES
from trimaran.service_api import ConfigurationError

SERVICE = "from trimaran import ClusteredService\nimport math\nimport time\n\n\nclass {name}(ClusteredService):\n"
CALLBACK = "    def on_request(self, session, request, payload, time_ms):\n        self.value = {value}\n"


def write(path: Path, value: str, name: str = "Service") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SERVICE.format(name=name) + CALLBACK.format(value=value))
    return path


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build_app(["check"]), ["check", *map(str, arguments)], env={"COLUMNS": "200"})


def refusal(*arguments: str | Path) -> str:
    """The error of a wrong target; the command's entry prints it as one line and ends with 2."""
    result = check(*arguments)
    assert isinstance(result.exception, ConfigurationError)
    return str(result.exception)


def test_findings_fail_the_command_and_show_place_line_reason_and_way_out(tmp_path: Path) -> None:
    path = write(tmp_path / "clock.py", "time.time()")

    result = check(path)

    place, source, why, instead, summary = (line.strip() for line in result.stdout.splitlines())
    assert result.exit_code == 1
    assert place.endswith("clock.py:8:22: wall-clock: time.time()")
    assert source == "self.value = time.time()"
    assert (why, instead) == (f"why: {RULES['wall-clock'].why}", f"instead: {RULES['wall-clock'].instead}")
    assert has_facts(summary, "1 finding ", "0 hints", "1 service:", "clock:Service")


def test_hints_alone_do_not_fail_it(tmp_path: Path) -> None:
    result = check(write(tmp_path / "power.py", "math.exp(2)"))

    assert result.exit_code == 0
    assert has_facts(result.stdout, "hint: float-libm: math.exp()", "0 findings", "1 hint ")


def test_a_service_without_findings_is_named(tmp_path: Path) -> None:
    result = check(write(tmp_path / "right.py", "1"))

    assert result.exit_code == 0
    assert has_facts(result.stdout, "0 findings", "0 hints", "right:Service")


def test_the_documents_have_a_row_for_each_finding(tmp_path: Path) -> None:
    path = write(tmp_path / "clock.py", "(time.time(), math.exp(2))")

    rows = [json.loads(line) for line in check(path, "-o", "jsonl").stdout.splitlines()]

    assert json.loads(check(path, "-o", "json").stdout) == rows
    assert [(row["line"], row["column"], row["rule"], row["severity"], row["what"]) for row in rows] == [
        (8, 23, "wall-clock", "error", "time.time()"),
        (8, 36, "float-libm", "hint", "math.exp()"),
    ]
    assert all(row["path"] == str(path) and row["reached_from"] == ["on_request"] for row in rows)


def test_a_path_below_the_working_directory_is_shown_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "services" / "clock.py", "time.time()")
    monkeypatch.chdir(tmp_path)

    assert check("services/clock.py").stdout.startswith("services/clock.py:8:")


def test_a_directory_is_searched_but_for_what_is_not_the_users(tmp_path: Path) -> None:
    for place in ("one.py", "package/two.py", "package/__init__.py", ".hidden/three.py", "node_modules/four.py"):
        write(tmp_path / place, "1", name=f"S{place[0].strip('.')}{len(place)}")
    write(tmp_path / "venv" / "five.py", "time.time()")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")

    result = check(tmp_path)

    assert result.exit_code == 0
    assert has_facts(result.stdout, "3 services", "one:", "package.two:", "package:")


def test_a_class_is_named_by_its_module_and_the_directory(tmp_path: Path) -> None:
    write(tmp_path / "clock.py", "time.time()")

    named, elsewhere = check("clock:Service", "--service-dir", tmp_path), refusal("clock:Service")

    assert (named.exit_code, "clock:Service" in named.stdout) == (1, True)
    assert "module=clock" in elsewhere


def test_what_is_given_twice_is_looked_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "clock.py", "time.time()")

    assert has_facts(check(path, path, "clock:Service", "--service-dir", tmp_path).stdout, "1 finding ", "1 service:")


@pytest.mark.parametrize(
    ("target", "fact"),
    [
        ("absent.py", "absent.py"),
        ("absent:Service", "module=absent"),
        ("empty.py", "path="),
        ("broken.py", "broken.py:2"),
        ("right:Absent", "['Service', 'Other']"),
        ("right:Other", "right:Other"),
    ],
)
def test_a_target_that_is_no_service_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, fact: str
) -> None:
    right = write(tmp_path / "right.py", "1")
    right.write_text(f"{right.read_text()}\n\nclass Other:\n    pass\n")
    (tmp_path / "empty.py").write_text("x = 1\n")
    (tmp_path / "broken.py").write_text("x = 1\ndef broken(:\n")
    monkeypatch.chdir(tmp_path)

    assert fact in refusal(target)


def test_nothing_to_check_is_wrong_usage_and_the_rules_are_listed_on_their_own() -> None:
    listed = check("--rules", "-o", "json")

    assert "module:Class" in refusal()
    assert listed.exit_code == 0
    assert {row["rule"] for row in json.loads(listed.stdout)} == RULES.keys()


def test_source_that_would_harm_when_run_is_only_read(tmp_path: Path) -> None:
    path = write(tmp_path / "harm.py", "1")
    path.write_text(path.read_text() + f"\nopen({str(tmp_path / 'made')!r}, 'w')\nraise SystemExit(9)\n")

    assert check(path).exit_code == 0
    assert not (tmp_path / "made").exists()
