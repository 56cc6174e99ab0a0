"""The part of docs/performance.md about many sessions: growth, opening and fail-over, fairness, where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from trimaran.archive.report import words

from ..scenarios.openings import FAILOVER_MAX_TARGETS_MS, FAILOVER_P50_TARGETS_MS, OPENING_TARGETS_S
from ..scenarios.scan import Dimension
from ..statistics.report import Report
from . import figures
from .figures import cost_parts
from .many_sessions_section import EFFICIENCY_TARGETS
from .measured import measured_at, reached_words
from .plots import AddPlots, Plot
from .sections import scan_points

CONNECTIONS: Final = {Dimension.SESSIONS: "their own", Dimension.SHARED: "shared"}
FAIRNESS_TARGET: Final = 3.0
"""How many times longer a modest client's p99 may be beside a greedy client."""

_SMALL_SHARE: Final = 0.02
"""Stages with less than this of every process's time are shown as one."""
_FUNCTIONS: Final = 6
_EACH_SIDE: Final = {False: "their own", True: "shared"}


def growth_section(report: Report, add_plots: AddPlots) -> str:
    """Write how cost and memory grow with sessions, on connections of their own and on shared ones."""
    parameters = report["parameters"]
    lines = [
        f"Echoes of {parameters['payload']} bytes, 3 members, level {parameters['file_sync_level']}, "
        f"{parameters['inflight']:,} in flight over all sessions and at least one on each; from 10,000 sessions on of "
        f"several client processes. {parameters['seconds']:g} s for each row, {measured_at(report['environment'])}. "
        "*CPU* is processor time of all processes for a message, which in this load is a request and its reply. "
        "*Efficiency* is how many messages a processor second does, in percent of one session on a connection of its "
        "own. Memory is what a "
        "session adds to a process, all client processes together. Again: `python -m trimaran.benchmarks scan "
        "--only sessions,shared --inflight 1000 --seconds 4 --json benchmarks/results/sessions.json`.\n",
        "| sessions | connections | messages/s | p50 | p99 | CPU: leader | a follower | clients | all | efficiency "
        "| target | KiB a session: leader | a follower | clients |",
        "|" + "---|" * 14,
    ]
    for dimension in CONNECTIONS:
        points = scan_points(report, dimension)
        least = (scan_points(report, Dimension.SESSIONS) or points)[:1]
        lines += [_growth_row(point, dimension, points[0], least[0]) for point in points]
    lines += [
        f"\nNot measured: {failure['value']:,} sessions, {failure['dimension']}: {failure['reason']}."
        for failure in report["failures"]
        if failure["dimension"] in tuple(CONNECTIONS)
    ]
    return "\n".join([*lines, "", add_plots([growth_plot(report)])])


def growth_plot(report: Report) -> Plot:
    """Rate, processor time, p99 and memory by number of sessions, with a line for each kind of connections."""
    data = {
        CONNECTIONS[dimension]: [
            {
                "sessions": point["value"],
                "messages_per_s": point["throughput_msgs_per_s"],
                "cpu_us": sum(point["cpu_seconds_per_100k"].values()) * 10,
                "p99_ms": point["p99_us"] / 1000,
                **{
                    part: size / 2**20
                    for part, size in resident_parts(point["resident_bytes"], point["leader"]).items()
                },
            }
            for point in scan_points(report, dimension)
        ]
        for dimension in CONNECTIONS
    }
    shown = {name: points for name, points in data.items() if points}
    most = max((point["sessions"] for points in shown.values() for point in points), default=1)
    caption = (
        f"From one session to {most:,}, on logarithmic axes; memory is that of a whole process, or of all clients."
    )
    return Plot("sessions", caption, shown, partial(figures.session_growth, shown))


def resident_parts(resident_bytes: Mapping[str, int], leader: str) -> dict[str, float]:
    """Resident memory by part: the leader, a follower, all clients together."""
    followers = [size for name, size in resident_bytes.items() if name.startswith("member") and name != leader]
    return {
        "leader": float(resident_bytes[leader]),
        "follower": sum(followers) / max(len(followers), 1),
        "clients": float(sum(size for name, size in resident_bytes.items() if name.startswith("client"))),
    }


def session_bytes(point: Report, one: Report) -> dict[str, float]:
    """What one more session adds to each part: the growth since one session, divided by the sessions since then."""
    after, before = (resident_parts(each["resident_bytes"], each["leader"]) for each in (point, one))
    before["clients"] *= point["client_processes"] / one["client_processes"]
    added = point["value"] - one["value"]
    return {part: max(after[part] - before[part], 0.0) / added for part in after} if added > 0 else {}


def efficiency_percent(point: Report, one: Report) -> float:
    """How many messages a processor second does with these sessions, in percent of what it does with one."""
    spent, least = (sum(each["cpu_seconds_per_100k"].values()) for each in (point, one))
    return float(100 * least / spent) if spent else 0.0


def _growth_row(point: Report, dimension: Dimension, one: Report, least: Report) -> str:
    """Write a point: memory beside `one` session of its kind, efficiency beside the `least` load of all."""
    parts = cost_parts(point["cpu_seconds_per_100k"], point["leader"])
    follower_us = parts["followers"] / max(point["members"] - 1, 1)
    costs = (parts["leader"], follower_us, parts["clients"], sum(parts.values()))
    percent, wanted = efficiency_percent(point, least), EFFICIENCY_TARGETS.get(point["value"])
    added = session_bytes(point, one)
    cells = [
        f"{point['value']:,}",
        CONNECTIONS[dimension],
        f"{point['throughput_msgs_per_s']:,}",
        f"{point['p50_us'] / 1000:,.1f} ms",
        f"{point['p99_us'] / 1000:,.1f} ms",
        *(f"{us:.1f} µs" for us in costs),
        f"{percent:.0f} %",
        "" if wanted is None else reached_words(f"{wanted:g} %", percent >= wanted),
        *(f"{added[part] / 1024:.1f}" if added else "" for part in ("leader", "follower", "clients")),
    ]
    return "| " + " | ".join(cells) + " |"


def opening_section(report: Report) -> str:
    """Write what it takes to open and to hold sessions, and until all are answered after the leader was killed."""
    rounds = words.count(report["parameters"]["rounds"], "round")
    highest = max((case["load_average_before"] for case in report["cases"]), default=0.0)
    lines = [
        "Sessions are opened, 64 at a time by each client process. When they are connected to all members they rest "
        f"for {report['parameters']['rest_s']:g} s, and are asked once each right after the leader is killed: the wait "
        f"is from the kill to the answer of the next leader. Medians of {rounds}, "
        "the least and the most in brackets. Members, clients and harness share the cores; "
        f"{measured_at(report['environment'])}, and of at most {highest:g} before a case. Again: "
        "`python -m trimaran.benchmarks openings --rounds 3 --json benchmarks/results/openings.json`.\n",
        "| sessions | connections | password | open in | target | CPU a session: leader | client | at rest: leader "
        "| client | answered after the kill: p50 | p99 | max | target |",
        "|" + "---|" * 13,
    ]
    for case in report["cases"]:
        opened, rested, failed_over = case["opening"], case["a second at rest"], case["failover"]
        cells = [
            f"{case['sessions']:,}",
            _EACH_SIDE[case["share"]],
            "yes" if case["password"] else "no",
            f"{opened['s']:.1f} s{_spread(case, 'opening s', 1)}",
            _opening_target(case),
            *(f"{opened[name]:,.0f} µs" for name in ("leader_us", "client_us")),
            *(f"{rested[name]:.1f} µs/s" for name in ("leader_us", "client_us")),
            *(
                f"{failed_over[name]:,.0f} ms{_spread(case, f'failover {name}', 0)}"
                for name in ("p50_ms", "p99_ms", "max_ms")
            ),
            _failover_target(case),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    for failure in report["failures"]:
        said = f"{failure['sessions']:,} sessions, connections: {_EACH_SIDE[failure['share']]}"
        lines.append(f"\nNot measured: {said}{', password' * failure['password']}: {failure['reason']}.")
    return "\n".join(lines) + "\n"


def _spread(case: Report, figure: str, digits: int) -> str:
    """Say the least and the most of several rounds."""
    rounds = case["rounds_of"][figure]
    return f" ({rounds[0]:,.{digits}f} to {rounds[-1]:,.{digits}f})" if len(rounds) > 1 else ""


def _opening_target(case: Report) -> str:
    limit_s = OPENING_TARGETS_S.get(case["sessions"], {}).get(case["password"])
    return "" if limit_s is None else reached_words(f"{limit_s:g} s", case["opening"]["s"] <= limit_s)


def _failover_target(case: Report) -> str:
    said = []
    for name, figure, targets in (
        ("p50", "p50_ms", FAILOVER_P50_TARGETS_MS),
        ("max", "max_ms", FAILOVER_MAX_TARGETS_MS),
    ):
        limit_ms = targets.get(case["sessions"])
        if limit_ms is not None:
            said.append(reached_words(f"{name} {limit_ms:,.0f} ms", case["failover"][figure] <= limit_ms))
    return ", ".join(said)


def fairness_section(report: Report) -> str:
    """Write what a greedy session costs modest ones."""
    parameters = report["parameters"]
    lines = [
        f"{parameters['sessions']:,} modest sessions of one process with one message in flight each, alone and beside "
        f"one session of another process that keeps many in flight, without a pause; level "
        f"{parameters['file_sync_level']}, {measured_at(report['environment'])}. Again: `python -m trimaran.benchmarks "
        f"fairness --sessions {parameters['sessions']} --json benchmarks/results/fairness.json`.\n",
        "| greedy session | its messages/s | modest ones: p50 | p99 | max | p99 is times that alone | target |",
        "|" + "---|" * 7,
    ]
    for name, figure in (("none", "alone"), *((f"{n:,} in flight", f"beside {n} in flight,") for n in _depths(report))):
        row = report[figure]
        times = row.get("p99_times_alone")
        cells = [
            name,
            f"{row['greedy_per_s']:,}" if "greedy_per_s" in row else "",
            *(f"{row[latency] / 1000:,.1f} ms" for latency in ("p50_us", "p99_us", "max_us")),
            "" if times is None else f"{times:g}",
            "" if times is None else reached_words(f"{FAIRNESS_TARGET:g}", times <= FAIRNESS_TARGET),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _depths(report: Report) -> Sequence[int]:
    return [int(depth) for depth in report["parameters"]["depths"]]


def profiles_section(profiles: Mapping[int, Report]) -> str:
    """Write where the time goes with many sessions, beside one; `profiles` are by number of sessions, growing."""
    named = {count: f"{count:,} session{'s' * (count > 1)}" for count in profiles}
    lines = [
        "Microseconds a message by stage, measured as in [the profile of one session](#where-each-microsecond-goes); "
        "one message is in flight on each of many sessions, and 1,024 on one alone. Sessions have connections of their "
        "own. The client's columns are all client processes together, by the shares of the first. Again: `python -m "
        "trimaran.benchmarks profile --sessions 1000 --json benchmarks/results/profile-1000.json`.\n",
        "| | " + " | ".join(named.values()) + " |",
        "|---|" + "---|" * len(named),
        "| messages a second | "
        + " | ".join(f"{report['throughput_msgs_per_s']:,}" for report in profiles.values())
        + " |",
        "| system calls for 1,000 messages | "
        + " | ".join(_system_calls(report) for report in profiles.values())
        + " |",
        "| measured | " + " | ".join(measured_at(report["environment"]) for report in profiles.values()) + " |",
    ]
    for role in dict.fromkeys(role for report in profiles.values() for role in report["processes"]):
        lines += [f"\n#### The {role}\n", _stage_table(role, profiles, named), _function_table(role, profiles, named)]
    return "\n".join(lines) + "\n"


def _system_calls(report: Report) -> str:
    calls = report["system_calls_per_1000_messages"].get("all processes", {}).get("all")
    return "not counted" if calls is None else f"{calls:,.0f}"


def _stage_table(role: str, profiles: Mapping[int, Report], named: Mapping[int, str]) -> str:
    """A row for each stage, a column for each number of sessions; what is small everywhere is one row."""
    processes: dict[int, Any] = {count: report["processes"].get(role) for count, report in profiles.items()}
    found = {
        count: {} if process is None else {_stage_name(row): float(row["us"]) for row in process["stages"]}
        for count, process in processes.items()
    }
    totals = {count: 0.0 if process is None else float(process["cpu_us"]) for count, process in processes.items()}
    names = dict.fromkeys(name for stages in found.values() for name in stages)
    large = [
        name
        for name in names
        if any(stages.get(name, 0.0) >= _SMALL_SHARE * totals[count] for count, stages in found.items())
    ]
    large.sort(key=lambda name: -max(stages.get(name, 0.0) for stages in found.values()))
    rows = {name: {count: stages.get(name, 0.0) for count, stages in found.items()} for name in large}
    rows["smaller ones"] = {
        count: sum(us for name, us in stages.items() if name not in rows) for count, stages in found.items()
    }
    rows["**all**"] = totals
    lines = ["| stage | " + " | ".join(named.values()) + " |", "|---|" + "---|" * len(named)]
    for name, values in rows.items():
        lines.append(f"| {name} | " + " | ".join(f"{values[count]:.2f}" for count in named) + " |")
    return "\n".join(lines)


def _stage_name(row: Report) -> str:
    return f"{row['stage']}: {row['detail']}" if row["detail"] else str(row["stage"])


def _function_table(role: str, profiles: Mapping[int, Report], named: Mapping[int, str]) -> str:
    """The functions that take most with the most sessions, and what they take with fewer."""
    most = max(profiles)
    process = profiles[most]["processes"].get(role)
    if process is None or not process["functions"]:
        return ""
    lines = [
        f"\nPython functions that take most with {named[most]}:\n",
        "| function | stage | µs a message |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{row['function']}` | {row['stage']} | {row['us']:.2f} |" for row in process["functions"][:_FUNCTIONS]
    ]
    return "\n".join(lines)
