"""Markdown of the page: tables, and the words that every section says of its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..statistics.report import Report


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table; every row has a cell for each heading."""
    lines = [headings, ["---"] * len(headings), *rows]
    cells = [[str(cell) for _, cell in zip(headings, line, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells).replace("| --- ", "|---") + "\n"


def measured_at(facts: Mapping[str, Any]) -> str:
    """Write at what commit and when figures were measured, and what else the machine did before."""
    when = f" on {facts['date']}" if facts.get("date") else ""
    load = facts["load_average"][0]
    return f"at commit {facts['git_commit']}{when}, with a load average of {load:g} on {facts['cores']} cores"


def again(command: str, file_name: str) -> str:
    """Write which command measures it again."""
    return f"Again: `python -m trimaran.benchmarks {command} --json benchmarks/results/{file_name}`."


def target(text: str, is_reached: bool) -> str:
    """Write a target, and whether it is reached."""
    return f"{text}: {'reached' if is_reached else '**not reached**'}"


def ms(us: float | None) -> str:
    """Write microseconds as milliseconds."""
    if us is None:
        return ""
    return f"{us / 1e3:,.2f} ms" if us < 10_000 else f"{us / 1e3:,.1f} ms"


def by_name(report: Report, *names: str) -> list[float]:
    """Return some figures of a report, in this order."""
    return [report[name] for name in names]


def cost_parts(report: Report) -> dict[str, float]:
    """Return microseconds a message by part: the leader, all followers, all clients."""
    used = {name: seconds * 10 for name, seconds in report["cpu_seconds_per_100k"].items()}
    parts = {"leader": 0.0, "followers": 0.0, "clients": 0.0}
    for name, us in used.items():
        part = "clients" if name.startswith("client") else "leader" if name == report["leader"] else "followers"
        parts[part] += us
    return parts
