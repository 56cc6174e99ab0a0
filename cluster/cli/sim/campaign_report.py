"""The report of a campaign: counts, failures, and for each failure a command that runs it again."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .... import cluster
from ...testing.simulation.campaign import DETERMINISM_RULE, Totals, replay_arguments
from ...testing.simulation.faults.nemesis import KIND_NAMES
from ...testing.simulation.run import Options, RunOutcome
from ...testing.simulation.shrink import Shrunk
from .seed_job import SeedJob

REPORT_SCHEMA_VERSION: Final = 1

_FAILURES_SHOWN: Final = 20
_GIT_TIMEOUT_S: Final = 10.0
_NANOSECONDS_PER_HOUR: Final = 3_600_000_000_000
_FAULT_COLUMNS: Final = 3


@dataclass(slots=True)
class SimulationReport:
    """A campaign, as far as it has come."""

    job: SeedJob
    options: Options
    job_count: int
    commit: str | None = None
    """What `git describe` says of the checkout; None outside of one."""
    totals: Totals = field(default_factory=Totals)
    elapsed_s: float = 0.0
    is_interrupted: bool = False
    outcomes: list[RunOutcome] = field(default_factory=list)
    """Of every seed, without what failures carry along."""
    shrunk: dict[int, Shrunk] = field(default_factory=dict)
    """By seed."""

    @property
    def rate(self) -> float:
        """Simulated seconds per second, on all processes."""
        return self.totals.simulated_s / max(self.elapsed_s, 1e-9)

    def add(self, outcome: RunOutcome) -> None:
        """Count one seed."""
        self.totals.add(outcome)
        self.outcomes.append(outcome)

    def smallest(self, failed: RunOutcome) -> RunOutcome:
        """Return the smallest run known that fails like this one."""
        shrunk = self.shrunk.get(failed.seed)
        return failed if shrunk is None else shrunk.outcome

    def command(self, failed: RunOutcome) -> str:
        """Return the command that runs a failure again, the smallest one."""
        smallest = self.smallest(failed)
        is_run_twice = smallest.failure is not None and smallest.failure.rule == DETERMINISM_RULE
        extra = self.job.arguments(is_run_twice=is_run_twice)
        return shlex.join(replay_arguments(smallest.seed, smallest.options, extra=extra))


def find_commit() -> str | None:
    """Return the commit of the checkout that this code runs from, and whether files differ from it."""
    root = Path(cluster.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None


# --- as JSON


def as_json(report: SimulationReport, *, indent: int | None) -> str:
    """Write a report as one JSON object; without `indent`, on one line."""
    totals = report.totals
    return json.dumps(
        {
            "schema_version": REPORT_SCHEMA_VERSION,
            "commit": report.commit,
            "service": report.job.service,
            "interrupted": report.is_interrupted,
            "jobs": report.job_count,
            "elapsed_s": round(report.elapsed_s, 3),
            "rate": round(report.rate, 2),
            "seed_count": totals.seed_count,
            "simulated_hours": round(totals.simulated_ns / _NANOSECONDS_PER_HOUR, 6),
            "event_count": totals.event_count,
            "elections": totals.elections,
            "committed_bytes": totals.committed_bytes,
            "acknowledged_count": totals.acknowledged_count,
            "unknown_count": totals.unknown_count,
            "undecided_count": totals.undecided_count,
            "fired": totals.fired,
            "without": sorted(report.options.without),
            "failures": [_failure_as_dict(report, failed) for failed in totals.failures],
            "seeds": [_seed_as_dict(outcome) for outcome in report.outcomes],
        },
        indent=indent,
    )


def _failure_as_dict(report: SimulationReport, failed: RunOutcome) -> dict[str, Any]:  # JSON
    assert failed.failure is not None
    shrunk = report.shrunk.get(failed.seed)
    return {
        "seed": failed.seed,
        "rule": failed.failure.rule,
        "message": failed.failure.message,
        "at_s": failed.failure.at_s,
        "command": report.command(failed),
        "shrink_attempts": None if shrunk is None else len(shrunk.attempts),
        "shrink_changes": [] if shrunk is None else [attempt.change for attempt in shrunk.attempts if attempt.is_kept],
    }


def _seed_as_dict(outcome: RunOutcome) -> dict[str, Any]:  # JSON
    return {
        "seed": outcome.seed,
        "members": outcome.member_count,
        "groups": outcome.group_count,
        "sessions": outcome.session_count,
        "simulated_s": round(outcome.simulated_ns / 1e9, 3),
        "elections": outcome.elections,
        "acknowledged_count": outcome.acknowledged_count,
        "trace_hash": outcome.trace_hash,
        "failed": outcome.failure is not None,
    }


# --- for people


def campaign_table(report: SimulationReport) -> Group:
    """Draw a report: the counts, the faults, the failures."""
    failures = report.totals.failures
    parts: list[Any] = [_counts(report), "", _faults(report)]  # anything rich can draw
    for failed in failures[:_FAILURES_SHOWN]:
        parts += ["", *_failure(report, failed)]
    if len(failures) > _FAILURES_SHOWN:
        others = ", ".join(str(failed.seed) for failed in failures[_FAILURES_SHOWN:])
        parts += ["", Text(fill(f"and seeds {others}"))]
    parts += ["", _verdict(report)]
    return Group(*parts)


def _verdict(report: SimulationReport) -> Text:
    failed_count, seed_count = len(report.totals.failures), report.totals.seed_count
    begin = "interrupted: " if report.is_interrupted else ""
    if failed_count:
        return Text(f"{begin}{failed_count:,} of {seed_count:,} seed{_s(seed_count)} failed", style="bold red")
    return Text(
        f"{begin}{seed_count:,} seed{_s(seed_count)}, no failure",
        style="yellow" if report.is_interrupted else "bold green",
    )


def _counts(report: SimulationReport) -> Table:
    totals = report.totals
    processes = f"{report.job_count} process" + ("" if report.job_count == 1 else "es")
    table = _new_table()
    table.add_column(justify="left")
    table.add_column(justify="right")
    table.add_column()
    table.add_row("seeds", f"{totals.seed_count:,}", "")
    table.add_row("simulated", f"{totals.simulated_ns / _NANOSECONDS_PER_HOUR:,.3f}", "hours")
    table.add_row("events", f"{totals.event_count:,}", "")
    table.add_row("elections", f"{totals.elections:,}", "")
    table.add_row("committed", f"{totals.committed_bytes:,}", "bytes")
    table.add_row("acknowledged", f"{totals.acknowledged_count:,}", "operations")
    table.add_row("unknown", f"{totals.unknown_count:,}", "operations: the client will never learn")
    undecided = Text(f"{totals.undecided_count:,}", style="yellow" if totals.undecided_count else "")
    table.add_row("undecided", undecided, "searches for a linear order that reached their limit")
    table.add_row("rate", f"{report.rate:,.1f}", f"simulated s/s on {processes}, {report.elapsed_s:,.1f} s in all")
    if report.commit is not None:
        table.add_row("commit", "", report.commit)
    return table


def _faults(report: SimulationReport) -> Group:
    """Draw how often each kind struck: a campaign in which one never did has not tried it."""
    table = _new_table()
    for _ in range(_FAULT_COLUMNS):
        table.add_column()
        table.add_column(justify="right")
    cells: list[tuple[str, Text]] = []
    for name, count in report.totals.fired.items():
        if name in report.options.without:
            cells.append((name, Text("-", style="dim")))
        else:
            cells.append((name, Text(f"{count:,}", style="" if count else "bold yellow")))
    while cells:
        row, cells = cells[:_FAULT_COLUMNS], cells[_FAULT_COLUMNS:]
        table.add_row(*(part for cell in row for part in cell))
    note = "" if not report.options.without else "  (-: left out)"
    return Group(Text.assemble(("faults that struck, by kind", "bold"), note), table)


def _failure(report: SimulationReport, failed: RunOutcome) -> list[Any]:  # anything rich can draw
    """Return what was broken, and how to see it again."""
    smallest = report.smallest(failed)
    failure = smallest.failure
    assert failure is not None
    lines: list[Any] = [
        Text.assemble((f"seed {failed.seed}", "bold red"), f" at {failure.at_s:.6f} s: ", (failure.rule, "bold"))
    ]
    detail = failure.message.removeprefix(failure.rule).removeprefix(":").strip()
    lines += [Text(line) for line in _wrapped(detail)]
    shrunk = report.shrunk.get(failed.seed)
    if shrunk is not None:
        changes = [attempt.change for attempt in shrunk.attempts if attempt.is_kept]
        text = f"shrunk in {len(shrunk.attempts)} runs: {'; '.join(changes) or 'nothing could be left out'}"
        lines += [Text(line, style="dim") for line in _wrapped(text)]
        strikes = ", ".join(f"{name} {count}" for name, count in smallest.fired.items() if count)
        lines += [Text(line) for line in _wrapped(f"strikes left: {strikes or 'none'}")]
    where = "" if report.commit is None else f"    # at commit {report.commit}"
    lines.append(Text(f"  replay: {report.command(failed)}{where}", style="cyan", no_wrap=True, overflow="ignore"))
    return lines


def _wrapped(text: str) -> list[str]:
    """Break a text into indented lines that can be read; stacks keep theirs."""
    broken: list[str] = []
    for line in text.splitlines():
        broken += wrap(line, 110, initial_indent="    ", subsequent_indent="    ", break_long_words=True) or [""]
    return broken


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _new_table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)


def print_campaign_report(report: SimulationReport, console: Console) -> None:
    """Print a report for people; lines that are commands are never broken."""
    console.print(campaign_table(report), soft_wrap=False, crop=False)


def describe_outcome(outcome: RunOutcome) -> str:
    """Return one line about a seed."""
    failure = "" if outcome.failure is None else f"  FAILED {outcome.failure.rule}"
    sizes = f"  groups={outcome.group_count}" if outcome.group_count > 1 else ""
    sizes += f"  sessions={outcome.session_count}" if outcome.session_count else ""
    kinds = sum(1 for name in KIND_NAMES if outcome.fired.get(name))
    return (
        f"seed {outcome.seed}  trace={outcome.trace_hash or '-'}  members={outcome.member_count}{sizes}"
        f"  {outcome.simulated_ns / 1e9:.1f} s  elections={outcome.elections}"
        f"  acknowledged={outcome.acknowledged_count}  kinds of faults={kinds}{failure}"
    )
