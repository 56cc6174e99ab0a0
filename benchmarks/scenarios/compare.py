"""Ourselves and every peer that is installed, under the same load, interleaved.

In each round every system is started again in an empty directory, warmed up, loaded at each depth and stopped, so that
a noisy minute of the machine is nobody's alone. Medians over the rounds, and how many times faster we are. Beside every
figure stands what an acknowledgement promises: like is to be compared with like. With numbers of sessions each load is
so many clients with one message in flight of each (`compare_sessions`) instead. Who fails at a depth in a round is
started again for the rest of it; the failure is told with the figures, and the medians are of the rounds that worked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from ...service_api.errors import ClusterError, ConfigurationError, first_leaf
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import Payload
from ..peers.etcd import Etcd, EtcdKv, EtcdTransactions
from ..peers.jetstream import JetStream
from ..peers.peer import LoadPoint, Measured, Missing, Peer, SessionsLoad, SessionsPeer, StoreOperation, StorePeer
from ..peers.pysyncobj import PySyncObj
from ..peers.redis import Redis, RedisKv
from ..peers.trimaran import WITH_TLS, Trimaran, TrimaranKv
from ..peers.zookeeper import ZooKeeper
from ..rig.processes import ProcessGroup, raise_file_limit, require_connections
from ..statistics.report import Report, progress_line
from .compare_sessions import make_session_peers, of_one_session, print_sessions

OURS: Final = "Trimaran, file sync level 1"
OURS_KV: Final = "Trimaran kv, file sync level 1"
_US: Final = "Trimaran"

NOT_MEASURABLE: Final = {
    "raftos": "raftos 0.2.6 needs Python 3.9 or older: it passes loop= to asyncio.Queue, which 3.10 removed, and pins "
    "cryptography 1.5.3, which does not build any more",
}

_MESSAGES: Final = {1: 400, 64: 12_000, 1024: 60_000}
"""To measure, by depth: about a second or two of a peer's time."""

_OPERATIONS: Final = {1: 400, 64: 6_000, 1024: 20_000}
"""As `_MESSAGES`, of a key-value store."""
_LONGER: Final = {StoreOperation.TRANSACTION: 2, StoreOperation.JOB: 4, StoreOperation.SCAN: 40}
"""How many times fewer of these are enough."""
_LOCK_SESSIONS: Final = 4
"""Of which one has the lock and the others wait for it."""
_LOCK_OPERATIONS: Final = 1_000
_STORE_SESSIONS: Final = (1_000,)
"""Of the load of stores with many sessions, each with one operation in flight."""
_SESSIONS_WARMUP_S: Final = 3.0
_SESSION_WARMUP_S: Final = 0.0005
"""For each session in addition."""
_FILES_WANTED: Final = 20_000
"""What a process may open, as far as it may be raised, before anybody is started with many sessions."""

_WARMUP_SHARE: Final = 0.2
_SLOW_PER_S: Final = 1_000
"""Of what is done more seldom, the table says how long it takes."""


class ComparedWork(StrEnum):
    """What all systems do."""

    MESSAGES = "messages"
    """Each its own smallest write that is replicated."""
    KV = "kv"
    """A key-value store, a lock and a queue: ours, etcd, Redis."""


_SCENARIOS: Final = {ComparedWork.MESSAGES: {"scenario": "compare"}, ComparedWork.KV: {"scenario": "compare-kv"}}
_SESSIONS_SCENARIO: Final = {"scenario": "compare-sessions"}


@dataclass(slots=True, frozen=True, kw_only=True)
class CompareParameters:
    """What one comparison does.

    Raises:
        ConfigurationError: values that make no run.
    """

    rounds: Annotated[int, typer.Option(min=1, help="In each, every system is started, loaded and stopped once.")] = 5
    payload: Payload = 32
    depths: Annotated[tuple[int, ...], typer.Option(help="Messages in flight: some of 1,64,1024.")] = (1, 64, 1024)
    sessions: Annotated[
        tuple[int, ...],
        typer.Option(
            min=1,
            help="Clients with one message in flight of each, such as 100,1000,10000: instead of the depths. For kv "
            "besides them, 1000 by default; 1 leaves it out.",
        ),
    ] = ()
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that make the load of many sessions, where it is made in Python.")
    ] = 2
    seconds: Annotated[float, typer.Option(min=0.1, help="How long a load of many sessions is measured.")] = 5.0
    peers: Annotated[
        tuple[str, ...], typer.Option(help="Only systems whose names contain one of these. Default: all.")
    ] = ()
    tls: Annotated[bool, typer.Option("--tls", help="Measure ourselves with TLS, too; of messages alone.")] = False
    workload: Annotated[
        ComparedWork,
        typer.Option(
            help="messages: an echo of ours and writes of others; kv: put, get, transaction, watch, scan, lock and job "
            "of ours, and those of them that etcd and Redis do."
        ),
    ] = ComparedWork.MESSAGES

    def __post_init__(self) -> None:
        if not {*self.depths} <= {*_MESSAGES}:
            raise ConfigurationError(f"depths={self.depths} expected some of {sorted(_MESSAGES)}")

    @property
    def with_sessions(self) -> bool:
        """Whether messages come from many sessions."""
        return self.workload is ComparedWork.MESSAGES and bool(self.sessions)

    @property
    def scenario(self) -> Mapping[str, str]:
        """What the report begins with."""
        return _SESSIONS_SCENARIO if self.with_sessions else _SCENARIOS[self.workload]

    @property
    def points(self) -> list[LoadPoint]:
        """The loads of a round, in their order."""
        if self.with_sessions:
            return [LoadPoint(1, sessions) for sessions in self.sessions]
        if self.workload is ComparedWork.MESSAGES:
            return [LoadPoint(depth) for depth in self.depths]
        depths = [(depth, 1) for depth in self.depths]
        loads = [*depths, *((1, sessions) for sessions in self.sessions or _STORE_SESSIONS if sessions > 1)]
        return [
            LoadPoint(depth, sessions, operation)
            for operation, some in (
                (StoreOperation.PUT, loads),
                (StoreOperation.GET, loads),
                (StoreOperation.TRANSACTION, depths),
                (StoreOperation.WATCH, [(1, 1)]),
                (StoreOperation.SCAN, [(1, 1)]),
                (StoreOperation.LOCK, [(1, _LOCK_SESSIONS)]),
                (StoreOperation.JOB, depths),
            )
            for depth, sessions in some
        ]

    def points_of(self, peer: Peer) -> list[LoadPoint]:
        """The loads of a round that a system can be put under: a store says what it does."""
        if self.workload is not ComparedWork.KV or not isinstance(peer, StorePeer):
            return self.points
        return [point for point in self.points if point.operation in peer.operations]

    @property
    def ours(self) -> str:
        """The name of what the others are compared with."""
        return OURS if self.workload is ComparedWork.MESSAGES else OURS_KV

    def make_peers(self) -> list[Peer]:
        """Make everybody who takes part, ourselves first."""
        if self.workload is ComparedWork.KV:
            return [TrimaranKv(1), TrimaranKv(0), EtcdKv(), RedisKv()]
        if self.with_sessions:
            return make_session_peers()
        return [peer for peer in make_peers() if self.tls or WITH_TLS not in peer.name]


def make_peers() -> list[Peer]:
    """Make everybody who sends messages, ourselves first."""
    return [
        Trimaran(1),
        Trimaran(1, with_tls=True),
        Trimaran(0),
        Trimaran(0, with_tls=True),
        Etcd(),
        EtcdTransactions(),
        ZooKeeper(),
        JetStream(),
        PySyncObj(),
        Redis(),
    ]


@dataclass(slots=True)
class _Found:
    """What has been measured of one system so far."""

    rounds: dict[str, list[Measured | None]] = field(default_factory=dict)
    """By the name of the load, one for each round; None where it failed."""
    failures: list[Report] = field(default_factory=list)

    def note(self, number: int, point: LoadPoint | None, error: Exception) -> None:
        """Keep what went wrong in a round: under a load, or before the first."""
        leaf = first_leaf(error)
        kind = "" if isinstance(leaf, ClusterError) else f"{type(leaf).__name__}: "
        reason = kind + (str(leaf).splitlines() or [""])[0]
        load = None if point is None else point.label
        self.failures.append({"round": number + 1, "load": load, "reason": reason})


def run(
    parameters: CompareParameters,
    *,
    directory: Path | None = None,
    keep: bool = False,
    on_round: Callable[[Report], None] | None = None,
) -> Report:
    """Run the comparison; every process it starts has ended when it returns or raises.

    What fails is noted in the report and the rest goes on: see `check_ourselves`. `on_round` is given the report of all
    rounds so far, after each.

    Raises:
        ConfigurationError: nobody of those who are asked for is installed.
    """
    everybody = parameters.make_peers()
    wanted = [peer for peer in everybody if _is_wanted(peer.name, parameters.peers)]
    versions = {peer.name: peer.find() for peer in wanted}
    present = [peer.name for peer in wanted if not isinstance(versions[peer.name], Missing)]
    if not present:
        raise ConfigurationError(f"peers={parameters.peers} expected some of {[peer.name for peer in everybody]}")
    found = {peer.name: _Found() for peer in wanted}
    if any(point.sessions > 1 for point in parameters.points):
        raise_file_limit(_FILES_WANTED)  # children take the limit over when they start
    with (
        data_directory(directory, "compare", keep=keep) as data_dir,
        progress_line(parameters.rounds * len(present)) as progress,
    ):
        environment = describe(data_dir)
        for number in range(parameters.rounds):
            for index, name in enumerate(present):
                progress.describe(f"round {number + 1}/{parameters.rounds}: {name}{_failed_words(found)}")
                place = data_dir / f"round-{number}-{index}"
                _measure(name, parameters, place, number, found[name], keep=keep)
                progress.update(number * len(present) + index + 1)
            ours = found.get(parameters.ours, _Found()).rounds
            summaries = {peer.name: _summary(peer, versions[peer.name], found[peer.name], ours) for peer in wanted}
            report = {
                **parameters.scenario,
                "peers": summaries,
                "loads": {point.name: point.label for point in parameters.points},
                "not_measurable": NOT_MEASURABLE if parameters.scenario["scenario"] == "compare" else {},
                "parameters": asdict(parameters),
                "environment": environment,
            }
            if parameters.with_sessions:
                report["percent_of_one_session"] = of_one_session(summaries)
            if on_round is not None:
                on_round(report)
    return report


def check_ourselves(report: Report) -> None:
    """Raise if we failed: then the comparison is nothing to be shown.

    Raises:
        ClusterError: says who of us, in which round, and why.
    """
    for name, peer in report["peers"].items():
        if name.startswith(_US) and peer.get("failures"):
            raise ClusterError(f"{name} failed: {'; '.join(failure_words(failure) for failure in peer['failures'])}")


def rounds_done(report: Report) -> int:
    """How many rounds were run: fewer than were asked for where the run was interrupted."""
    figures = [one for peer in report["peers"].values() for one in peer.get("depths", {}).values()]
    return max((len(one["rounds"]) for one in figures), default=0)


def failure_words(failure: Report) -> str:
    """Return where in the run something went wrong, and what."""
    where = failure["load"] or "at start"
    return f"round {failure['round']}, {where}: {failure['reason']}"


def _failed_words(found: Mapping[str, _Found]) -> str:
    failed = [name for name, one in found.items() if one.failures]
    return f" (failed so far: {', '.join(failed)})" if failed else ""


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(part.lower() in name.lower() for part in parts)


def _measure(
    name: str, parameters: CompareParameters, directory: Path, number: int, found: _Found, *, keep: bool
) -> None:
    """Start a system again, load it at every depth, and stop it; after a failure again for the depths that are left."""
    measured: dict[str, Measured] = {}
    all_points = parameters.points_of(_make_peer(name, parameters))
    points = [*all_points]
    while points:
        peer = _make_peer(name, parameters)
        loading: LoadPoint | None = None
        try:
            with (
                measurement_directory(directory / f"{len(points)}-loads", keep=keep) as start_dir,
                ProcessGroup() as group,
            ):
                peer.start(start_dir, group)
                if peer.warmup_messages:
                    peer.load(
                        inflight=max(parameters.depths), messages=peer.warmup_messages, payload=parameters.payload
                    )
                while points:
                    loading = points.pop(0)
                    measured[loading.name] = _load(peer, loading, parameters, start_dir, group)
        except Exception as error:  # an adapter's own mistakes, too: they are not to cost what the others gave
            found.note(number, loading, error)
            if loading is None:
                break
    for point in all_points:
        found.rounds.setdefault(point.name, []).append(measured.get(point.name))


def _make_peer(name: str, parameters: CompareParameters) -> Peer:
    (peer,) = (peer for peer in parameters.make_peers() if peer.name == name)
    return peer


def _load(
    peer: Peer, point: LoadPoint, parameters: CompareParameters, directory: Path, group: ProcessGroup
) -> Measured:
    """Load a system once to warm it up, and once to measure."""
    payload = parameters.payload
    require_connections(point.sessions)
    if parameters.with_sessions:
        if not isinstance(peer, SessionsPeer):
            raise ConfigurationError(f"{peer.name} has no load of many sessions")
        load = SessionsLoad(
            sessions=point.sessions,
            payload=payload,
            processes=parameters.processes,
            warmup_s=_SESSIONS_WARMUP_S + _SESSION_WARMUP_S * point.sessions,
            measure_s=parameters.seconds,
        )
        return peer.load_sessions(load, directory, group.processes)
    if isinstance(peer, StorePeer):
        count = _operations(point)
        peer.operate(point, messages=max(point.sessions * point.inflight, int(count * _WARMUP_SHARE)), payload=payload)
        return peer.operate(point, messages=count, payload=payload)
    depth = point.inflight
    messages = _messages(peer.name, depth)
    peer.load(inflight=depth, messages=max(depth, int(messages * _WARMUP_SHARE)), payload=payload)
    return peer.load(inflight=depth, messages=messages, payload=payload)


def _operations(point: LoadPoint) -> int:
    """How many operations of a store are enough."""
    if point.operation is StoreOperation.LOCK:
        return _LOCK_OPERATIONS
    count = max(_OPERATIONS.get(point.sessions * point.inflight, 0), 10 * point.sessions)
    return max(count // _LONGER.get(point.operation or StoreOperation.PUT, 1), 2 * point.inflight)


def _messages(name: str, depth: int) -> int:
    """How many messages are enough: ours are over too soon for a steady figure otherwise."""
    return _MESSAGES[depth] * (4 if name.startswith(_US) else 1)


def _summary(
    peer: Peer, version: str | Missing, found: _Found, ours: Mapping[str, list[Measured | None]]
) -> dict[str, Any]:
    if isinstance(version, Missing):
        return {"missing": version.reason}
    depths = {}
    for load, rounds in found.rounds.items():
        worked = [measured for measured in rounds if measured is not None]
        if not worked:
            continue
        rate = _rate(worked)
        depths[load] = {
            "messages_per_s": round(rate),
            "p50_us": _median([measured.p50_us for measured in worked]),
            "p99_us": _median([measured.p99_us for measured in worked]),
            "client_cpu_us": _median([measured.client_cpu_us for measured in worked]),
            "server_cpu_us": _median([measured.server_cpu_us for measured in worked]),
            "rounds": [None if measured is None else round(measured.messages_per_s) for measured in rounds],
        }
        our_rate = _rate(ours.get(load, []))
        if our_rate:
            depths[load]["trimaran_is_times_faster"] = round(our_rate / rate, 2)
    said = {"version": version, "durability": peer.durability, "client": peer.client, "depths": depths}
    return {**said, "failures": found.failures} if found.failures else said


def _rate(rounds: Sequence[Measured | None]) -> float:
    """The median over the rounds that worked; 0 where none did."""
    rates = [measured.messages_per_s for measured in rounds if measured is not None]
    return median(rates) if rates else 0.0


def show(report: Report) -> None:
    """Print what was measured.

    Raises:
        ClusterError: see `check_ourselves`.
    """
    if report["scenario"] == _SESSIONS_SCENARIO["scenario"]:
        print_sessions(report)
        print_failures(report)
    else:
        print_comparison(report)
    check_ourselves(report)


def print_comparison(report: Report) -> None:
    """Print how fast each system is under each load, and how many times faster we are: a row for each system.

    Stores are under many loads, so there each load has a row, and each system that is here a column.
    """
    systems, loads = report["peers"], report["loads"]
    console = Console()
    if report["scenario"] == _SCENARIOS[ComparedWork.KV]["scenario"]:
        present = {name: peer for name, peer in systems.items() if "missing" not in peer}
        table = Table("load", *present)
        table.add_row("an acknowledged write is", *(peer["durability"] for peer in present.values()))
        for load, label in loads.items():
            table.add_row(label, *(_cell(peer, load, label) for peer in present.values()))
    else:
        table = Table("system", "an acknowledged write is", *loads.values())
        for name, peer in systems.items():
            cells = [] if "missing" in peer else [_cell(peer, *each) for each in loads.items()]
            table.add_row(name, peer.get("durability", f"({peer.get('missing')})"), *cells)
    console.print(table)
    for name, peer in systems.items():
        if "missing" in peer:
            console.print(f"{name} was not measured: {peer['missing']}", highlight=False, markup=False)
    print_failures(report)
    for name, reason in report["not_measurable"].items():
        console.print(f"{name} cannot be measured: {reason}")


def _cell(peer: Report, load: str, label: str) -> str:
    """How fast a system is under a load."""
    figures = peer["depths"].get(load)
    if figures is None:
        return why_empty(peer, label)
    ratio, p50_us = figures.get("trimaran_is_times_faster"), figures["p50_us"]
    said = f"{figures['messages_per_s']:,}/s"
    if p50_us is not None and figures["messages_per_s"] < _SLOW_PER_S:
        said += f", {p50_us / 1e3:.3g} ms"
    return said if ratio is None else f"{said}  ({ratio:g}x)"


def why_empty(peer: Report, label: str) -> str:
    """Say why a system has no figure under a load: it failed, or it does not do that."""
    failed = {failure["load"] for failure in peer.get("failures", ())}
    return "failed" if failed & {label, None} else "-"


def print_failures(report: Report) -> None:
    """Print who failed, in which round, and why."""
    console = Console()
    for name, peer in report["peers"].items():
        for failure in peer.get("failures", ()):
            console.print(f"{name} failed in {failure_words(failure)}", highlight=False, markup=False)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 2) if known else None
