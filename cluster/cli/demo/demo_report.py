"""The report of a demo: figures, checks, the JSON file and the table."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .recordings import MemberRecording, are_identical, count_session_messages
from .request_stream import RequestStream


@dataclass(slots=True, frozen=True)
class Check:
    """One thing that must hold, and whether it did."""

    name: str
    holds: bool
    detail: str


@dataclass(slots=True, frozen=True)
class LeaderSeen:
    """The leader of one term."""

    leadership_term_id: int
    member_id: int


@dataclass(slots=True, frozen=True, kw_only=True)
class DemoReport:
    """The outcome of one demo. `failover_ms` is None if no leader was replaced."""

    requests: int
    replies: int
    allowed: int
    denied: int
    throughput_msgs_per_s: float
    p50_us: float
    p99_us: float
    p999_us: float
    failover_ms: float | None
    leaders: Sequence[LeaderSeen]
    recordings_identical: bool
    data_dir: Path
    resent: int
    member_count: int
    file_sync_level: int
    checks: Sequence[Check]

    @property
    def holds(self) -> bool:
        """Whether every check held."""
        return all(check.holds for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "requests": self.requests,
            "replies": self.replies,
            "allowed": self.allowed,
            "denied": self.denied,
            "throughput_msgs_per_s": round(self.throughput_msgs_per_s, 1),
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "p999_us": self.p999_us,
            "failover_ms": self.failover_ms,
            "leaders": [{"term": x.leadership_term_id, "member_id": x.member_id} for x in self.leaders],
            "recordings_identical": self.recordings_identical,
            "data_dir": str(self.data_dir),
            "resent": self.resent,
            "members": self.member_count,
            "file_sync_level": self.file_sync_level,
            "checks": [{"name": x.name, "holds": x.holds, "detail": x.detail} for x in self.checks],
        }

    def write_json(self, file: Path) -> None:
        """Write the report to a file."""
        file.write_text(json.dumps(self.as_json(), indent=2) + "\n", encoding="utf-8")


def percentile_us(sorted_ns: Sequence[int], percent: float) -> float:
    """The least value that `percent` of the sorted values do not exceed, in microseconds; 0 for none."""
    if not sorted_ns:
        return 0.0
    rank = math.ceil(len(sorted_ns) * percent / 100)
    return round(sorted_ns[max(rank, 1) - 1] / 1_000, 1)


def check_replies(stream: RequestStream, expected: Sequence[bytes]) -> list[Check]:
    """Hold the replies against the requests, and against those of a single-process run."""
    total, answered = len(stream.replies), stream.answered_count
    different = sum(1 for got, want in zip(stream.replies, expected, strict=True) if got != want)
    (allowed, denied), (want_allowed, want_denied) = (
        count_decisions(stream.replies),
        count_decisions(expected),
    )
    return [
        Check(
            "every request answered exactly once",
            answered == total,
            f"{answered:,} of {total:,}",
        ),
        Check(
            "replies equal to a single-process run",
            different == 0 and (allowed, denied) == (want_allowed, want_denied),
            f"{want_allowed:,} allowed, {want_denied:,} denied, {different:,} replies differ",
        ),
    ]


def check_recordings(
    recordings: Sequence[MemberRecording], *, cluster_session_id: int, request_count: int, quorum: int
) -> list[Check]:
    """Hold the members' logs against each other; a quorum of them must have every request."""
    identical = are_identical(recordings)
    complete = sum(
        1 for recording in recordings if count_session_messages(recording, cluster_session_id) >= request_count
    )
    end = min(recording.stop_position for recording in recordings)
    return [
        Check(
            "members' recordings identical",
            identical,
            f"{len(recordings)} members, {end:,} bytes up to the shortest end",
        ),
        Check(
            "every request recorded by a quorum",
            complete >= quorum,
            f"{complete} complete recordings, quorum {quorum}",
        ),
    ]


def check_failover(stream: RequestStream, leaders: Sequence[LeaderSeen]) -> Check:
    """A new leader must have answered, on the same session."""
    detail = " then ".join(f"member {x.member_id} (term {x.leadership_term_id})" for x in leaders)
    changed = len({leader.leadership_term_id for leader in leaders}) > 1
    return Check("a new leader carried on", changed and stream.failover_ns is not None, detail)


def count_decisions(replies: Sequence[bytes | None]) -> tuple[int, int]:
    """How many replies say allowed, and how many denied."""
    words = [reply.split(b"\t")[0] for reply in replies if reply is not None and b"\t" in reply]
    return words.count(b"allowed"), words.count(b"denied")


def print_demo_report(report: DemoReport, console: Console) -> None:
    """Show the figures, the checks, and what to type next."""
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in _rows(report):
        table.add_row(name, value)
    console.print()
    console.print(table)
    console.print()
    for check in report.checks:
        mark = "[green]ok    [/green]" if check.holds else "[bold red]FAILED[/bold red]"
        console.print(f"{mark} {check.name}: {check.detail}", highlight=False, soft_wrap=True)
    console.print()
    console.print(f"data   {report.data_dir}", highlight=False, soft_wrap=True)
    console.print("next   look at what was recorded:", highlight=False)
    for directory in sorted({path.parent for path in report.data_dir.rglob("archive.catalog")}):
        console.print(f"         {_command()} archive verify {directory}", highlight=False, soft_wrap=True)


def _command() -> str:
    """How to type `trimaran` here: by its name if that finds this installation, by its path otherwise."""
    script = Path(sys.executable).with_name("trimaran")
    found = shutil.which("trimaran")
    if found is not None and Path(found).absolute() == script:
        return "trimaran"
    with suppress(ValueError):
        return str(script.relative_to(Path.cwd()))
    return str(script)


def _rows(report: DemoReport) -> list[tuple[str, str]]:
    failover = "-" if report.failover_ms is None else f"{report.failover_ms:,.1f} ms"
    return [
        ("requests", f"{report.requests:,}"),
        ("replies", f"{report.replies:,}"),
        ("allowed", f"{report.allowed:,}"),
        ("denied", f"{report.denied:,}"),
        ("throughput", f"{report.throughput_msgs_per_s:,.0f} msg/s"),
        ("p50", f"{report.p50_us / 1_000:,.2f} ms"),
        ("p99", f"{report.p99_us / 1_000:,.2f} ms"),
        ("p99.9", f"{report.p999_us / 1_000:,.2f} ms"),
        ("fail-over", failover),
        *((f"term {x.leadership_term_id}", f"led by member {x.member_id}") for x in report.leaders),
    ]
