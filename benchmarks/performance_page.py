"""docs/performance.md, written from the JSON of the benchmarks: no figure in it is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any, Final

from service_api.errors import ConfigurationError

from .report import Report
from .scenarios.table import quantity

_PROJECT_DIR: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = _PROJECT_DIR / "benchmarks" / "results"
PAGE: Final = _PROJECT_DIR / "docs" / "performance.md"

_INTRODUCTION: Final = """# Performance

Written by `python -m benchmarks performance` from `benchmarks/results/*.json`; change the benchmarks, not this page.
`make bench` measures the first table anew; `make peers` and then
`python -m benchmarks compare --json benchmarks/results/compare.json` the second.

Members, client and harness share the cores of one machine. An echo is a message of a client that a majority has
recorded, that the service of every member has been given, and that the leader's service has sent back. *Level* is the
file sync level: 0 page cache, 1 fdatasync before anything is acknowledged. Checksums are on.
"""


def write_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page anew.

    Raises:
        ConfigurationError: there are no results.
    """
    page.write_text(make_page(results))


def make_page(results: Path) -> str:
    """Make the page of a directory with `table.json` and, where it was run, `compare.json`.

    Raises:
        ConfigurationError: there are no results.
    """
    parts = [_INTRODUCTION]
    table = _load(results / "table.json")
    if table is None:
        raise ConfigurationError(f"no results: expected {results / 'table.json'}, which `make bench` writes")
    parts += [_environment(table), "## Targets\n", _targets(table), _costs(table)]
    compared = _load(results / "compare.json")
    if compared is not None:
        parts += ["## Beside others\n", _comparison(compared)]
    return "\n".join(parts)


def _load(path: Path) -> Report | None:
    if not path.exists():
        return None
    report: Report = json.loads(path.read_text())
    return report


def _environment(report: Report) -> str:
    found, disk = report["environment"], report["rounds"]["disk"]
    probes = {name: median(figures[name] for figures in disk) for name in disk[0]}
    return (
        f"Measured at commit {found['git_commit']} with {found['python']}, uvloop {found['uvloop']}, on "
        f"{found['cores']} cores ({found['cpu_model']}), {found['kernel']}, {found['file_system']}. "
        "The disk alone: fdatasync of 4 KiB into a file that is written already "
        f"{probes['fdatasync_4k_p50_us']:,.0f} µs (p50), {probes['fdatasync_4k_p99_us']:,.0f} µs (p99); "
        f"a stream synced every 4 MiB {probes['stream_mb_per_s']:,.0f} MB/s. "
        f"{report['parameters']['rounds']} rounds, medians.\n"
    )


def _targets(report: Report) -> str:
    lines = ["| what | measured | target | reached |", "|---|---|---|---|"]
    for row in report["rows"]:
        reached = {True: "yes", False: "**no**", None: ""}[row["reached"]]
        lines.append(f"| {row['what']} | {quantity(row['value'], row['unit'])} | {row['target']} | {reached} |")
    return "\n".join(lines) + "\n"


def _costs(report: Report) -> str:
    """Where the processor's time goes at peak, and the whole distribution of latencies."""
    lines = [
        "Latencies and processor time of the same runs, the median round of each row:\n",
        "| what | p50 µs | p99 µs | p99.9 µs | max µs | CPU µs a message: leader | followers | client |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, reports in report["reports"].items():
        echoes = [found for found in reports if found["scenario"] == "echo"]
        if not echoes:
            continue
        found = sorted(echoes, key=lambda echo: echo["throughput_msgs_per_s"])[len(echoes) // 2]
        cpu = found["cpu_seconds_per_100k"]
        members = sorted((seconds * 10 for name, seconds in cpu.items() if name.startswith("member")), reverse=True)
        clients = sum(seconds * 10 for name, seconds in cpu.items() if name.startswith("client"))
        latencies = " | ".join(f"{found[figure]:,.0f}" for figure in ("p50_us", "p99_us", "p999_us", "max_us"))
        lines.append(f"| {name} | {latencies} | {members[0]:.2f} | {sum(members[1:]):.2f} | {clients:.2f} |")
    lines.append("\nThe leader is the member that took most.\n")
    return "\n".join(lines)


def _comparison(report: Report) -> str:
    depths = [str(depth) for depth in report["parameters"]["depths"]]
    parameters = report["parameters"]
    lines = [
        f"{parameters['payload']} bytes, {parameters['rounds']} rounds, every system started anew in each, "
        f"interleaved; medians at commit {report['environment']['git_commit']}. "
        "In brackets: how many times faster Quorate at level 1 is. Compare like with like: the second column says what "
        "an acknowledged message is.\n",
        "| system | an acknowledged message is | client | "
        + " | ".join(f"{depth} in flight" for depth in depths)
        + " |",
        "|---|---|---|" + "---|" * len(depths),
    ]
    for name, peer in report["peers"].items():
        if "missing" in peer:
            lines.append(f"| {name} | not installed | |" + " |" * len(depths))
            continue
        cells = [_cell(peer["depths"][depth]) for depth in depths]
        version = peer["version"].splitlines()[0]
        lines.append(f"| {name} ({version}) | {peer['durability']} | {peer['client']} | " + " | ".join(cells) + " |")
    lines += [f"\n{name} is not among them: {reason}." for name, reason in report["not_measurable"].items()]
    return "\n".join(lines) + "\n"


def _cell(figures: dict[str, Any]) -> str:
    p50 = figures["p50_us"]
    latency = "" if p50 is None else f", p50 {p50:,.0f} µs"
    ratio = figures.get("quorate_is_times_faster")
    return f"{figures['messages_per_s']:,}/s{latency}" + ("" if ratio is None else f" ({ratio:g}x)")
