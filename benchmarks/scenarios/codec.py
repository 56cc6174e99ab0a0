"""Codec: what a message costs on each hot path, without sockets and without a cluster.

It drives the classes of a node and a client on chunks of messages, so the figures are Python's alone: the kernel's
share of a write or a read, once for hundreds of messages, is left out. See `trimaran.benchmarks.guard.paths`.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from trimaran.service_api.errors import ConfigurationError

from ..guard.paths import make_paths
from ..guard.stand_ins import CHUNK_MESSAGES
from ..machine.environment import describe, tune_garbage_collector
from ..statistics.report import Report, progress_line

_WARMUP_CHUNKS: Final = 20


@dataclass(slots=True, frozen=True, kw_only=True)
class CodecParameters:
    """What one benchmark does.

    Raises:
        ConfigurationError: values that make no run.
    """

    payload: int = 32
    messages: int = 100_000
    """In a round, on each path."""
    rounds: int = 9
    """The median of them counts."""

    def __post_init__(self) -> None:
        if self.payload < 1 or self.messages < CHUNK_MESSAGES or self.rounds < 1:
            raise ConfigurationError(
                f"payload={self.payload} messages={self.messages} rounds={self.rounds} "
                f"expected at least 1, {CHUNK_MESSAGES} and 1"
            )


def run(parameters: CodecParameters) -> Report:
    """Time every path, a round of each after the other, so that a noisy minute is shared by all."""
    paths = {name: make() for name, make in make_paths(parameters.payload).items()}
    chunks = parameters.messages // CHUNK_MESSAGES
    tune_garbage_collector()
    for path in paths.values():
        for _ in range(_WARMUP_CHUNKS):
            path()
    rounds: dict[str, list[float]] = {name: [] for name in paths}
    with progress_line(parameters.rounds) as progress:
        for number in range(parameters.rounds):
            for name, path in paths.items():
                started_ns = time.perf_counter_ns()
                for _ in range(chunks):
                    path()
                rounds[name].append((time.perf_counter_ns() - started_ns) / (chunks * CHUNK_MESSAGES))
            progress.update(number + 1)
    return {
        "scenario": "codec",
        **{f"{name}_ns": round(median(times)) for name, times in rounds.items()},
        "rounds_ns": {name: [round(value) for value in times] for name, times in rounds.items()},
        "parameters": asdict(parameters),
        "environment": describe(None),
    }
