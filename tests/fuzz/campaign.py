"""Coverage-guided campaigns: each target in turn, in a child process with limits, from a corpus that grows.

The working corpus and the findings lie in `.fuzz/`; what a fresh clone begins with is `tests/data/fuzz` (`corpus`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.fuzz.corpus import stored_inputs, write_inputs
from tests.fuzz.target import Target
from tests.places import ROOT

WORK: Final = ROOT / ".fuzz"
FINDINGS: Final = WORK / "findings"
INPUT_TIMEOUT_S: Final = 20
MEMORY_LIMIT_MB: Final = 2048
_RESTART_LIMIT: Final = 20
"""Ends of the child for a hang or for memory, before a target counts as done."""

_STATUS: Final = re.compile(r"#(\d+)\s+([A-Za-z]+)\s+cov: (\d+) ft: (\d+) corp: (\d+)/")
_DONE: Final = re.compile(r"stat::number_of_executed_units: (\d+)")


@dataclass(slots=True)
class TargetResult:
    """What a campaign did to one target."""

    name: str
    executions: int = 0
    seconds: float = 0.0
    coverage_before: int = 0
    """Places in the code that the corpus reached when the campaign began."""
    coverage: int = 0
    corpus_count: int = 0
    findings: int = 0


Show = Callable[[TargetResult], None]


def run_target(target: Target, *, seconds: float | None, executions: int | None, show: Show) -> TargetResult:
    """Run one target until so much time has passed or so many inputs were tried."""
    corpus = WORK / "corpus" / target.name
    FINDINGS.mkdir(parents=True, exist_ok=True)
    write_inputs(corpus, [*target.seeds(), *stored_inputs(target.name)], target.length_limit)
    known = set(FINDINGS.glob(f"{target.name}-*"))
    result, begun_s = TargetResult(target.name), time.monotonic()
    for _ in range(_RESTART_LIMIT):
        left_s = None if seconds is None else seconds - (time.monotonic() - begun_s)
        left = None if executions is None else executions - result.executions
        if (left_s is not None and left_s < 1) or (left is not None and left <= 0):
            break
        if _run_child(target, corpus, left_s, left, result, show):
            break
    result.seconds = time.monotonic() - begun_s
    result.findings = len({path.stem for path in set(FINDINGS.glob(f"{target.name}-*")) - known})
    return result


def _run_child(
    target: Target, corpus: Path, seconds: float | None, executions: int | None, result: TargetResult, show: Show
) -> bool:
    """Run the child once; True if it came to its end, False if an input ended it."""
    options = [
        f"-max_len={target.length_limit}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_LIMIT_MB}",
        f"-artifact_prefix={FINDINGS}/{target.name}-",
        "-print_final_stats=1",
        "-reload=0",
    ]
    if seconds is not None:
        options.append(f"-max_total_time={max(1, int(seconds))}")
    if executions is not None:
        options.append(f"-runs={executions}")
    command = [sys.executable, "-m", "tests.fuzz.child", target.name, str(FINDINGS), *options, str(corpus)]
    scratch = WORK / "scratch"  # libFuzzer ends the child without a word, which leaves its files
    scratch.mkdir(parents=True, exist_ok=True)
    before = result.executions
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            _note_line(line, before, result)
            show(result)
    shutil.rmtree(scratch, ignore_errors=True)
    return child.returncode == 0


def _note_line(line: str, before: int, result: TargetResult) -> None:
    if found := _STATUS.search(line):
        executions, event, coverage, _, count = found.groups()
        result.executions = before + int(executions)
        if event == "INITED" and not result.coverage_before:
            result.coverage_before = int(coverage)
        result.coverage, result.corpus_count = max(result.coverage, int(coverage)), int(count)
    elif found := _DONE.search(line):
        result.executions = before + int(found[1])


def rows_of(results: list[TargetResult]) -> Iterator[str]:
    """Lay the results out as a table for a terminal."""
    yield f"{'target':<24}{'executions':>12}{'per s':>9}{'coverage':>16}{'corpus':>8}{'findings':>10}"
    for result in results:
        rate = result.executions / result.seconds if result.seconds else 0
        coverage = f"{result.coverage_before} -> {result.coverage}"
        yield (
            f"{result.name:<24}{result.executions:>12,}{rate:>9,.0f}{coverage:>16}{result.corpus_count:>8}"
            f"{result.findings:>10}"
        )
    total = sum(result.executions for result in results)
    yield f"{'all':<24}{total:>12,}{'':>33}{sum(result.findings for result in results):>10}"


def as_rows(results: list[TargetResult]) -> list[dict[str, Any]]:
    """Give the results as they are stored."""
    return [asdict(result) for result in results]
