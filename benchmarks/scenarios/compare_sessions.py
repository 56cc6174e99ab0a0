"""Many sessions beside others: who takes part, and what many sessions cost us beside one with many in flight.

A row of ours for each way to make the load. The first, with a client's bytes alone, is what others are compared with:
their clients are made in the same way, or in C. The client that applications use costs more, and takes that from the
members where all share the cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from ..peers.many_sessions import (
    ClientKind,
    EtcdSessions,
    JetStreamSessions,
    RedisSessions,
    TrimaranSessions,
    ZooKeeperSessions,
)
from ..peers.peer import Peer
from ..statistics.report import Report

_ONE_SESSION: Final = TrimaranSessions(1, ClientKind.ONE_SESSION).name
_MANY: Final = tuple(TrimaranSessions(1, kind).name for kind in ClientKind if kind is not ClientKind.ONE_SESSION)


def make_session_peers() -> list[Peer]:
    """Make everybody who is measured with many sessions, ourselves first."""
    ours = [TrimaranSessions(1, kind) for kind in ClientKind]
    return [*ours, TrimaranSessions(0), EtcdSessions(), ZooKeeperSessions(), JetStreamSessions(), RedisSessions()]


def of_one_session(peers: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Requests per processor second of many sessions, in percent of those of one session with 1,000 in flight.

    With fewer sessions than that the one session has as many in flight as there are sessions.
    By the load and the name of the row: of the members alone, and of members and clients together. What was not
    measured is left out.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for load, one in peers.get(_ONE_SESSION, {}).get("depths", {}).items():
        for name in _MANY:
            many = peers.get(name, {}).get("depths", {}).get(load)
            if many is not None and many["server_cpu_us"]:
                found.setdefault(load, {})[name] = {
                    "members": _percent(one["server_cpu_us"], many["server_cpu_us"]),
                    "all": _percent(*(row["server_cpu_us"] + row["client_cpu_us"] for row in (one, many))),
                }
    return found


def print_sessions(report: Report) -> None:
    """Print a table for each number of sessions, and who made the load."""
    console = Console()
    for name, peer in report["peers"].items():
        if "missing" not in peer:
            console.print(f"{name}: {peer['client']}", highlight=False)
    for load, label in report["loads"].items():
        table = Table("system", "msg/s", "times", "p50 ms", "p99 ms", "servers µs", "client µs", title=label)
        for name, peer in report["peers"].items():
            figures = peer.get("depths", {}).get(load)
            if figures is None:
                table.add_row(name, "failed" if "missing" not in peer else "not installed")
            else:
                table.add_row(name, *figure_cells(figures))
        console.print(table)
        for name, percent in report["percent_of_one_session"].get(load, {}).items():
            console.print(
                f"{name}: {percent['members']:g} % of one session's requests per processor second of the members, "
                f"{percent['all']:g} % of members and clients"
            )


def figure_cells(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Return rate, how many times faster we are, p50, p99, and processor time of servers and client, as words."""
    times = figures.get("trimaran_is_times_faster")
    return (
        f"{figures['messages_per_s']:,}",
        "" if times is None else f"{times:g}",
        *("" if figures[name] is None else f"{figures[name] / 1e3:,.1f}" for name in ("p50_us", "p99_us")),
        *("" if figures[name] is None else f"{figures[name]:,.1f}" for name in ("server_cpu_us", "client_cpu_us")),
    )


def _percent(one: float, many: float) -> float:
    return round(one / many * 100, 1)
