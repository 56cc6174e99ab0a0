"""`python -m tests.hunt --minutes 60`: run tests that use processes or real time again and again, on a busy machine.

Beside the tests `--busy` processes do nothing but count. The hunt goes on where it stopped: passes, failures and
reasons of each test are kept in a file. A test is done after `FEW_PASSES` passes in a row, or `MANY_PASSES` if it has
ever failed or is newer than `--new-since`. At the end a table lists the tests by how often they failed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests.places import ROOT
from tests.runner.outcomes import OPTION, Outcome, read_outcomes
from tests.runner.verdict import failures
from trimaran.benchmarks.rig.processes import die_with_parent

PLACES: Final = (
    "tests/system",
    "tests/spark",
    "tests/notebooks",
    "tests/deploy",
    "tests/unit/cluster/runtime",
)
"""Folders of tests that start processes, a JVM or a browser, or use real time."""

STATE_FILE: Final = ROOT / ".tests" / "hunt.json"
MANY_PASSES: Final = 20
FEW_PASSES: Final = 5
REASONS_KEPT: Final = 3
BATCH_SIZE: Final = 40
"""Tests that one process runs, all of one file: what has run is known if the hunt is stopped."""


@dataclass
class Record:
    """What the hunt knows of one test."""

    passes: int = 0
    failures: int = 0
    passes_in_a_row: int = 0
    is_new: bool = False
    seconds: float = 0.0
    """Time of the last call."""

    reasons: list[str] = field(default_factory=list)
    """First lines of the last failures."""

    @property
    def runs_left(self) -> int:
        """Passes in a row that are missing."""
        needed = MANY_PASSES if self.failures or self.is_new else FEW_PASSES
        return max(0, needed - self.passes_in_a_row)

    def add(self, reason: str | None, seconds: float) -> None:
        """Count a run; `reason` is None if it passed."""
        self.seconds = seconds
        if reason is None:
            self.passes += 1
            self.passes_in_a_row += 1
            return
        self.failures += 1
        self.passes_in_a_row = 0
        self.reasons = [*self.reasons, reason][-REASONS_KEPT:]


def read_state(file: Path) -> dict[str, Record]:
    """Return what earlier hunts found; empty if there was none."""
    if not file.exists():
        return {}
    return {nodeid: Record(**record) for nodeid, record in json.loads(file.read_text(encoding="utf-8")).items()}


def write_state(file: Path, state: Mapping[str, Record]) -> None:
    """Keep what was found, whole or as it was before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({nodeid: asdict(record) for nodeid, record in sorted(state.items())}, indent=1))
    part.replace(file)


def choose_batch(state: Mapping[str, Record], nodeids: Sequence[str], draw: random.Random) -> list[str]:
    """Return tests of one file to run next; empty if all are done. Files whose tests failed come first."""
    waiting: dict[str, list[str]] = {}
    for nodeid in nodeids:
        if state[nodeid].runs_left:
            waiting.setdefault(nodeid.partition("::")[0], []).append(nodeid)
    if not waiting:
        return []
    suspects = [name for name, tests in waiting.items() if any(state[nodeid].failures for nodeid in tests)]
    file = draw.choice(sorted(suspects if suspects and draw.random() < 0.5 else waiting))
    return sorted(waiting[file], key=lambda nodeid: -state[nodeid].runs_left)[:BATCH_SIZE]


def count_outcomes(state: dict[str, Record], batch: Sequence[str], outcomes: Sequence[Outcome]) -> None:
    """Add the outcomes of a batch; a test that cannot run on this machine is done."""
    failed, seconds = failures(outcomes), {outcome.nodeid: outcome.seconds for outcome in outcomes}
    skipped = {outcome.nodeid for outcome in outcomes if outcome.outcome == "skipped"}
    for nodeid in batch:
        if nodeid in skipped:
            state[nodeid].passes_in_a_row = MANY_PASSES  # it cannot run here
        elif nodeid in seconds:
            state[nodeid].add(failed.get(nodeid), seconds[nodeid])
    for nodeid in failed.keys() - set(batch):
        raise SystemExit(f"{nodeid}: {failed[nodeid]}")  # a file that cannot be collected: nothing by chance


def table(state: Mapping[str, Record]) -> list[str]:
    """Return the lines of the table: who failed, by rate, then how much is left."""
    failed = [
        (record.failures / (record.passes + record.failures), nodeid, record)
        for nodeid, record in state.items()
        if record.failures
    ]
    failed.sort(key=lambda row: (-row[0], row[1]))
    runs = sum(record.passes + record.failures for record in state.values())
    left = sum(1 for record in state.values() if record.runs_left)
    lines = ["| rate | failed | passed | in a row | test | reason |", "|---|---|---|---|---|---|"]
    for rate, nodeid, record in failed:
        reason = record.reasons[-1].replace("|", "\\|")
        cells = (f"{rate:.1%}", record.failures, record.passes, record.passes_in_a_row, nodeid, reason)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [*lines, f"{runs:,} runs of {len(state):,} tests; {len(failed)} failed at least once; {left} not done"]


def new_tests(commit: str) -> set[tuple[str, str]]:
    """Return file and function of each test that was added since a commit."""
    command = ["git", "diff", "-U0", "--no-renames", commit, "--", "tests"]
    difference = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: set[tuple[str, str]] = set()
    gone: set[tuple[str, str]] = set()
    file = ""
    for line in difference.splitlines():
        if line.startswith(("+++ b/", "--- a/")):
            file = line[6:]
        elif match := re.match(r"([+-])\s*(?:async )?def (test_\w+)", line):
            (found if match[1] == "+" else gone).add((file, match[2]))
    return found - gone


def collect(arguments: Sequence[str]) -> list[str]:
    """Return the names of the tests that these arguments of pytest select.

    Raises:
        SystemExit: pytest could not collect them.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stdout + ended.stderr)
    return [line for line in ended.stdout.splitlines() if "::" in line]


@contextmanager
def busy_processes(count: int, limit_s: float) -> Iterator[None]:
    """Have processes count as fast as they can; they end with the block, with this process, and after the limit."""
    code = f"import time\nend = time.monotonic() + {limit_s}\nwhile time.monotonic() < end: sum(range(100_000))"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run_batch(batch: Sequence[str], printed_directory: Path) -> list[Outcome]:
    """Run tests in one process, or in the next one after that which died; return what was written of them.

    What pytest printed is kept where a test failed, in a file of its own.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "outcomes.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-n", "1", "--dist", "loadscope", f"{OPTION}={file}"]
        ended = subprocess.run(
            [*command, *batch], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
        outcomes = read_outcomes(file)
        if failures(outcomes):
            printed_directory.mkdir(parents=True, exist_ok=True)
            name = f"{Path(batch[0].partition('::')[0]).stem}-{time.time_ns() // 1_000_000}.txt"
            (printed_directory / name).write_bytes(ended.stdout)
            print(f"       printed: {printed_directory / name}", flush=True)
        return outcomes


def hunt(
    nodeids: Sequence[str], state: dict[str, Record], *, minutes: float, busy: int, file: Path, draw: random.Random
) -> None:
    """Run batches, at least one, until the time is over or every test is done; the state is written after each."""
    begun_s = time.monotonic()
    with busy_processes(busy, minutes * 60 + 3_600):
        while batch := choose_batch(state, nodeids, draw):
            outcomes = run_batch(batch, file.with_suffix(".failed"))
            if not outcomes:
                raise SystemExit(f"nothing ran of {batch[0]} and others: run it by hand")
            count_outcomes(state, batch, outcomes)
            write_state(file, state)
            failed = failures(outcomes)
            left = sum(1 for nodeid in nodeids if state[nodeid].runs_left)
            minute = (time.monotonic() - begun_s) / 60
            print(f"{minute:5.1f} min: {batch[0].partition('::')[0]}: {len(batch)} tests, {left} not done", flush=True)
            for nodeid, reason in failed.items():
                print(f"       failed: {nodeid}: {reason}", flush=True)
            if minute >= minutes:
                return


def mark_new(state: Mapping[str, Record], added: Iterable[tuple[str, str]]) -> None:
    """Have tests that are new pass as often as those that failed once."""
    names = set(added)
    for nodeid, record in state.items():
        path, _, name = nodeid.partition("::")
        record.is_new = (path, name.rpartition("::")[2].partition("[")[0]) in names


def main(arguments: Sequence[str] | None = None) -> None:
    """Hunt, then print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.hunt", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; 0: only print the table")
    parser.add_argument("--busy", type=int, default=4, help="processes that count beside the tests")
    parser.add_argument(
        "--new-since", metavar="COMMIT", help="tests added after it are run as often as those that failed"
    )
    parser.add_argument("--state", type=Path, default=STATE_FILE, help="file of passes and failures")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of the order of files")
    options, selection = parser.parse_known_args(arguments)
    state = read_state(options.state)
    if options.minutes:
        nodeids = collect(selection or PLACES)
        state.update({nodeid: Record() for nodeid in nodeids if nodeid not in state})
        if options.new_since:
            mark_new(state, new_tests(options.new_since))
        draw = random.Random(options.seed)
        hunt(nodeids, state, minutes=options.minutes, busy=options.busy, file=options.state, draw=draw)
    print("\n".join(table(state)))


if __name__ == "__main__":
    main()
