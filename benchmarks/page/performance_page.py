"""docs/performance.md and its plots, written from the JSON of the benchmarks: no figure in them is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trimaran.archive.report import words
from trimaran.service_api.errors import ConfigurationError

from ..scenarios.encryption import cells as encryption_cells
from ..scenarios.failover import HAND_OVER_GAP_P50_TARGET_MS, HAND_OVER_GAP_TARGET_MS
from ..scenarios.flood import flood_rows
from ..scenarios.scan import Dimension
from ..scenarios.table import alone_words, measured_words, with_comparison
from ..statistics.report import Report
from . import captions
from .aeron_section import aeron_section
from .figures import PARTS, cost_parts
from .groups_section import groups_section
from .many_sessions_section import many_sessions_plot, many_sessions_text
from .plots import PREFIX, Plot, comparison_plot, latency_plot, profile_plots, scan_plots
from .sections import calls_words
from .session_sections import fairness_section, growth_section, opening_section, profiles_section
from .state_section import state_section
from .summary import summary
from .tails_section import tails_section

_PROJECT_DIR: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _PROJECT_DIR / "benchmarks" / "results"
PAGE: Final = _PROJECT_DIR / "docs" / "performance.md"
IMAGES: Final = "images"
"""Where the plots are, beside the page."""

_INTRODUCTION: Final = """# Performance

`python -m trimaran.benchmarks performance` writes this page from `benchmarks/results/*.json`: change the benchmarks,
not this page. `make bench` measures the targets, how cost grows and the profile; `make bench-many` measures many
sessions, groups and a big state. The comparison is by itself: run `make peers` and then
`python -m trimaran.benchmarks compare --rounds 5 --json benchmarks/results/compare.json`.
Two more are measured by themselves: our key-value store beside etcd and Redis by
`python -m trimaran.benchmarks compare --workload kv --rounds 5 --json benchmarks/results/kv.json`, and messages as
classes beside bytes by `python -m trimaran.benchmarks typed --json benchmarks/results/typed.json`.
`python -m trimaran.benchmarks report benchmarks/results/*.json -o report.html` makes one page for a browser of the same
files.
Other runs, at another hour or on another machine, are in directories below, with a table of the targets for each.
How steady the tails are is measured by `python -m trimaran.benchmarks tails --json benchmarks/results/tails.json`.
The benchmarks `backup` and `restore` are on the page of [backups](backup.md#what-a-loss-costs).

Members, client and harness share the cores of one machine. An echo is a message of a client that a majority has
recorded, that the service of every member has been given, and that the leader's service has sent back. *Level* is the
file sync level: 0 page cache, 1 fdatasync before anything is acknowledged. Checksums are on. On one
machine the follower that no majority needs syncs up to 20 ms later than the others (`shared_machine`). *CPU* is
user and system time, by the kernel's count.
"""

_METHOD: Final = """\
The echo load at 1,024 in flight runs four times on one cluster: alone, which gives the processor time; beside `perf`,
which samples what is on a processor, and so divides that time between the kernel's system calls, the event loop, the
garbage collector and Python; beside `py-spy`, which samples the Python stack of the thread that holds the interpreter's
lock, and so divides Python's part by stage; and with its system calls counted. Which function is of which stage says
one table, `benchmarks/profiling/stages.py`. Of the runs with a profiler only shares are taken. What is known to be
askew: system calls that hold that lock weigh in Python's part, too, so that stages which send get a little more than is
theirs.
"""


def write_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page and its plots again, and remove plots that it has no more.

    Raises:
        ConfigurationError: there are no results.
    """
    text, plots = make_page(results)
    images = page.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for path in images.glob(f"{PREFIX}*.svg"):
        if path.name not in {plot.file_name for plot in plots}:
            path.unlink()
    for plot in plots:
        (images / plot.file_name).write_text(plot.svg(), encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def make_page(results: Path) -> tuple[str, list[Plot]]:
    """Make the page of a directory with `table.json` and, where they were run, `scan`, `compare` and `profile.json`.

    Directories in it are of other runs: each with a table, and its comparison if there is one.

    Raises:
        ConfigurationError: there are no results.
    """
    table = _table(results)
    if table is None:
        raise ConfigurationError(f"no results: expected {results / 'table.json'}, which `make bench` writes")
    plots = _Plots()
    reports = {path.name: found for path in sorted(results.glob("*.json")) if (found := _load(path)) is not None}
    parts = [_INTRODUCTION, summary(reports), _environment(table), "## Targets\n", _targets(table), _costs(table)]
    for directory in sorted(path for path in results.iterdir() if path.is_dir()):
        other = _table(directory)
        if other is not None:
            parts += [f"## Targets in another run, {directory.name}\n", _environment(other), _targets(other)]
    latencies = latency_plot(table)
    if latencies is not None:
        parts += ["## Latencies\n", plots.add([latencies])]
    parts += _many_sessions(reports, plots)
    tailed = _load(results / "tails.json")
    if tailed is not None:
        parts += ["## Steady tails\n", tails_section(tailed, plots.add)]
    scanned, counted = _load(results / "scan.json"), "sessions.json" in reports
    if scanned is not None:
        parts += ["## How cost grows\n", _scan(scanned, plots, without=_SESSION_DIMENSIONS if counted else ())]
    compared = _load(results / "compare.json") or next(iter(table["reports"].get("compare", [])), None)
    if compared is not None:
        parts += ["## Beside others\n", _comparison(compared, plots)]
    crowded = _load(results / "compare-sessions.json")
    if crowded is not None:
        plot = plots.add([many_sessions_plot(crowded)])
        parts += ["## Many sessions beside others\n", plot, many_sessions_text(crowded)]
    for name, title, write in _SECTIONS:
        if name in reports:
            parts += [f"## {title}\n", write(reports[name])]
    stored = _load(results / "kv.json")
    if stored is not None:
        parts += ["## The key-value store beside others\n", _key_value(stored)]
    typed = _load(results / "typed.json")
    if typed is not None:
        parts += ["## What classes cost\n", _typed(typed)]
    encrypted = _load(results / "encryption.json")
    if encrypted is not None:
        parts += ["## What TLS costs\n", _encryption(encrypted)]
    compiled = _load(results / "compiled.json")
    if compiled is not None:
        parts += ["## What a compiler would bring\n", _compiled(compiled)]
    handed_over = _load(results / "failover.json")
    if handed_over is not None and "hand_over" in handed_over:
        parts += ["## What a hand-over costs\n", _hand_over(handed_over)]
    flooded = _load(results / "flood.json")
    if flooded is not None:
        parts += ["## What hostile clients cost others\n", _floods(flooded)]
    profiled = _load(results / "profile.json")
    if profiled is not None:
        parts += ["## Where each microsecond goes\n", _profile(profiled, plots)]
    return "\n".join(parts), plots.all


_SECTIONS: Final = (
    ("aeron.json", "Beside Aeron's own Java", aeron_section),
    ("snapshots.json", "Snapshots of a big state", state_section),
    ("groups.json", "Groups", groups_section),
)
"""Sections without plots: the file, the heading, and what writes it."""

_SESSION_DIMENSIONS: Final = (Dimension.SESSIONS, Dimension.SHARED)


def _many_sessions(reports: Mapping[str, Report], plots: _Plots) -> list[str]:
    """The sections about many sessions, as far as they were measured."""
    parts = []
    if "sessions.json" in reports:
        parts += ["## Many sessions\n", growth_section(reports["sessions.json"], plots.add)]
    if "openings.json" in reports:
        parts += ["## Opening sessions and losing the leader\n", opening_section(reports["openings.json"])]
    if "fairness.json" in reports:
        parts += ["## A greedy session beside modest ones\n", fairness_section(reports["fairness.json"])]
    names = {1: "profile.json", 1_000: "profile-1000.json", 10_000: "profile-10000.json"}
    profiles = {count: reports[name] for count, name in names.items() if name in reports}
    if profiles and max(profiles) > 1:
        parts += ["## Where each microsecond goes with many sessions\n", profiles_section(profiles)]
    return parts


class _Plots:
    """The plots of the page so far."""

    def __init__(self) -> None:
        self.all: list[Plot] = []

    def add(self, plots: Iterable[Plot]) -> str:
        """Show plots, each below the sentence that says what there is to see."""
        lines = []
        for plot in plots:
            self.all.append(plot)
            lines.append(f"{plot.caption}\n\n![{plot.name}]({IMAGES}/{plot.file_name})\n")
        return "\n".join(lines)


def _table(results: Path) -> Report | None:
    """Read the table in a directory, with the ratios to others of the comparison beside it."""
    table, compared = _load(results / "table.json"), _load(results / "compare.json")
    return table if table is None or compared is None else with_comparison(table, compared)


def _load(path: Path) -> Report | None:
    if not path.exists():
        return None
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    return report


def _environment(report: Report) -> str:
    found = report["environment"]
    return (
        f"Measured at commit {found['git_commit']} with {found['python']}, uvloop {found['uvloop']}, checksums by "
        f"{found['checksums']}, on "
        f"{found['cores']} cores ({found['cpu_model']}), {found['kernel']}, {found['file_system']}. "
        f"{alone_words(report)} "
        f"{words.count(report['parameters']['rounds'], 'round')}: medians, then the least and the most.\n"
    )


def _targets(report: Report) -> str:
    lines = ["| what | measured | target | reached |", "|---|---|---|---|"]
    for row in report["rows"]:
        reached = {True: "yes", False: "**no**", None: ""}[row["reached"]]
        lines.append(f"| {row['what']} | {measured_words(row, report['rounds'])} | {row['target']} | {reached} |")
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
        parts = cost_parts(found["cpu_seconds_per_100k"], found.get("leader"))
        latencies = " | ".join(f"{found[figure]:,.0f}" for figure in ("p50_us", "p99_us", "p999_us", "max_us"))
        lines.append(f"| {name} | {latencies} | " + " | ".join(f"{parts[part]:.2f}" for part in PARTS) + " |")
    return "\n".join(lines) + "\n"


def _scan(report: Report, plots: _Plots, *, without: Sequence[Dimension]) -> str:
    seconds = report["parameters"]["seconds"]
    text = (
        f"One thing is varied at a time; the rest is 3 members, 32 bytes, 1,024 in flight, one session, level 1. "
        f"{seconds:g} s for each point, at commit {report['environment']['git_commit']}. What the log's length costs "
        "is measured with one member.\n"
    )
    missing = [
        f"\nNot measured: {failure['dimension']} {failure['value']:,}: {failure['reason']}.\n"
        for failure in report["failures"]
        if failure["dimension"] not in without
    ]
    return "\n".join([text, plots.add(scan_plots(report, without=without)), *missing])


def _comparison(report: Report, plots: _Plots) -> str:
    depths = [str(depth) for depth in report["parameters"]["depths"]]
    parameters = report["parameters"]
    drawn = [comparison_plot(report, depth) for depth in reversed(depths)]
    lines = [
        f"{parameters['payload']} bytes, {captions.comparison_rounds(report)}, every system started again in each; "
        f"medians at commit {report['environment']['git_commit']}, and where there are several rounds the slowest and "
        "the fastest; *x*: how many times faster Trimaran at level 1 is. The third column says who makes the load, and "
        f"its processor time for a message at {int(depths[-1]):,} in flight.\n",
        plots.add(plot for plot in drawn if plot is not None),
        "| system | an acknowledged message is | client | "
        + " | ".join(f"{int(depth):,} in flight" for depth in depths)
        + " |",
        "|---|---|---|" + "---|" * len(depths),
    ]
    for name, peer in report["peers"].items():
        if "missing" in peer:
            lines.append(f"| {name} | not installed | |" + " |" * len(depths))
            continue
        cells = [_cell(peer["depths"].get(depth)) for depth in depths]
        version = peer["version"].splitlines()[0]
        client_us = peer["depths"].get(depths[-1], {}).get("client_cpu_us")
        client = peer["client"] + ("" if client_us is None else f"; {client_us:.2f} µs")
        lines.append(f"| {name} ({version}) | {peer['durability']} | {client} | " + " | ".join(cells) + " |")
    lines += [f"\n{failure}" for failure in captions.comparison_failures(report)]
    lines += [f"\n{name} is not among them: {reason}." for name, reason in report["not_measurable"].items()]
    return "\n".join(lines) + "\n"


def _key_value(report: Report) -> str:
    """A table of puts and one of gets: a row for each load, a column for each system."""
    parameters, environment = report["parameters"], report["environment"]
    found = {name: peer for name, peer in report["peers"].items() if "missing" not in peer}
    lines = [
        f"Put and get of one key, values of {parameters['payload']} bytes, {captions.comparison_rounds(report)}, every "
        f"system started again in each; medians at commit {environment['git_commit']}, with a load average of "
        f"{environment['load_average'][0]:g} on {environment['cores']} cores before. *x*: how many times faster "
        "Trimaran at level 1 is. Servers and client share the cores. Again: `python -m trimaran.benchmarks compare "
        "--workload kv`.\n",
        *captions.compared_systems(report, "an acknowledged put"),
    ]
    lines += ["", "| load | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for load, label in report["loads"].items():
        cells = [_cell(peer["depths"].get(load)) for peer in found.values()]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    lines += [f"\n{failure}" for failure in captions.comparison_failures(report)]
    missing = [name for name in report["peers"] if name not in found]
    lines += [f"\nNot installed: {', '.join(missing)}."] * bool(missing)
    return "\n".join(lines) + "\n"


def _typed(report: Report) -> str:
    """A row for bytes, one for classes, and one for classes that run twice."""
    parameters, environment = report["parameters"], report["environment"]
    lines = [
        f"{parameters['members']} members, level {parameters['file_sync_level']}, requests with "
        f"{parameters['inflight']:,} in flight of one session, which the service counts; "
        f"{words.count(report['rounds'], 'round')} in turn, each on a cluster of its own; medians at commit "
        f"{environment['git_commit']}, with a load average of {environment['load_average'][0]:g} on "
        f"{environment['cores']} cores before. Again: `python -m trimaran.benchmarks typed`.\n",
        "| messages | requests a second | slowest to fastest | p50 | of bytes |",
        "|---|---|---|---|---|",
    ]
    for name, what in (("bytes", "bytes"), ("typed", "classes"), ("doubled", "classes, double execution")):
        runs, share = report["runs"][name], report["percent_of_bytes"][name]
        rate, p50_us = report["requests_per_s"][name], report["p50_us"][name]
        lines.append(f"| {what} | {rate:,} | {min(runs):,.0f} to {max(runs):,.0f} | {p50_us:,.0f} µs | {share:g} % |")
    return "\n".join(lines) + "\n"


def _encryption(report: Report) -> str:
    rounds = words.count(report["parameters"]["rounds"], "round")
    lines = [
        f"3 members, 32 bytes, level {report['parameters']['file_sync_level']}, {rounds} interleaved, everything "
        f"started again for each figure; medians at commit {report['environment']['git_commit']}, in brackets the "
        "slowest and the fastest. Members, client and harness share the cores. CPU is that of all processes for a "
        "message. Again: `python -m trimaran.benchmarks encryption`.\n",
        "| what | plain text | TLS | that is | target |",
        "|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join([row["what"], *encryption_cells(row)]) + " |" for row in report["rows"]]
    return "\n".join(lines) + "\n"


_COMPILED_CASES: Final = {
    "python": "Python, as it is",
    "modules": "the modules of the hot paths, compiled as they are",
    "functions": "Python, with the two hottest functions in C",
}
_WORTHWHILE: Final = 1.5
"""How many times less the whole would have to cost: less does not pay for wheels by system and Python version."""


def _compiled(report: Report) -> str:
    environment, times = report["environment"], report["times_python"]
    rounds = words.count(report["parameters"]["rounds"], "round")
    best = max(times, key=lambda case: times[case])
    verdict = "a compiled part pays" if times[best] >= _WORTHWHILE else "no compiled part is taken in"
    lines = [
        f"Cython compiles copies of the package, {rounds} of each case in turn; medians at commit "
        f"{environment['git_commit']}, with a load average of {environment['load_average'][0]:g} on "
        f"{environment['cores']} cores before. CPU is that of all processes of a cluster of three with one client and "
        "1,024 in flight, for a message; *times* is how many times less that is. Again: "
        "`python -m trimaran.benchmarks compiled`.\n",
        "| case | CPU a message | times | messages a second |",
        "|---|---|---|---|",
    ]
    for case, what in _COMPILED_CASES.items():
        rate, cpu_us = report["messages_per_s"][case], report["cpu_us_per_message"][case]
        lines.append(f"| {what} | {cpu_us:g} µs | {times[case]:g} | {rate:,} |")
    lines += [
        "\nEach path by itself, without sockets, disks or a cluster, in nanoseconds a message:\n",
        "| path | " + " | ".join(_COMPILED_CASES.values()) + " |",
        "|---" * (1 + len(_COMPILED_CASES)) + "|",
    ]
    for name, cases in report["path_ns"].items():
        figures = " | ".join(f"{cases[case]:,.0f}" for case in _COMPILED_CASES)
        lines.append(f"| {name.removesuffix('_ns').replace('_', ' ')} | {figures} |")
    lines.append(
        f"\nThe whole has to cost {_WORTHWHILE:g} times less before a compiled part is worth its wheels, a second way "
        f"to run and its tests. It costs {times[best]:g} times less at best ({_COMPILED_CASES[best]}), so "
        f"**{verdict}**. The hot paths read frames a column at a time by C functions of Python already; what remains "
        "is mostly the kernel, and calls of the service, which stay Python."
    )
    return "\n".join(lines) + "\n"


def _hand_over(report: Report) -> str:
    parameters, environment = report["parameters"], report["environment"]
    load = environment["load_average"][0]
    lines = [
        f"{parameters['members']} members, level {parameters['file_sync_level']}, one client that makes "
        f"{parameters['request_rate']:,.0f} requests a second; the longest time between two replies, at commit "
        f"{environment['git_commit']}, with a load average of {load:g} on {environment['cores']} cores before. "
        "Members and client share the cores and the disk. The service counts: no request was lost, and none ran twice. "
        "Again: `python -m trimaran.benchmarks failover --kinds hand_over,sigterm --runs 100`.\n",
        "| what | count | p50 | p99 | max | target |",
        "|---|---|---|---|---|---|",
    ]
    for kind, what in (("hand_over", "`trimaran leader transfer`"), ("sigterm", "SIGTERM of the leader")):
        if kind in report:
            row = report[kind]
            is_reached = row["p50_ms"] <= HAND_OVER_GAP_P50_TARGET_MS and row["max_ms"] <= HAND_OVER_GAP_TARGET_MS
            target = f"p50 {HAND_OVER_GAP_P50_TARGET_MS:g} ms, max {HAND_OVER_GAP_TARGET_MS:g} ms: "
            target += "reached" if is_reached else "not reached"
            cells = [f"{row[name]:g} ms" for name in ("p50_ms", "p99_ms", "max_ms")]
            lines.append("| " + " | ".join([what, str(row["count"]), *cells, target]) + " |")
    return "\n".join(lines) + "\n"


def _floods(report: Report) -> str:
    parameters, environment = report["parameters"], report["environment"]
    load = environment["load_average"][0]
    rounds = words.count(parameters["rounds"], "round")
    lines = [
        f"{parameters['members']} members{' with TLS' if parameters['tls'] else ''}, "
        f"{parameters['connections']:,} hostile connections to the leader, and beside them one honest client with 16 "
        f"requests in flight: medians of {rounds} at commit {environment['git_commit']}. Those that flood share the "
        f"cores with everybody else; the load average before was {load:g} on {environment['cores']} cores. Memory is "
        "the leader's. "
        "Again: `python -m trimaran.benchmarks flood`.\n",
        "| flood | open at once | p99 alone | p99 during | that is | memory before | at peak | status not answered |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in flood_rows(report)]
    return "\n".join(lines) + "\n"


def _cell(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "failed"
    said = [f"{figures['messages_per_s']:,}/s"]
    rates = [rate for rate in figures["rounds"] if rate is not None]
    if len(rates) > 1:
        said.append(f"{min(rates):,} to {max(rates):,}/s")
    if figures["p50_us"] is not None:
        said.append(f"p50 {figures['p50_us']:,.0f} µs")
    if "trimaran_is_times_faster" in figures:
        said.append(f"{figures['trimaran_is_times_faster']:g}x")
    return ", ".join(said)


def _profile(report: Report, plots: _Plots) -> str:
    lines = [_METHOD, f"{captions.bound(report)}\n"]
    for plot, (role, process) in zip(profile_plots(report), report["processes"].items(), strict=True):
        lines += [f"### The {role}\n", plots.add([plot])]
        calls = calls_words(role, report["system_calls_per_1000_messages"].get(role, {}))
        if calls:
            lines.append(f"{calls}\n")
        lines += ["| function | stage | µs a message |", "|---|---|---|"]
        lines += [f"| `{row['function']}` | {row['stage']} | {row['us']:.3f} |" for row in process["functions"]]
        lines.append("")
    return "\n".join(lines)
