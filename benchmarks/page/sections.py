"""The sections of the page, in its order: of each the file, the heading, what it says in a line, and its Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...archive.report import words
from ..scenarios import compare
from ..scenarios.compare_sessions import figure_cells
from ..scenarios.encryption import cells as encryption_cells
from ..scenarios.failover import HAND_OVER_GAP_P50_TARGET_MS, HAND_OVER_GAP_TARGET_MS
from ..scenarios.flood import flood_rows
from ..scenarios.opening import FAILOVER_MAX_TARGETS_MS, FAILOVER_P50_TARGETS_MS, OPENING_TARGETS_S
from ..scenarios.scan import Dimension
from ..scenarios.snapshots import LOAD_TARGET_S, STOP_TARGETS_MS, TARGET_ORDERS
from ..scenarios.table import alone_words, judged_row, measured_words, ratios
from ..scenarios.typed import BATCH
from ..statistics.report import Report
from .markdown import again, by_name, cost_parts, measured_at, ms, table, target
from .plots import Plot
from .tails import percentile_plot, say_tails, write_tails

Blocks: TypeAlias = Iterable[str | Plot]


@dataclass(slots=True, frozen=True)
class PageSection:
    """A part of the page."""

    file_name: str
    title: str
    say: Callable[[Report], str]
    write: Callable[[Report], Blocks]


# --- the targets


def with_comparison(report: Report, compared: Report) -> Report:
    """Take the ratios to others from a comparison of more rounds; each such row says of how many, and of which commit.

    Rows that the comparison does not have stay as they are.
    """
    of_rounds = f"{_rounds(compare.rounds_done(compared))} at commit {compared['environment']['git_commit']}"
    found = ratios(compared)
    rows = [
        judged_row(row["what"], row["figure"], found[row["what"]], f"{row['what']} ({of_rounds})")
        if row["what"] in found
        else row
        for row in report["rows"]
    ]
    return {**report, "rows": rows}


def environment_text(report: Report) -> str:
    """Write where a table was measured, and how quick its machine is by itself."""
    found = report["environment"]
    return (
        f"Measured at commit {found['git_commit']} with {found['python']}, uvloop {found['uvloop']}, checksums by "
        f"{found['checksums']}, on {found['cores']} cores ({found['cpu_model']}), {found['kernel']}, "
        f"{found['file_system']}. {alone_words(report)} {_rounds(report['parameters']['rounds'])}: medians, then the "
        "least and the most.\n"
    )


def targets_table(report: Report) -> str:
    """Write every row of the targets."""
    reached = {True: "yes", False: "**no**", None: ""}
    return table(
        ("what", "measured", "target", "reached"),
        [
            (row["what"], measured_words(row, report["rounds"]), row["target"], reached[row["reached"]])
            for row in report["rows"]
        ],
    )


def _say_targets(report: Report) -> str:
    measured = [row for row in report["rows"] if row["reached"] is not None]
    return f"{sum(row['reached'] for row in measured)} of {len(measured)} targets are reached; below"


def _targets(report: Report) -> Blocks:
    echoes = {
        name: sorted(found, key=lambda echo: float(echo["throughput_msgs_per_s"]))[len(found) // 2]
        for name, reports in report["reports"].items()
        if (found := [each for each in reports if each["scenario"] == "echo"])
    }
    yield environment_text(report)
    yield targets_table(report)
    yield "Latencies and processor time of the same runs, the median round of each row:\n"
    yield table(
        ("what", "p50", "p99", "p99.9", "max", "CPU µs a message: leader", "followers", "client"),
        [
            (
                name,
                *map(ms, by_name(echo, "p50_us", "p99_us", "p999_us", "max_us")),
                *(f"{us:.2f}" for us in cost_parts(echo).values()),
            )
            for name, echo in echoes.items()
        ],
    )
    curves = {name: echo["latency_percentiles_us"] for name, echo in echoes.items()}
    if curves:
        yield percentile_plot("latencies", "The flatter a line, the more equal the latencies.", curves)


# --- growth


def points_of(report: Report, dimension: Dimension) -> list[Report]:
    """Return the points of one dimension, by value."""
    found = [point for point in report["points"] if point["dimension"] == dimension]
    return sorted(found, key=lambda point: int(point["value"]))


_OF_SESSIONS: Final = {Dimension.SESSIONS: "their own", Dimension.SHARED: "shared"}


def _scan(report: Report) -> Blocks:
    yield (
        "One thing is varied at a time; the rest is 3 members, 32 bytes, 1,024 in flight, one session, level 1. "
        f"{report['parameters']['seconds']:g} s for each point, at commit {report['environment']['git_commit']}. What "
        "the log's length costs is measured with one member. CPU is microseconds a message, of all processes of each "
        "kind.\n"
    )
    for dimension in Dimension:
        points = points_of(report, dimension)
        if not points or dimension in _OF_SESSIONS:
            continue
        parts = [cost_parts(point) for point in points]
        yield table(
            (dimension.unit, "messages/s", "p50", "p99", "CPU: leader", "followers", "clients", "start"),
            [
                (
                    f"{point['value']:,}",
                    f"{point['throughput_msgs_per_s']:,}",
                    *map(ms, by_name(point, "p50_us", "p99_us")),
                    *(f"{us:.2f}" for us in costs.values()),
                    f"{point['start_s']:.1f} s" if "start_s" in point else "",
                )
                for point, costs in zip(points, parts, strict=True)
            ],
        )
        yield Plot(
            f"growth-{dimension}",
            f"The cost of a message by {dimension.unit}:",
            dimension.unit,
            "CPU µs a message",
            {part: [(place, costs[part]) for place, costs in enumerate(parts)] for part in parts[0]},
            {float(place): f"{point['value']:,}" for place, point in enumerate(points)},
        )
    for failure in report["failures"]:
        if failure["dimension"] not in _OF_SESSIONS:
            yield f"Not measured: {failure['dimension']} {failure['value']:,}: {failure['reason']}.\n"


EFFICIENCY_TARGETS: Final = {1_000: 60.0, 10_000: 40.0}
"""Requests per processor second of so many sessions, in percent of those of one with 1,000 in flight, at least."""


def _say_sessions(report: Report) -> str:
    """Say what a thousand clients get, which is where many readers begin."""
    said = [
        f"{point['throughput_msgs_per_s']:,} messages/s with p99 {point['p99_us'] / 1000:,.0f} ms, connections: {whose}"
        for dimension, whose in _OF_SESSIONS.items()
        for point in points_of(report, dimension)
        if point["value"] == 1_000
    ]
    return f"**A thousand clients**: {'; '.join(said)}" if said else "From one session to many"


def _sessions(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"Echoes of {parameters['payload']} bytes, 3 members, level {parameters['file_sync_level']}, "
        f"{parameters['inflight']:,} in flight over all sessions and at least one on each; from 10,000 sessions on of "
        f"several client processes. {parameters['seconds']:g} s for each row, {measured_at(report['environment'])}. "
        "*CPU* is processor time for a message, which in this load is a request and its reply. *Efficiency* is how "
        "many messages a processor second does, in percent of one session on a connection of its own. Memory is what a "
        "session adds to a process, all client processes together. "
        + again("scan --only sessions,shared --inflight 1000 --seconds 4", "sessions.json")
        + "\n"
    )
    found = {dimension: points_of(report, dimension) for dimension in _OF_SESSIONS}
    least = next((points[0] for points in found.values() if points), None)
    yield table(
        (
            *("sessions", "connections", "messages/s", "p50", "p99", "CPU: leader", "a follower", "clients", "all"),
            *("efficiency", "target", "KiB a session: leader", "a follower", "clients"),
        ),
        [
            _session_row(point, whose, points[0], least or point)
            for whose, points in zip(_OF_SESSIONS.values(), found.values(), strict=True)
            for point in points
        ],
    )
    for failure in report["failures"]:
        if failure["dimension"] in _OF_SESSIONS:
            yield f"Not measured: {failure['value']:,} sessions, {failure['dimension']}: {failure['reason']}.\n"
    yield Plot(
        "sessions",
        "Messages a second by the number of sessions:",
        "client sessions, logarithmic",
        "messages a second",
        {
            f"connections: {_OF_SESSIONS[dimension]}": [
                (point["value"], point["throughput_msgs_per_s"]) for point in points
            ]
            for dimension, points in found.items()
            if points
        },
    )


def _session_row(point: Report, whose: str, one: Report, least: Report) -> list[str]:
    """Return the cells of a point: memory beside `one` session of its kind, efficiency beside the `least` load."""
    parts = cost_parts(point)
    parts["followers"] /= max(point["members"] - 1, 1)
    percent, wanted = efficiency_percent(point, least), EFFICIENCY_TARGETS.get(point["value"])
    return [
        f"{point['value']:,}",
        whose,
        f"{point['throughput_msgs_per_s']:,}",
        *map(ms, by_name(point, "p50_us", "p99_us")),
        *(f"{us:.1f} µs" for us in (*parts.values(), sum(point["cpu_seconds_per_100k"].values()) * 10)),
        f"{percent:.0f} %",
        "" if wanted is None else target(f"{wanted:g} %", percent >= wanted),
        *([f"{added / 1024:.1f}" for added in session_bytes(point, one)] or [""] * 3),
    ]


def session_bytes(point: Report, one: Report) -> list[float]:
    """Return what one more session adds to the leader, a follower and the clients: the growth since one session."""
    added = point["value"] - one["value"]
    if added <= 0:
        return []
    after, before = _memory(point), _memory(one)
    before[2] *= point["client_processes"] / one["client_processes"]
    return [max(more - less, 0.0) / added for more, less in zip(after, before, strict=True)]


def _memory(point: Report) -> list[float]:
    """Return the memory of the leader, a follower, and all clients."""
    sizes = point["resident_bytes"]
    clients = [size for name, size in sizes.items() if name.startswith("client")]
    followers = [size for name, size in sizes.items() if name.startswith("member") and name != point["leader"]]
    return [float(sizes[point["leader"]]), sum(followers) / max(len(followers), 1), float(sum(clients))]


def efficiency_percent(point: Report, one: Report) -> float:
    """Return how many messages a processor second does with these sessions, in percent of what it does with one."""
    spent, least = (sum(each["cpu_seconds_per_100k"].values()) for each in (point, one))
    return float(100 * least / spent) if spent else 0.0


def _say_openings(report: Report) -> str:
    most = max(case["sessions"] for case in report["cases"])
    said = [
        f"{most:,} sessions open in {case['opening']['s']:.1f} s; after the leader was killed all are answered in "
        f"{case['failover']['max_ms'] / 1000:.1f} s"
        for case in report["cases"]
        if case["sessions"] == most and not case["share"] and not case["password"]
    ]
    return said[0] if said else "Opening, holding, and the leader's death"


def _openings(report: Report) -> Blocks:
    highest = max(case["load_average_before"] for case in report["cases"])
    yield (
        "Sessions are opened, 64 at a time by each client process. When they are connected to all members they rest "
        f"for {report['parameters']['rest_s']:g} s, and are asked once each right after the leader is killed: the wait "
        f"is from the kill to the answer of the next leader. Medians of {_rounds(report['parameters']['rounds'])}, "
        "the least and the most in brackets. Members, clients and harness share the cores; "
        f"{measured_at(report['environment'])}, and of at most {highest:g} before a case. "
        + again("opening --rounds 3", "opening.json")
        + "\n"
    )
    yield table(
        (
            *("sessions", "connections", "password", "open in", "target", "CPU a session: leader", "client"),
            *("at rest: leader", "client", "answered after the kill: p50", "p99", "max", "target"),
        ),
        [
            (
                f"{case['sessions']:,}",
                "shared" if case["share"] else "their own",
                "yes" if case["password"] else "no",
                f"{case['opening']['s']:.1f} s{_spread(case, 'opening s', 1)}",
                _limit("", "s", OPENING_TARGETS_S.get(case["sessions"], {}).get(case["password"]), case["opening"]),
                *(f"{us:,.0f} µs" for us in by_name(case["opening"], "leader_us", "client_us")),
                *(f"{us:.1f} µs/s" for us in by_name(case["a second at rest"], "leader_us", "client_us")),
                *(
                    f"{case['failover'][name]:,.0f} ms{_spread(case, f'failover {name}', 0)}"
                    for name in ("p50_ms", "p99_ms", "max_ms")
                ),
                _limit("p50 ", "p50_ms", FAILOVER_P50_TARGETS_MS.get(case["sessions"]), case["failover"])
                + _limit("max ", "max_ms", FAILOVER_MAX_TARGETS_MS.get(case["sessions"]), case["failover"]),
            )
            for case in report["cases"]
        ],
    )
    for failure in report["failures"]:
        connections = (
            f"connections: {'shared' if failure['share'] else 'their own'}{', password' * failure['password']}"
        )
        yield f"Not measured: {failure['sessions']:,} sessions, {connections}: {failure['reason']}.\n"


def _spread(case: Report, figure: str, digits: int) -> str:
    """Write the least and the most of several rounds."""
    rounds = case["rounds_of"][figure]
    return f" ({rounds[0]:,.{digits}f} to {rounds[-1]:,.{digits}f})" if len(rounds) > 1 else ""


def _limit(label: str, figure: str, most: float | None, found: Mapping[str, float]) -> str:
    """Write a target for a figure, if there is one; its name ends with the unit."""
    unit = figure.rpartition("_")[2]
    return "" if most is None else target(f"{label}{most:,g} {unit}", found[figure] <= most)


FAIRNESS_TARGET: Final = 3.0
"""How many times longer a modest client's p99 may be beside a greedy client."""
GREED_TARGET: Final = 5.0
"""The same beside a client that has its share of one limit, and asks for more; bulk load has no target."""
_BULK_KINDS: Final = ("transactions", "queue", "bulk")


def _say_fairness(report: Report) -> str:
    depths, modest = report["parameters"]["depths"], report["parameters"]["sessions"]
    times = max(report[f"beside {depth} in flight,"]["p99_times_alone"] for depth in depths)
    return f"Beside a greedy session the p99 of {modest:,} modest ones is at most {times:g} times as long"


def _fairness(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"{parameters['sessions']:,} modest sessions of one process with one message in flight each, alone and beside "
        f"one session of another process that keeps many in flight, without a pause; level "
        f"{parameters['file_sync_level']}, {measured_at(report['environment'])}. "
        + again(f"fairness --sessions {parameters['sessions']}", "fairness.json")
        + "\n"
    )
    beside = {f"{depth:,} in flight": report[f"beside {depth} in flight,"] for depth in parameters["depths"]}
    yield table(
        ("greedy session", "its messages/s", "modest ones: p50", "p99", "max", "p99 is times that alone", "target"),
        [
            ("none", "", *map(ms, by_name(report["alone"], "p50_us", "p99_us", "max_us")), "", ""),
            *(
                (
                    name,
                    f"{row['greedy_per_s']:,}",
                    *map(ms, by_name(row, "p50_us", "p99_us", "max_us")),
                    f"{row['p99_times_alone']:g}",
                    target(f"{FAIRNESS_TARGET:g}", row["p99_times_alone"] <= FAIRNESS_TARGET),
                )
                for name, row in beside.items()
            ),
        ],
    )
    kinds = parameters.get("kinds", ())
    if kinds:
        yield (
            f"A put of a key-value client, alone for {parameters['kind_s']:g} s, then for as long beside a client that "
            "takes all it can get of one limit, and then again: by now that client has its share, and asks for more.\n"
        )
        yield table(
            (
                "greedy for",
                "it got",
                "refused",
                "p99 alone",
                "while it takes",
                "times",
                "afterwards",
                "times",
                "target",
            ),
            [_greed_row(kind, report[f"beside {kind},"]) for kind in kinds],
        )


def _greed_row(kind: str, row: Report) -> tuple[str, ...]:
    times = row["p99_times_calm"]
    reached = "" if kind in _BULK_KINDS else target(f"{GREED_TARGET:g}", times <= GREED_TARGET)
    calm, taking, after = map(ms, by_name(row, "calm_p99_us", "taking_p99_us", "p99_us"))
    counts = f"{row['taken']:,}", f"{row['refused']:,}"
    return kind, *counts, calm, taking, f"{row['taking_p99_times_calm']:g}", after, f"{times:g}", reached


# --- state and groups

_WAYS: Final = {
    "message": "each order a message of its own, encoded in Python",
    "pieces": "`encode_pieces` in `on_take_snapshot`",
    "copy": "`encode_pieces` in `snapshot_messages`: a copy of the process writes",
}
_HELPED: Final = ("pieces", "copy")
"""The ways that the target of loading is for."""


def _say_snapshots(report: Report) -> str:
    stops = [f"{way} {row['delivery_stop_max_ms']:,.0f} ms" for way, row in report["ways"].items()]
    return f"{report['parameters']['orders']:,} orders: delivery stands still for {', '.join(stops)}"


def _snapshots(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"A service with {parameters['orders']:,} orders on 3 members takes snapshots under a steady load of 1,000 "
        f"messages a second; of {words.count(parameters['runs'], 'snapshot')} the worst counts. In the end a follower "
        "is killed and loads its snapshot. All members share the cores, so they encode at once on the same ones; "
        f"{measured_at(report['environment'])}. {again('snapshots', 'snapshots.json')}\n"
    )
    has_targets = parameters["orders"] >= TARGET_ORDERS
    yield table(
        (
            *("how the service writes", "delivery stands still", "target", "longest wait for a reply"),
            *("and without a snapshot", "until every member has it", "loading", "target"),
        ),
        [
            (
                _WAYS[way],
                f"{row['delivery_stop_max_ms']:,.0f} ms",
                _limit("", "delivery_stop_max_ms", STOP_TARGETS_MS.get(way) if has_targets else None, row),
                *(f"{wait:,.0f} ms" for wait in by_name(row, "reply_stop_max_ms", "reply_stop_steady_max_ms")),
                f"{row['snapshot_max_ms'] / 1000:.1f} s",
                f"{row['load_s']:.1f} s",
                _limit("", "load_s", LOAD_TARGET_S if has_targets and way in _HELPED else None, row),
            )
            for way, row in report["ways"].items()
        ],
    )
    for way, reason in report["failures"].items():
        yield f"Not measured: {_WAYS[way]}: {reason}.\n"


_MODEL_CORES: Final = 16
_MODEL_GROUPS: Final = (1, 2, 4, 8, 16, 32)


def modelled_rate(
    cores: float, groups: int, *, leader_us: float, others_us: float = 0.0, used_share: float = 1.0
) -> float:
    """Return the messages a second that processor time allows, of so many cores and groups.

    A group's leader is one thread: it does 1e6 / `leader_us` a second at most. All cores together do 1e6 x `cores` /
    (`leader_us` + `others_us`). Of the smaller of both, `used_share` is reached.
    """
    return used_share * min(groups * 1e6 / leader_us, cores * 1e6 / (leader_us + others_us))


def _group_rows(report: Report) -> dict[int, Report]:
    return {int(count): report[f"{count} groups," if count != "1" else "1 group,"] for count in report["runs"]}


def _say_stops(report: Report) -> str:
    longest_ms = max(max(row["leader_ms"], row["follower_ms"]) for row in report["rows"])
    return f"The longest turn of a loop, by cause: {longest_ms:g} ms at most"


def _stops(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        "The processor time of a member's loop between two ticks of a millisecond, the longest while something is done "
        f"beside {parameters['rate']:,.0f} messages a second: {parameters['orders']:,} orders are the state, and "
        f"{words.count(parameters['sessions'], 'session')} make a storm; {measured_at(report['environment'])}. "
        f"{again('stops', 'stops.json')}\n"
    )
    yield table(
        ("cause", "leader", "a follower", f"at most {report['target_ms']:g} ms"),
        [
            (
                row["what"],
                f"{row['leader_ms']:g} ms",
                f"{row['follower_ms']:g} ms",
                "reached" if row["reached"] else "not reached",
            )
            for row in report["rows"]
        ],
    )


def _say_memory(report: Report) -> str:
    return f"Resident memory of a member: {report['rows'][0]['leader_bytes'] / (1 << 20):,.0f} MiB with one session"


def _resident_memory(report: Report) -> Blocks:
    yield (
        "Resident memory by the kernel's count, with what each session, key or job costs beside its own bytes; keys of "
        "16 bytes, values and jobs of 32. Memory after each round of messages says whether it is flat. "
        f"{measured_at(report['environment'])}. {again('memory', 'memory.json')}\n"
    )
    yield table(
        ("what", "leader", "a follower", "each"),
        [
            (row["what"], f"not measured: {row['missing']}", "", "")
            if "missing" in row
            else (
                row["what"],
                *(f"{row[name] / (1 << 20):,.1f} MiB" if name in row else "" for name in _RESIDENT),
                "" if row["each_bytes"] is None else f"{row['each_bytes']:,} bytes",
            )
            for row in report["rows"]
        ],
    )


_RESIDENT: Final = ("leader_bytes", "follower_bytes")


def _say_groups(report: Report) -> str:
    said = ", ".join(f"{count}: {row['messages_per_s']:,.0f}/s" for count, row in _group_rows(report).items())
    return f"Groups on {report['environment']['cores']} cores: {said}; and a model of more cores"


def _groups(report: Report) -> Blocks:
    parameters, rows = report["parameters"], _group_rows(report)
    yield (
        f"`trimaran node --groups N`: 3 members with all their groups, {parameters['payload']} bytes, level "
        f"{parameters['file_sync_level']}, {parameters['inflight']:,} in flight over all groups, one client process; "
        f"medians of {words.count(parameters['rounds'], 'interleaved round')}, {measured_at(report['environment'])}. "
        "CPU is processor time for a message. On as many cores as there are busy processes more groups give more; on "
        f"fewer they must not give less. {again('groups', 'groups.json')}\n"
    )
    least = min(rows)
    cpu = ("leader_cpu_us", "follower_cpu_us", "client_cpu_us")
    yield table(
        (
            *("groups", "messages/s", "slowest to fastest", "of one group", "p50", "p99"),
            *("CPU: leader", "a follower", "client"),
        ),
        [
            (
                count,
                f"{row['messages_per_s']:,.0f}",
                _range(run["messages_per_s"] for run in report["runs"][str(count)]),
                f"{row['messages_per_s'] / rows[least]['messages_per_s']:.0%}",
                *map(ms, by_name(row, "p50_us", "p99_us")),
                *(f"{us:.2f} µs" for us in by_name(row, *cpu)),
            )
            for count, row in rows.items()
        ],
    )
    leader_us, follower_us, client_us = by_name(rows[least], *cpu)
    cores, others_us = report["environment"]["cores"], 2 * follower_us + client_us
    bound = modelled_rate(cores, least, leader_us=leader_us, others_us=others_us)
    used_share = min(rows[least]["messages_per_s"] / bound, 1.0)
    yield (
        f"### A model of {_MODEL_CORES} cores, not a measurement\n\n"
        f"The costs of the first row, L = {leader_us:.2f} µs of a leader, F = {follower_us:.2f} µs of a follower, "
        f"C = {client_us:.2f} µs of the client, are taken for every group. A group's leader is one thread. So with G "
        "groups on N cores:\n\n"
        "```text\n"
        "one machine, clients on it too:           rate = u x min(G / L, N / (L + 2 F + C))\n"
        "three machines, one member each, clients elsewhere:  rate = u x min(G / L, 3 N / (L + 2 F))\n"
        f"u = {used_share:.2f}: how much of the first formula the {cores} cores here reach\n"
        "```\n\n"
        "Leaders are spread evenly over the members. The model knows nothing of disks, networks, memory and caches, "
        "which groups share, and takes it that a client has a process for each core that it needs.\n"
    )
    places = {"one machine": (1, others_us), "three machines": (3, 2 * follower_us)}
    yield table(
        ("groups", *map(str, _MODEL_GROUPS)),
        [
            (
                f"{name} of {_MODEL_CORES} cores, modelled messages/s",
                *(
                    f"{round(_modelled(count, groups, leader_us, others, used_share), -3):,.0f}"
                    for groups in _MODEL_GROUPS
                ),
            )
            for name, (count, others) in places.items()
        ],
    )


def _modelled(machines: int, groups: int, leader_us: float, others_us: float, used_share: float) -> float:
    return modelled_rate(
        machines * _MODEL_CORES, groups, leader_us=leader_us, others_us=others_us, used_share=used_share
    )


# --- beside others


def _say_aeron(report: Report) -> str:
    times = [row["times"] for row in report["rows"]]
    return f"{min(times):.2f} to {max(times):.2f} times the rate of Aeron Cluster {report['aeron_version']} in Java"


def _aeron(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"Aeron Cluster {report['aeron_version']} as it is, in Java, with one thread for each member, and Trimaran at "
        f"level 0 and 1: 3 members on one machine, the same echoes of {parameters['payload']} bytes from one client, "
        f"CRC-32 of every frame in both, {words.count(parameters['rounds'], 'interleaved round')}, medians; "
        f"{measured_at(report['environment'])}. `python -m trimaran.benchmarks aeron` repeats it, where `AERON_RIG` "
        "names a build of Aeron. *Times* above 1: Trimaran does more.\n"
    )
    rows = []
    for row in report["rows"]:
        figures = [cell for name in ("trimaran", "aeron") for cell in _rate_and_p50(row[name])]
        times = row["times"]
        rows.append(
            (row["file_sync_level"], f"{row['inflight']:,}", *figures, f"{times:.2f}", target("1", times >= 1.0))
        )
    names = ("Trimaran: messages/s", "p50", "Aeron: messages/s", "p50")
    yield table(("level", "in flight", *names, "times", "target"), rows)


def _rate_and_p50(row: Report) -> tuple[str, str]:
    return f"{row['messages_per_s']:,}", ms(row["p50_us"]) or "not measured"


def _compared(report: Report) -> str:
    """Write of how many rounds the medians are, and where they were measured."""
    done, asked = compare.rounds_done(report), report["parameters"]["rounds"]
    rounds = words.count(done, "interleaved round") + ("" if done == asked else f" of {asked} that were asked for")
    return (
        f"{rounds}, every system started again in each; medians {measured_at(report['environment'])} before, which "
        "servers and load share. *x*: how many times faster Trimaran at level 1 is."
    )


def _present(report: Report) -> dict[str, Any]:
    return {name: peer for name, peer in report["peers"].items() if "missing" not in peer}


def _systems(report: Report) -> str:
    """Write who was measured: what an acknowledgement promises, and who makes the load."""
    return table(
        ("system", "an acknowledged write is", "client"),
        [
            (f"{name} ({peer['version'].splitlines()[0]})", peer["durability"], peer["client"])
            for name, peer in _present(report).items()
        ],
    )


def _absent(report: Report) -> Blocks:
    """Write who failed, in which rounds, and why, and who was not there."""
    for name, peer in report["peers"].items():
        for failure in peer.get("failures", ()):
            yield f"{name} failed in {compare.failure_words(failure)}.\n"
    missing = [name for name in report["peers"] if name not in _present(report)]
    if missing:
        yield f"Not installed: {', '.join(missing)}.\n"
    for name, reason in report.get("not_measurable", {}).items():
        yield f"{name} is not among them: {reason}.\n"


def _rate_cell(peer: Report, load: str, label: str) -> str:
    figures = peer["depths"].get(load)
    if figures is None:
        return compare.why_empty(peer, label)
    said = [f"{figures['messages_per_s']:,}/s"]
    rates = [rate for rate in figures["rounds"] if rate is not None]
    said += [f"{_range(rates)}/s"] * (len(rates) > 1)
    if figures["p50_us"] is not None:
        said.append(f"p50 {ms(figures['p50_us'])}")
    if "trimaran_is_times_faster" in figures:
        said.append(f"{figures['trimaran_is_times_faster']:g}x")
    return ", ".join(said)


def _times(report: Report, load: str) -> dict[str, float]:
    """Return how many times as fast Trimaran is under one load as each other system that has replicas."""
    return {
        name: peer["depths"][load]["trimaran_is_times_faster"]
        for name, peer in _present(report).items()
        if "trimaran_is_times_faster" in peer["depths"].get(load, {}) and name in _OTHERS
    }


_OTHERS: Final = ("etcd", "ZooKeeper", "NATS JetStream R3", "PySyncObj")
"""The systems with replicas. Redis stands in the tables for context."""


def _say_times(report: Report, load: str) -> str:
    return ", ".join(f"{times:.3g} x {name}" for name, times in _times(report, load).items())


def _say_comparison(report: Report) -> str:
    return f"With 1,024 in flight {_say_times(report, '1024')}"


def _say_compared_sessions(report: Report) -> str:
    return f"With 1,000 clients, one message in flight of each, {_say_times(report, '1000x1')}"


def _say_stores(report: Report) -> str:
    """Say how the two operations compare that every store has."""
    said = [
        f"{label} {times['etcd']:.2g} x"
        for load, label in report["loads"].items()
        if load.startswith(("put", "get")) and "etcd" in (times := _times(report, load))
    ]
    return f"Beside etcd: {'; '.join(said)}"


def _say_typed(report: Report) -> str:
    said = [
        f"with {int(depth):,} in flight {row['percent_of_bytes']['typed']:g} %, doubled "
        f"{row['percent_of_bytes']['doubled']:g} %"
        for depth, row in report["depths"].items()
    ]
    return f"The rate of requests with classes, of that with bytes: {'; '.join(said)}"


def _say_encryption(report: Report) -> str:
    return "; ".join(f"{row['what']}: {row['share']:.0%} of the rate" for row in report["rows"])


def _say_hand_over(report: Report) -> str:
    found = report.get("hand_over") or report["sigterm"]
    return (
        f"The longest wait of a client in a planned hand-over: p50 {found['p50_ms']:g} ms, max {found['max_ms']:g} ms"
    )


def _comparison(report: Report) -> Blocks:
    """Write a row for each system, a column for each load; older files name depths alone."""
    loads = report.get("loads") or {str(depth): f"{depth:,} in flight" for depth in report["parameters"]["depths"]}
    yield f"{report['parameters']['payload']} bytes, {_compared(report)}\n"
    yield _systems(report)
    yield table(
        ("system", *loads.values()),
        [(name, *(_rate_cell(peer, *each) for each in loads.items())) for name, peer in _present(report).items()],
    )
    yield from _absent(report)


def _compared_stores(report: Report) -> Blocks:
    """Write a row for each load, a column for each system: of stores there are many loads."""
    present = _present(report)
    yield f"{report['parameters']['payload']} bytes, {_compared(report)}\n"
    yield _systems(report)
    yield table(
        ("load", *present),
        [
            (label, *(_rate_cell(peer, load, label) for peer in present.values()))
            for load, label in report["loads"].items()
        ],
    )
    yield from _absent(report)


_SESSION_RATIOS: Final = {"etcd": 3.0, "NATS JetStream R3": 1.5}
"""How many times as fast we mean to be with 1,000 sessions."""


def _compared_sessions(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        "One message is in flight on each connection: a client that has its answer sends the next message. Opening the "
        "connections is not measured. Whether the load limits a system, its processor time beside that of the servers "
        "shows. The loads in Python are raw sockets on epoll that send bytes that are made before; the three others of "
        "Trimaran are the client that applications use. *Servers* and *client* are microseconds of processor time for "
        "a message, of all processes of each kind.\n"
    )
    yield (
        f"{parameters['payload']} bytes, {_compared(report)} {parameters['seconds']:g} s of each load; loads in Python "
        f"from {parameters['processes']} processes. "
        + again(f"compare --sessions {','.join(map(str, parameters['sessions']))}", "compare-sessions.json")
        + "\n"
    )
    peers, loads = _present(report), dict(zip(report["loads"], parameters["sessions"], strict=True))
    curves = {
        name: [(loads[load], figures["messages_per_s"]) for load, figures in peer["depths"].items() if load in loads]
        for name, peer in peers.items()
        if "one session" not in name
    }
    yield Plot(
        *("many-sessions", "Messages a second by the number of connections:"),
        *("connections, one message in flight on each, logarithmic", "messages a second"),
        {name: points for name, points in curves.items() if points},
    )
    goals = list(_session_goals(report, loads))
    if goals:
        yield table(("what", "measured", "target", "reached"), goals)
    yield _systems(report)
    for load, label in report["loads"].items():
        yield table(
            (label, "messages a second", "x", "p50 ms", "p99 ms", "servers µs", "client µs"),
            [
                (name, *(figure_cells(peer["depths"][load]) if load in peer["depths"] else ("failed", *[""] * 5)))
                for name, peer in peers.items()
            ],
        )
    yield from _absent(report)


def _session_goals(report: Report, loads: Mapping[str, int]) -> Iterable[tuple[str, str, str, str]]:
    for load, sessions in loads.items():
        for name, least in _SESSION_RATIOS.items() if sessions == 1_000 else ():
            figures = report["peers"].get(name, {}).get("depths", {}).get(load, {})
            times = figures.get("trimaran_is_times_faster")
            if times is not None:
                yield f"times {name}, {sessions:,} sessions", f"{times:g} x", f">= {least:g} x", _yes(times >= least)
        share = EFFICIENCY_TARGETS.get(sessions)
        for name, percent in report["percent_of_one_session"].get(load, {}).items() if share is not None else ():
            for whose, what in (("members", "the members"), ("all", "members and clients")):
                yield (
                    f"requests per processor second of {what}, {sessions:,} sessions beside one: {name}",
                    f"{percent[whose]:g} %",
                    f">= {share:g} %",
                    _yes(percent[whose] >= share),
                )


def _yes(is_reached: bool) -> str:
    return "yes" if is_reached else "**no**"


# --- costs of one thing


_TYPED_CASES: Final = {
    "echo": "echo",
    "bytes": "requests: bytes",
    "typed": "requests: classes",
    "doubled": "classes, double execution",
    "bytes_many": f"bytes, {BATCH} in a call",
    "typed_many": f"classes, {BATCH} in a call",
}


def _typed(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"3 members, level {parameters['file_sync_level']}, messages in flight of one session; a request is executed "
        f"exactly once. {_rounds(report['rounds'])} in turn, each figure from a cluster of its own; "
        f"medians {measured_at(report['environment'])} before. {again('typed', 'typed.json')}\n"
    )
    for depth, row in report["depths"].items():
        yield table(
            (f"{int(depth):,} in flight", "a second", "slowest to fastest", "p50", "of echo", "of bytes"),
            [
                (
                    what,
                    f"{row['requests_per_s'][name]:,}",
                    _range(row["runs"][name]),
                    ms(row["p50_us"][name]),
                    f"{row['percent_of_echo'][name]:g} %",
                    f"{row['percent_of_bytes'][name]:g} %",
                )
                for name, what in _TYPED_CASES.items()
                if name in row["runs"]
            ],
        )


def _encryption(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"3 members, 32 bytes, level {parameters['file_sync_level']}, {_rounds(parameters['rounds'])} interleaved, "
        f"everything started again for each figure; medians {measured_at(report['environment'])} before, in brackets "
        "the slowest and the fastest. Members, client and harness share the cores. CPU is that of all processes for a "
        f"message. {again('encryption', 'encryption.json')}\n"
    )
    yield table(
        ("what", "plain text", "TLS", "that is", "target"),
        [(row["what"], *encryption_cells(row)) for row in report["rows"]],
    )


def _hand_over(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"{parameters['members']} members, level {parameters['file_sync_level']}, one client that makes "
        f"{parameters['request_rate']:,.0f} requests a second; the longest time between two replies, "
        f"{measured_at(report['environment'])} before. Members and client share the cores and the disk. The service "
        "counts: no request was lost, and none ran twice. "
        + again("failover --kinds hand_over,sigterm --runs 100", "failover.json")
        + "\n"
    )
    goal = f"p50 {HAND_OVER_GAP_P50_TARGET_MS:g} ms, max {HAND_OVER_GAP_TARGET_MS:g} ms"
    yield table(
        ("what", "count", "p50", "p99", "max", "target"),
        [
            (
                what,
                row["count"],
                *(f"{figure:g} ms" for figure in by_name(row, "p50_ms", "p99_ms", "max_ms")),
                target(goal, row["p50_ms"] <= HAND_OVER_GAP_P50_TARGET_MS and row["max_ms"] <= HAND_OVER_GAP_TARGET_MS),
            )
            for kind, what in (("hand_over", "`trimaran leader transfer`"), ("sigterm", "SIGTERM of the leader"))
            if (row := report.get(kind)) is not None
        ],
    )


def _floods(report: Report) -> Blocks:
    parameters = report["parameters"]
    yield (
        f"{parameters['members']} members{' with TLS' * parameters['tls']}, {parameters['connections']:,} hostile "
        "connections to the leader, and beside them one honest client with 16 requests in flight: medians of "
        f"{_rounds(parameters['rounds'])} {measured_at(report['environment'])} before. Those that flood share the "
        f"cores with everybody else. Memory is the leader's. {again('flood', 'flood.json')}\n"
    )
    yield table(
        (
            *("flood", "open at once", "p99 alone", "p99 during", "that is", "memory before", "at peak"),
            "status not answered",
        ),
        flood_rows(report),
    )


# --- where the time goes

_SMALL_SHARE: Final = 0.02
"""Stages with less than this of every process's time are shown as one."""
_FUNCTIONS: Final = 10

_METHOD: Final = """\
The echo load runs four times: alone, which gives the processor time; beside `perf`, which samples what is on a
processor, and so divides that time between the kernel's system calls, the event loop, the garbage collector and Python;
beside `py-spy`, which samples the Python stack of the thread that holds the interpreter's lock, and so divides Python's
part by stage; and with its system calls counted. Which function is of which stage says one table,
`benchmarks/profiling/stages.py`. Of the runs with a profiler only shares are taken. What is known to be askew: system
calls that hold that lock weigh in Python's part, too, so that stages which send get a little more than is theirs.
With one session 1,024 messages are in flight, with many one on each, on connections of their own; then the client is
all client processes together, by the shares of the first.
"""


def _profiles(report: Report) -> Blocks:
    profiles: Mapping[int, Report] = report["profiles"]
    yield f"{_METHOD}\n{again('profile --sessions 1000', 'profile-1000.json')}\n"
    rows: dict[str, Callable[[Report], str]] = {
        "messages a second": lambda found: f"{found['throughput_msgs_per_s']:,}",
        "CPU of all processes, µs a message": lambda found: f"{found['bound']['cpu_us_per_message']:.2f}",
        "of the rate that 2 cores would do at 100 % use": lambda found: f"{found['bound']['share_of_bound']:.0%}",
        "system calls for 1,000 messages": _system_calls,
        "measured": lambda found: measured_at(found["environment"]),
    }
    heads = [words.count(count, "session") for count in profiles]
    yield table(("", *heads), [(name, *map(say, profiles.values())) for name, say in rows.items()])
    for role in dict.fromkeys(role for found in profiles.values() for role in found["processes"]):
        yield f"### The {role}\n"
        yield table(("µs a message", *heads), stage_rows([found["processes"].get(role) for found in profiles.values()]))
        for count, found in profiles.items():
            functions = found["processes"].get(role, {}).get("functions", [])[:_FUNCTIONS]
            if functions:
                yield f"Python functions that take most with {words.count(count, 'session')}:\n"
                yield table(
                    ("function", "stage", "µs a message"),
                    [(f"`{row['function']}`", row["stage"], f"{row['us']:.3f}") for row in functions],
                )


def stage_rows(processes: Sequence[Report | None]) -> list[tuple[str, ...]]:
    """Return a row for each stage with a column for each process; what is small everywhere is one row."""
    found: list[dict[str, float]] = []
    for process in processes:
        rows = [] if process is None else process["stages"]
        found.append({": ".join(filter(None, (row["stage"], row["detail"]))): float(row["us"]) for row in rows})
    totals = [0.0 if process is None else float(process["cpu_us"]) for process in processes]
    most = {name: max(stages.get(name, 0.0) for stages in found) for stages in found for name in stages}
    large = [
        name
        for name in sorted(most, key=lambda name: -most[name])
        if any(
            name in stages and stages[name] >= _SMALL_SHARE * total for stages, total in zip(found, totals, strict=True)
        )
    ]
    small = [sum(us for name, us in stages.items() if name not in large) for stages in found]
    cells = {name: [stages.get(name, 0.0) for stages in found] for name in large}
    cells |= {"smaller ones": small, "**all**": totals}
    return [(name, *(f"{us:.2f}" for us in row)) for name, row in cells.items()]


def _system_calls(report: Report) -> str:
    calls = report["system_calls_per_1000_messages"].get("all processes", {}).get("all")
    return "not counted" if calls is None else f"{calls:,.0f}"


def _say_profiles(report: Report) -> str:
    return f"By stage, of {', '.join(words.count(count, 'session') for count in report['profiles'])}"


def _rounds(count: int) -> str:
    return words.count(count, "round")


def _range(rates: Iterable[float]) -> str:
    known = [*rates]
    return f"{min(known):,.0f} to {max(known):,.0f}" if all(map(math.isfinite, known)) else ""


def _always(text: str) -> Callable[[Report], str]:
    return lambda report: text


SECTIONS: Final = (
    PageSection("table.json", "Targets", _say_targets, _targets),
    PageSection("sessions.json", "Many sessions", _say_sessions, _sessions),
    PageSection("opening.json", "Opening sessions and losing the leader", _say_openings, _openings),
    PageSection("fairness.json", "A greedy session beside modest ones", _say_fairness, _fairness),
    PageSection("tails.json", "Steady tails", say_tails, write_tails),
    PageSection("stops.json", "Stops of the loop", _say_stops, _stops),
    PageSection("memory.json", "Memory", _say_memory, _resident_memory),
    PageSection("scan.json", "How cost grows", _always("With payload, messages in flight, members, log length"), _scan),
    PageSection("compare.json", "Beside others", _say_comparison, _comparison),
    PageSection(
        "compare-sessions.json",
        "Many sessions beside others",
        _say_compared_sessions,
        _compared_sessions,
    ),
    PageSection("aeron.json", "Beside Aeron's own Java", _say_aeron, _aeron),
    PageSection("snapshots.json", "Snapshots of a big state", _say_snapshots, _snapshots),
    PageSection("groups.json", "Groups", _say_groups, _groups),
    PageSection("kv.json", "The key-value store beside others", _say_stores, _compared_stores),
    PageSection("typed.json", "What classes cost", _say_typed, _typed),
    PageSection("encryption.json", "What TLS costs", _say_encryption, _encryption),
    PageSection("failover.json", "What a hand-over costs", _say_hand_over, _hand_over),
    PageSection("flood.json", "What hostile clients cost others", _always("Floods beside one honest client"), _floods),
    PageSection("profiles", "Where each microsecond goes", _say_profiles, _profiles),
)
