"""One page for a browser from the JSON files of benchmarks: everything is in it, nothing is fetched, nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimaran.archive.report.page import Fact, Page, render_page

from .files import ResultSource, read_sources
from .sections import all_sections


def build_page(paths: Sequence[Path], *, title: str | None = None) -> str:
    """Make the HTML of a page from files that scenarios wrote.

    Raises:
        ConfigurationError: a file cannot be read or is none of theirs.
    """
    sources = read_sources(paths)
    return render_page(
        Page(
            title=title or "What the benchmarks say",
            sources=[("Files", ", ".join(source.name for source in sources)), *_machine(sources)],
            facts=_facts(sources),
            sections=all_sections(sources),
            remarks=[
                "An echo is a message that a majority has recorded, that every member's service has been given, and "
                "that the leader's service has sent back. Level 0: page cache; 1: fdatasync before anything is "
                "acknowledged.",
                "Processor time is the kernel's count of user and system time; latencies are those of clients, in an "
                "open loop from the intended send time.",
            ],
            maker="Trimaran benchmarks",
        )
    )


def _machine(sources: Sequence[ResultSource]) -> list[tuple[str, str]]:
    """What the first file says of the machine and of what ran on it."""
    facts = next((source.report["environment"] for source in sources if "environment" in source.report), None)
    if facts is None:
        return []
    return [
        ("Commit", str(facts.get("git_commit"))),
        ("Machine", f"{facts.get('cores')} cores, {facts.get('cpu_model')}, {facts.get('kernel')}"),
        ("Software", f"{facts.get('python')}, uvloop {facts.get('uvloop')}, {facts.get('checksums')}"),
        ("Files on", str(facts.get("file_system"))),
    ]


def _facts(sources: Sequence[ResultSource]) -> list[Fact]:
    """The numbers at the top: targets reached, the peak, its processor time."""
    facts = []
    for source in sources:
        report = source.report
        if source.scenario == "table":
            measured = [row for row in report["rows"] if row["reached"] is not None]
            reached = sum(1 for row in measured if row["reached"])
            facts.append(Fact("targets reached", f"{reached} of {len(measured)}", reached < len(measured)))
        elif source.scenario == "scan" and report["points"]:
            best = max(report["points"], key=lambda point: (point["members"] > 1, point["throughput_msgs_per_s"]))
            facts.append(Fact(f"messages a second, {_of_point(best)}", f"{best['throughput_msgs_per_s']:,}"))
            if report["failures"]:
                facts.append(Fact("points not measured", str(len(report["failures"])), True))
        elif source.scenario == "profile":
            facts.append(Fact("CPU of all processes for a message", f"{report['bound']['cpu_us_per_message']:.2f} µs"))
        elif source.scenario == "echo":
            facts.append(Fact("messages a second", f"{report['throughput_msgs_per_s']:,}"))
            facts.append(Fact("p99 latency", f"{report['p99_us']:,.0f} µs"))
        elif source.scenario == "compare":
            present = [peer for peer in report["peers"].values() if "missing" not in peer]
            failed = sum(1 for peer in present if peer.get("failures"))
            facts.append(Fact("systems compared", str(len(present))))
            if failed:
                facts.append(Fact("of these failed in some round", str(failed), True))
    return facts or [Fact("files", str(len(sources)))]


def _of_point(point: dict[str, object]) -> str:
    return f"{point['dimension']} {point['value']:,}"
