"""Ourselves and every peer that is installed, under the same load, interleaved.

In each round every system is started anew in an empty directory, warmed up, loaded at each depth and stopped, so that a
noisy minute of the machine is nobody's alone. Medians over the rounds, and how many times faster we are. Beside every
figure stands what an acknowledgement promises: like is to be compared with like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from service_api.errors import ConfigurationError

from ..data_directory import data_directory
from ..disk import settle_disk
from ..environment import describe
from ..peers.etcd import Etcd, EtcdTransactions
from ..peers.jetstream import JetStream
from ..peers.peer import Measured, Missing, Peer
from ..peers.pysyncobj import PySyncObj
from ..peers.quorate import Quorate
from ..peers.redis import Redis
from ..peers.zookeeper import ZooKeeper
from ..processes import ProcessGroup
from ..report import Report, progress_line

OURS: Final = "Quorate, file sync level 1"

NOT_MEASURABLE: Final = {
    "raftos": "raftos 0.2.6 needs Python 3.9 or older: it passes loop= to asyncio.Queue, which 3.10 removed, and pins "
    "cryptography 1.5.3, which does not build any more",
}

_MESSAGES: Final = {1: 400, 64: 12_000, 1024: 60_000}
"""To measure, by depth: about a second or two of a peer's time."""

_WARMUP_SHARE: Final = 0.2


@dataclass(slots=True, frozen=True, kw_only=True)
class CompareParameters:
    """What one comparison does.

    Raises:
        ConfigurationError: values that make no run.
    """

    rounds: int = 5
    payload: int = 32
    depths: tuple[int, ...] = (1, 64, 1024)
    peers: tuple[str, ...] = ()
    """Only those whose names contain one of these; empty: all."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.payload < 8:
            raise ConfigurationError(f"rounds={self.rounds} payload={self.payload} expected at least 1 and 8")
        if not self.depths or any(depth not in _MESSAGES for depth in self.depths):
            raise ConfigurationError(f"depths={self.depths} expected some of {sorted(_MESSAGES)}")


def make_peers() -> list[Peer]:
    """Make everybody, ourselves first."""
    return [
        Quorate(1),
        Quorate(0),
        Etcd(),
        EtcdTransactions(),
        ZooKeeper(),
        JetStream(),
        PySyncObj(),
        Redis(),
    ]


def run(parameters: CompareParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the comparison; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: a system that is installed could not be measured.
    """
    wanted = [peer for peer in make_peers() if _is_wanted(peer.name, parameters.peers)]
    found = {peer.name: peer.find() for peer in wanted}
    present = [peer.name for peer in wanted if not isinstance(found[peer.name], Missing)]
    if not present:
        raise ConfigurationError(f"peers={parameters.peers} expected some of {[peer.name for peer in make_peers()]}")
    results: dict[str, dict[int, list[Measured]]] = {name: {} for name in present}
    with (
        data_directory(directory, "compare", keep=keep) as data_dir,
        progress_line(parameters.rounds * len(present)) as progress,
    ):
        environment = describe(data_dir)
        done = 0
        for number in range(parameters.rounds):
            for index, name in enumerate(present):
                progress.describe(f"round {number + 1}/{parameters.rounds}: {name}")
                peer_dir = data_dir / f"round-{number}-{index}"
                peer_dir.mkdir()
                for depth, measured in _measure(name, parameters, peer_dir).items():
                    results[name].setdefault(depth, []).append(measured)
                done += 1
                progress.update(done)
    return {
        "scenario": "compare",
        "peers": {
            peer.name: _summary(peer, found[peer.name], results.get(peer.name, {}), results.get(OURS, {}))
            for peer in wanted
        },
        "not_measurable": NOT_MEASURABLE,
        "parameters": asdict(parameters),
        "environment": environment,
    }


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(part.lower() in name.lower() for part in parts)


def _measure(name: str, parameters: CompareParameters, directory: Path) -> dict[int, Measured]:
    """Start a system anew, load it at every depth, and stop it."""
    settle_disk()
    (peer,) = (peer for peer in make_peers() if peer.name == name)
    measured = {}
    with ProcessGroup() as group:
        peer.start(directory, group)
        if peer.warmup_messages:
            peer.load(inflight=max(parameters.depths), messages=peer.warmup_messages, payload=parameters.payload)
        for depth in parameters.depths:
            messages = _messages(name, depth)
            warmup = max(depth, int(messages * _WARMUP_SHARE))
            peer.load(inflight=depth, messages=warmup, payload=parameters.payload)
            measured[depth] = peer.load(inflight=depth, messages=messages, payload=parameters.payload)
    return measured


def _messages(name: str, depth: int) -> int:
    """How many messages are enough: ours are over too soon for a steady figure otherwise."""
    return _MESSAGES[depth] * (4 if name.startswith("Quorate") else 1)


def _summary(
    peer: Peer, found: str | Missing, results: dict[int, list[Measured]], ours: dict[int, list[Measured]]
) -> dict[str, Any]:
    if isinstance(found, Missing):
        return {"missing": found.reason}
    depths = {}
    for depth, rounds in results.items():
        rate = median(measured.messages_per_s for measured in rounds)
        depths[str(depth)] = {
            "messages_per_s": round(rate),
            "p50_us": _median([measured.p50_us for measured in rounds]),
            "p99_us": _median([measured.p99_us for measured in rounds]),
            "client_cpu_us": _median([measured.client_cpu_us for measured in rounds]),
            "rounds": [round(measured.messages_per_s) for measured in rounds],
        }
        if depth in ours:
            ratio = median(measured.messages_per_s for measured in ours[depth]) / rate
            depths[str(depth)]["quorate_is_times_faster"] = round(ratio, 2)
    return {"version": found, "durability": peer.durability, "client": peer.client, "depths": depths}


def print_comparison(report: Report) -> None:
    """Print a row for each system: what it promises, how fast it is at each depth, how many times faster we are."""
    depths = [str(depth) for depth in report["parameters"]["depths"]]
    table = Table("system", "an acknowledged message is", *(f"{depth} in flight" for depth in depths))
    for name, peer in report["peers"].items():
        if "missing" in peer:
            table.add_row(name, f"({peer['missing']})")
            continue
        cells = []
        for figures in (peer["depths"][depth] for depth in depths):
            ratio = figures.get("quorate_is_times_faster")
            cells.append(f"{figures['messages_per_s']:,}/s" + ("" if ratio is None else f"  ({ratio:g}x)"))
        table.add_row(name, peer["durability"], *cells)
    console = Console()
    console.print(table)
    for name, reason in report["not_measurable"].items():
        console.print(f"{name} cannot be measured: {reason}")


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 2) if known else None
