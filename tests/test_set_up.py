"""Set-up: `constraints.txt` covers every extra for each Python, and a set-up that fails says why."""

from __future__ import annotations

import importlib.metadata
import sys
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import constraints, set_up
from tests.constraints import CORE, PYTHONS, Pin
from tests.places import ROOT
from tests.waiting import wait_blocking

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]  # Any: TOML
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
SETS = {CORE: PROJECT["dependencies"], **EXTRAS}
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def environment(python: str, extra: str = "") -> dict[str, str]:
    """The machine of most users: Linux on x86_64, and a release of this Python."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "extra": extra,
    }


def pins_for(python: str, name: str) -> dict[str, Pin]:
    """The pins of a set that hold for a Python; at most one for a package."""
    found: dict[str, Pin] = {}
    for pin in constraints.read_pins():
        if {CORE, name} & set(pin.sets) and holds(Requirement(pin.requirement), python):
            assert pin.name not in found
            found[pin.name] = pin
    return found


def holds(requirement: Requirement, python: str, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment(python, extra))


def declared(name: str, python: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for in a set, with the extras of trimaran that it names."""
    for text in SETS[name]:
        requirement = Requirement(text)
        if requirement.name == "trimaran":
            for extra in requirement.extras:
                yield from declared(extra, python)
        elif holds(requirement, python):
            yield requirement


def asked_by_installed(requirement: Requirement, seen: set[str]) -> Iterator[Requirement]:
    """What an installed package asks for, and what these ask for in turn."""
    try:
        lines = importlib.metadata.requires(requirement.name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for extra in ("", *requirement.extras):
        key = f"{canonicalize_name(requirement.name)}[{extra}]"
        if key in seen:
            continue
        seen.add(key)
        for line in lines:
            needed = Requirement(line)
            if holds(needed, THIS_PYTHON, extra):
                yield needed
                yield from asked_by_installed(needed, seen)


def unmet(requirements: Iterator[Requirement], pins: dict[str, Pin]) -> list[str]:
    return [
        str(needed)
        for needed in requirements
        if (pin := pins.get(canonicalize_name(needed.name))) is None
        or not needed.specifier.contains(pin.version, prereleases=True)
    ]


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", SETS)
def test_constraints_name_a_release_for_each_declared_requirement(name: str, python: str) -> None:
    assert unmet(declared(name, python), pins_for(python, name)) == []


@pytest.mark.skipif(THIS_PYTHON not in PYTHONS, reason=f"needs one of Python {', '.join(PYTHONS)}")
def test_constraints_name_what_installed_packages_need_in_turn() -> None:
    """A set is installed without looking at dependencies, so each has to be a line of that set."""
    needed = {
        name: [each for first in declared(name, THIS_PYTHON) for each in asked_by_installed(first, seen)]
        for name, seen in ((name, set[str]()) for name in SETS)
    }

    assert len(needed["suite"]) > 200
    assert {name: unmet(iter(lines), pins_for(THIS_PYTHON, name)) for name, lines in needed.items()} == {
        name: [] for name in SETS
    }


def test_constraints_name_no_host_and_no_path() -> None:
    text = constraints.CONSTRAINTS.read_text()

    assert [line for line in text.splitlines() if "/" in line or "@" in line] == []
    assert constraints.parse(text) == constraints.read_pins()


def test_every_set_that_make_installs_has_a_cost() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert set(set_up.EXPECTED) - {CORE} <= set(EXTRAS)
    for name in set_up.EXPECTED:
        assert name in makefile


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "The disk is full"),
        ("error: failed\n  cause: failed to copy: os error 28", "The disk is full"),
        ("WARNING: connection broken\nERROR: No matching distribution found for uv", "index cannot be reached"),
        ("error: Request failed\n  cause: dns error", "index cannot be reached"),
        ("error: boom", "a release that this machine cannot install"),
    ],
)
def test_a_failure_says_in_two_lines_what_to_do(output: str, advice: str) -> None:
    first, second = str(set_up.explain(output)).splitlines()

    assert first.lower().startswith("error")
    assert advice in second


def test_a_python_without_constraints_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "PYTHONS", ("2.7",))

    explained = str(set_up.explain("error: boom"))

    assert f"Python {THIS_PYTHON} " in explained
    assert "2.7" in explained


def test_a_step_that_lasts_prints_its_newest_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(set_up, "REPORT_INTERVAL_S", 0.001)

    with set_up.reports(deque(["unpacking\n"])):
        line = wait_blocking(lambda: capsys.readouterr().out or None, timeout_s=20, what="a report")

    assert line.startswith("    0 s  unpacking")


def test_a_command_that_fails_gives_its_output() -> None:
    program = "import os, sys; print(os.environ['WORD']); print('no', file=sys.stderr); sys.exit(int(sys.argv[1]))"
    command = (sys.executable, "-u", "-c", program)

    assert set_up.run((*command, "3"), {"WORD": "spam"}) == "spam\nno\n"
    assert set_up.run((*command, "0"), {"WORD": "spam"}) is None


class Commands:
    """Stands for `run`: keeps the commands, and fails those whose words are in a table."""

    def __init__(self, failures: dict[str, str]) -> None:
        self.failures = failures
        self.lines: list[str] = []

    def __call__(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> str | None:
        line = " ".join(map(str, command))
        self.lines.append(line)
        return next((output for words, output in self.failures.items() if words in line), None)


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment where uv is not installed."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: [])
    monkeypatch.setattr(set_up, "configured_index", dict)
    return tmp_path


def test_uv_installs_the_lines_of_a_set(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "run", commands := Commands({}))

    set_up.install("check")

    get_uv, install = commands.lines
    assert "pip install" in get_uv
    assert "uv==" in get_uv
    assert f"--requirement {prefix / 'set-check.txt'}" in install
    assert "--editable" not in install
    assert (prefix / "set-check.txt").read_text().splitlines() == [
        pin.requirement for pin in constraints.read_pins() if {CORE, "check"} & set(pin.sets)
    ]


@pytest.mark.parametrize("failing", ["--only-binary", "/uv pip install"])
def test_pip_installs_the_same_without_uv(prefix: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    monkeypatch.setattr(set_up, "run", commands := Commands({failing: "error: no such platform"}))

    set_up.install(CORE)

    last = commands.lines[-1]
    assert "-m pip install --no-deps" in last
    assert last.endswith(f"--requirement {prefix / 'set-core.txt'} --editable {ROOT}")


def test_without_an_index_nothing_else_is_tried(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_up, "run", commands := Commands({"pip": "connection broken\nERROR: no uv"}))

    with pytest.raises(set_up.SetUpError, match="cannot be reached"):
        set_up.install(CORE)

    assert len(commands.lines) == 1
