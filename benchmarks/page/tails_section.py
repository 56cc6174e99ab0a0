"""The part of docs/performance.md about steady tails: open loops, disturbances, slow callbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from trimaran.archive.report import words

from ..statistics.report import Report
from ..tails.disturbances import BY_COPY, CALM
from ..tails.moments import HOST, INSIDE, LATE, OTHERS, SHARED
from ..tails.open_loop import FIGURE_NAMES, FIGURES
from ..tails.parameters import SLOW_MS
from . import figures
from .plots import AddPlots, Plot

_CAUSES: Final = {
    LATE: "the load was sent late, for half of the latency or more",
    HOST: "the host gave the processors to others, for 5 % of their time or more",
    OTHERS: "other processes of this machine, or the kernel's own, had 20 % of the processors or more",
    SHARED: "the loop of a member or of the client was ready to run and did not for 40 % of the time or more",
    INSIDE: "a disk, or what a process itself did",
}


def tails_section(report: Report, add_plots: AddPlots) -> str:
    """Write what was measured of it; parts that were not are left out."""
    parts = [_introduction(report)]
    if "open_loop" in report:
        parts += ["### Open loop at half of the peak\n", _open_loop(report, add_plots)]
    if "disturbances" in report:
        parts += ["### Disturbances\n", _disturbances(report)]
    if "callbacks" in report:
        parts += ["### Slow callbacks\n", _callbacks(report)]
    return "\n".join(parts)


def tails_plot(runs: Sequence[Mapping[str, Any]]) -> Plot:
    """The percentile curves of all runs, with the one in the middle and the slowest."""
    curves = {str(number): run["latency_percentiles_us"] for number, run in enumerate(runs, start=1)}
    middle, slowest = _middle(runs), _slowest(runs)
    caption = (
        f"A line for each of {words.count(len(runs), 'run')}. Run {middle + 1} is in the middle, with p99.9 "
        f"{_ms(runs[middle]['p999_us'])}; run {slowest + 1} is the slowest, with {_ms(runs[slowest]['p999_us'])}."
    )
    data = {"curves": curves, "middle": middle, "slowest": slowest}
    return Plot("tails", caption, data, partial(figures.tail_runs, list(curves.values()), middle, slowest))


def _introduction(report: Report) -> str:
    parameters, environment = report["parameters"], report["environment"]
    return (
        f"{parameters['members']} members, {parameters['payload']} bytes, level {parameters['file_sync_level']}, "
        "members and client on the same cores. A latency counts from when a message was due, so a load that comes late "
        "hides nothing; how late it came is told beside. Measured at commit "
        f"{environment['git_commit']} in {report['took_s']:,} s, with a load average of "
        f"{environment['load_average'][0]:g} on {environment['cores']} cores before; their host took "
        f"{report['stolen_percent']:g} % of their time meanwhile. Again: "
        "`python -m trimaran.benchmarks tails --json benchmarks/results/tails.json`.\n"
    )


def _open_loop(report: Report, add_plots: AddPlots) -> str:
    found, runs = report["open_loop"], report["open_loop"]["runs"]
    rate = f"{report['rate_per_s']:,} messages a second"
    if "peak_per_s" in report:
        rate += f", half of a peak of {report['peak_per_s']:,} that was measured right before"
    lines = [
        f"{words.count(len(runs), 'run')} of {report['parameters']['seconds']:g} s at {rate}, each on a cluster of its "
        "own.\n",
        "| figure | median of the runs | least to most | target | reached |",
        "|---|---|---|---|---|",
    ]
    for goal in found["goals"]:
        name = goal["figure"]
        spread = f"{_ms(found['least'][name])} to {_ms(found['most'][name])}"
        reached = "yes" if goal["reached"] else "**no**"
        lines.append(
            f"| {FIGURE_NAMES[name]} | {_ms(found['median'][name])} | {spread} | {goal['target']} | {reached} |"
        )
    lines += ["", add_plots([tails_plot(runs)]), _runs(runs), _held(runs), _stages(runs)]
    return "\n".join(lines)


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """A row for each run: its figures, and what held up its slow moments."""
    lines = [
        f"*Sent late* is the load's own part, p99.9 and max. In a slow moment messages took {SLOW_MS:g} ms or longer; "
        "it is judged by what the kernel counted around it, and the first that holds is taken:\n",
        *(f"- *{cause}*: {meaning}" for cause, meaning in _CAUSES.items()),
        "",
        "| run | p50 | p99 | p99.9 | max | sent late | slow for | held up by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, run in enumerate(runs, start=1):
        slow, lag = run["slow"], run["send_lag"]
        causes = sorted(slow["causes"].items(), key=lambda item: -item[1]["total_ms"])
        said = ", ".join(f"{cause} {total['total_ms']:,.0f} ms ({total['count']:g})" for cause, total in causes)
        cells = [
            *(_ms(run[name]) for name in FIGURES),
            f"{_ms(lag['p999_us'])}, {_ms(lag['max_us'])}",
            f"{slow['total_ms']:,.0f} ms",
            said or "nothing",
        ]
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _held(runs: Sequence[Mapping[str, Any]]) -> str:
    """A row for each run: what waited, and the longest that each process was held up by one thing."""
    lines = [
        "*Waited* is how long the loop of a process was ready to run and did not, of all the time. *Held* is the "
        "longest that a loop was held by one thing, from 2 ms on, by the members' own tracer, and *sync* the longest "
        "fdatasync of a member: both in buckets of powers of two, so up to twice too long.\n",
        "| run | host took | others | waited: leader | followers | client | held: leader | followers | sync "
        "| client's collector |",
        "|" + "---|" * 10,
    ]
    for number, run in enumerate(runs, start=1):
        waited, seen, leader = run.get("waited_percent", {}), run["seen"], run["leader"]
        members = [name for name in seen if name != leader]
        syncs = [member["syncs"].get("fdatasync", {}).get("longest_ms", 0.0) for member in seen.values()]
        collected = [spans["longest_ms"] for spans in run["collections"].values()]
        cells = [
            f"{run.get('stolen_percent', 0):g} %",
            f"{run.get('others_percent', 0):g} %",
            f"{waited.get(leader, 0):g} %",
            ", ".join(f"{waited.get(name, 0):g} %" for name in members),
            ", ".join(f"{share:g} %" for name, share in waited.items() if name.startswith("client")),
            _longest([seen[leader]["loop"]] if leader in seen else []),
            _longest([seen[name]["loop"] for name in members]),
            f"{max(syncs, default=0):.1f} ms",
            f"{max(collected):.1f} ms" if collected else "none",
        ]
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _stages(runs: Sequence[Mapping[str, Any]]) -> str:
    """Where a request's time went on the leader, in the middle run and in the slowest."""
    chosen = {"the run in the middle": runs[_middle(runs)], "the slowest run": runs[_slowest(runs)]}
    stages = {name: run["seen"].get(run["leader"], {}).get("stages", {}) for name, run in chosen.items()}
    lines = [
        "Where the time of requests went on the leader, by its own metrics, in the same buckets:\n",
        "| stage | " + " | ".join(f"{name}: p99 | longest" for name in chosen) + " |",
        "|---|" + "---|" * (2 * len(chosen)),
    ]
    for stage in dict.fromkeys(name for found in stages.values() for name in found):
        cells = []
        for found in stages.values():
            spans = found.get(stage)
            cells += ["", ""] if spans is None else [f"{spans['p99_ms']:.2f} ms", f"{spans['longest_ms']:.1f} ms"]
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _disturbances(report: Report) -> str:
    rows = report["disturbances"]
    copying = (
        f" *{BY_COPY.capitalize()}*: the service yields its state (`snapshot_messages`), a forked copy of each "
        "member's process writes it, and delivery goes on as soon as there is a copy."
    )
    lines = [
        f"The same load, {report['rate_per_s']:,} messages a second, on a cluster of its own for each: "
        f"{report['parameters']['calm_s']:g} s of calm, then the disturbance and 2 s behind it. *Slow until* is how "
        f"long after its beginning the last reply came that took {SLOW_MS:g} ms or longer, within what is looked at."
        f"{copying if any(BY_COPY in row['what'] for row in rows) else ''}\n",
        "| what | calm p99.9 | calm max | p99.9 | max | slow until | besides |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        calm, during = row[CALM], row["during"]
        cells = [_ms(calm["p999_us"]), _ms(calm["max_us"]), _ms(during["p999_us"]), _ms(during["max_us"])]
        count = f", {row['count']} times" if row["count"] > 1 else ""
        lines.append(
            f"| {row['what']}{count} | " + " | ".join([*cells, f"{row['slow_until_ms']:,.0f} ms", _besides(row)]) + " |"
        )
    return "\n".join(lines) + "\n"


def _besides(row: Mapping[str, Any]) -> str:
    said = {
        "delivery_stop_ms": "a member's delivery stood still for {:,} ms",
        "taken_ms": "the last member had it after {:,} ms",
        "returned_ms": "it had all of the log after {:,} ms",
    }
    return ", ".join(text.format(row[name]) for name, text in said.items() if name in row)


def _callbacks(report: Report) -> str:
    limit_ms = report["heartbeat_timeout_ms"]
    lines = [
        "One client's message makes the service wait on every member; other clients' messages wait with it. A "
        "callback holds the loop of its member, so that a follower hears nothing and a leader says nothing: one that "
        f"takes as long as `leader_heartbeat_timeout_ms`, {limit_ms:,} ms by default, may cost the leader its term. "
        "After two callbacks of 10 ms within ten seconds a leader tells its followers of a commit before it runs the "
        "callback itself, for ten seconds, so that theirs run beside it; before that others may wait twice as long.\n",
        "| callback | each | calm p50 | calm p99 | calm max | p50 | p99 | max | elections |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["callbacks"]:
        what, each = f"{row['callback_ms']:g} ms", f"{row['interval_s']:g} s"
        if "during" not in row:
            lines.append(f"| {what} | {each} | | | | | | | {row['elections']} |")
            continue
        cells = [_ms(row[part][name]) for part in (CALM, "during") for name in ("p50_us", "p99_us", "max_us")]
        lines.append(f"| {what} | {each} | " + " | ".join([*cells, str(row["elections"])]) + " |")
    return "\n".join(lines) + "\n"


def _middle(runs: Sequence[Mapping[str, Any]]) -> int:
    """The run whose p99.9 is in the middle; of two the slower."""
    return sorted(range(len(runs)), key=lambda number: runs[number]["p999_us"])[len(runs) // 2]


def _slowest(runs: Sequence[Mapping[str, Any]]) -> int:
    return max(range(len(runs)), key=lambda number: runs[number]["p999_us"])


def _longest(loops: Sequence[Mapping[str, Any]]) -> str:
    """Name what held a loop for longest."""
    spans = [(found["longest_ms"], culprit) for loop in loops for culprit, found in loop.items()]
    return "nothing" if not spans else "{1} {0:.0f} ms".format(*max(spans))


def _ms(us: float) -> str:
    if not us:
        return "no message"
    return f"{us / 1e3:,.2f} ms" if us < 10_000 else f"{us / 1e3:,.1f} ms"
