"""The part of docs/performance.md about groups: what several logs give together here, and a model of more cores."""

from __future__ import annotations

from typing import Final

from trimaran.archive.report import words

from ..statistics.report import Report
from .measured import measured_at

MODEL_CORES: Final = 16
MODEL_GROUPS: Final = (1, 2, 4, 8, 16, 32)


def modelled_rate(
    cores: float, groups: int, *, leader_us: float, others_us: float = 0.0, used_share: float = 1.0
) -> float:
    """Messages a second that processor time allows, of so many cores and groups.

    A group's leader is one thread: it does 1e6 / `leader_us` a second at most. All cores together do 1e6 x `cores` /
    (`leader_us` + `others_us`). Of the smaller of both, `used_share` is reached.
    """
    return used_share * min(groups * 1e6 / leader_us, cores * 1e6 / (leader_us + others_us))


def groups_section(report: Report) -> str:
    """Write the rates of each number of groups, and the model."""
    parameters, environment = report["parameters"], report["environment"]
    counts = [int(count) for count in report["runs"]]
    lines = [
        f"`trimaran node --groups N`: 3 members with all their groups, {parameters['payload']} bytes, level "
        f"{parameters['file_sync_level']}, {parameters['inflight']:,} in flight over all groups, one client process; "
        f"medians of {words.count(parameters['rounds'], 'interleaved round')}, {measured_at(environment)}. CPU is "
        "processor time for a message. On as many cores as there are busy processes more groups give more; on fewer "
        "they must not give less. Again: `python -m trimaran.benchmarks groups --json "
        "benchmarks/results/groups.json`.\n",
        "| groups | messages/s | slowest to fastest | of one group | p50 | p99 | CPU: leader | a follower | client |",
        "|" + "---|" * 9,
    ]
    one = _row(report, counts[0])["messages_per_s"]
    for count in counts:
        row, rates = _row(report, count), [found["messages_per_s"] for found in report["runs"][str(count)]]
        cells = [
            f"{count}",
            f"{row['messages_per_s']:,.0f}",
            f"{min(rates):,} to {max(rates):,}",
            f"{row['messages_per_s'] / one:.0%}",
            *(f"{row[name] / 1000:.1f} ms" for name in ("p50_us", "p99_us")),
            *(f"{row[name]:.2f} µs" for name in ("leader_cpu_us", "follower_cpu_us", "client_cpu_us")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _model(report, counts[0])])


def _row(report: Report, count: int) -> Report:
    row: Report = report[f"{count} groups," if count > 1 else "1 group,"]
    return row


def _model(report: Report, count: int) -> str:
    """A table of rates on more cores, by the costs of the row with the fewest groups."""
    row, cores = _row(report, count), report["environment"]["cores"]
    leader_us, follower_us, client_us = (row[f"{part}_cpu_us"] for part in ("leader", "follower", "client"))
    others_us = 2 * follower_us + client_us
    bound = modelled_rate(cores, count, leader_us=leader_us, others_us=others_us)
    used_share = min(row["messages_per_s"] / bound, 1.0)
    spread = {"leader_us": leader_us, "others_us": others_us, "used_share": used_share}
    apart = {"leader_us": leader_us, "others_us": 2 * follower_us, "used_share": used_share}
    lines = [
        f"### A model of {MODEL_CORES} cores, not a measurement\n",
        f"The costs of the first row, L = {leader_us:.2f} µs of a leader, F = {follower_us:.2f} µs of a follower, "
        f"C = {client_us:.2f} µs of the client, are taken for every group. A group's leader is one thread. So with G "
        f"groups on N cores:\n",
        "```text",
        "one machine, clients on it too:           rate = u x min(G / L, N / (L + 2 F + C))",
        "three machines, one member each, clients elsewhere:  rate = u x min(G / L, 3 N / (L + 2 F))",
        f"u = {used_share:.2f}: how much of the first formula the {cores} cores here reach",
        "```\n",
        "Leaders are spread evenly over the members. The model knows nothing of disks, networks, memory and caches, "
        "which groups share, and takes it that a client has a process for each core that it needs.\n",
        "| groups | " + " | ".join(f"{groups}" for groups in MODEL_GROUPS) + " |",
        "|---|" + "---|" * len(MODEL_GROUPS),
    ]
    for name, places, costs in (
        (f"one machine of {MODEL_CORES} cores, modelled messages/s", 1, spread),
        (f"three machines of {MODEL_CORES} cores, modelled messages/s", 3, apart),
    ):
        rates = [modelled_rate(places * MODEL_CORES, groups, **costs) for groups in MODEL_GROUPS]
        lines.append(f"| {name} | " + " | ".join(f"{round(rate, -3):,.0f}" for rate in rates) + " |")
    return "\n".join(lines) + "\n"
