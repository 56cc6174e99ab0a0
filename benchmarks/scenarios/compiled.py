"""Compiled: the hot paths in Python, compiled as they are, and with two functions in C, in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from json import loads
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from trimaran.service_api.errors import ConfigurationError

from ..compiled.build import build_functions, build_modules
from ..machine.environment import describe
from ..options import JsonOption
from ..statistics.report import Report, finish, print_table, progress_line

CASES: Final = ("python", "modules", "functions")
"""As it is; modules of the hot paths compiled; Python with the two hottest functions in C."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CompiledParameters:
    """What one benchmark does.

    Raises:
        ConfigurationError: values that make no run.
    """

    rounds: int = 5
    messages: int = 300_000
    """Echoes in a round of each case, with 1,024 in flight."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.messages < 10_000:
            raise ConfigurationError(
                f"rounds={self.rounds} messages={self.messages} expected at least 1 and 10000: raise them"
            )


def run(parameters: CompiledParameters) -> Report:
    """Measure every case, `rounds` times in turn: each hot path by itself, then echoes of a cluster; medians count.

    Raises:
        ConfigurationError: the compiled copies cannot be built here.
    """
    paths: dict[str, list[Report]] = {case: [] for case in CASES}
    echoes: dict[str, list[Report]] = {case: [] for case in CASES}
    environment = describe(None)
    with tempfile.TemporaryDirectory(prefix="trimaran-compiled-") as made, progress_line(parameters.rounds) as progress:
        progress.describe("compiling")
        directory = Path(made)
        found = {
            "python": None,
            "modules": build_modules(directory / "modules"),
            "functions": build_functions(directory / "functions"),
        }
        progress.describe("measuring")
        for number in range(parameters.rounds):
            for case, place in found.items():
                paths[case].append(_measure(place, directory, "codec", "--messages", "50000", "--rounds", "3"))
                echoes[case].append(_measure(place, directory, "echo", "--messages", str(parameters.messages)))
            progress.update(number + 1)
    names = [name for name in paths["python"][0] if name.endswith("_ns") and name != "rounds_ns"]
    cpu_us = {case: median(_cpu_us(each) for each in found) for case, found in echoes.items()}
    rates = {case: median(each["throughput_msgs_per_s"] for each in found) for case, found in echoes.items()}
    return {
        "scenario": "compiled",
        "path_ns": {name: {case: median(each[name] for each in paths[case]) for case in CASES} for name in names},
        "messages_per_s": {case: round(rate) for case, rate in rates.items()},
        "cpu_us_per_message": {case: round(value, 2) for case, value in cpu_us.items()},
        "times_python": {case: round(cpu_us["python"] / value, 2) for case, value in cpu_us.items()},
        "parameters": asdict(parameters),
        "environment": environment,
    }


def _cpu_us(report: Report) -> float:
    """Processor time of all processes for one message."""
    return float(sum(report["cpu_seconds_per_100k"].values()) * 10)


def _measure(place: Path | None, directory: Path, *arguments: str) -> Report:
    """Run a scenario in a process that imports the package from `place`, or as this one does; give its report."""
    path = directory / "report.json"
    changed = {} if place is None else {"PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-m", "trimaran.benchmarks", *arguments, "--json", str(path)],
        env={**os.environ, **changed},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigurationError(f"{' '.join(arguments)} from {place or 'here'} failed: {done.stderr.strip()[-500:]}")
    report: Report = loads(path.read_text(encoding="utf-8"))
    return report


def compiled(
    rounds: Annotated[int, typer.Option(help="Rounds of each case, in turn; the medians count.")] = 5,
    messages: Annotated[int, typer.Option(help="Echoes to measure in a round of each case.")] = 300_000,
    json: JsonOption = None,
) -> None:
    """What a compiler would bring: the hot paths in Python, compiled as they are, and two functions in C."""
    report = run(CompiledParameters(rounds=rounds, messages=messages))
    finish(report, json, "compiled: a cluster of three with 1,024 in flight")
    paths = {name: " / ".join(map(str, cases.values())) for name, cases in report["path_ns"].items()}
    print_table(f"each path alone, in nanoseconds a message: {' / '.join(CASES)}", dict(paths))
