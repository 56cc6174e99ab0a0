"""Time travel: how many messages a second a log delivers to a service without a cluster, and what listening costs.

One log with snapshots at equal distances, in the page cache, and a small service. In each round every way takes its
turn, and the median round counts. Rates of one process are by its processor time, what one core does, whatever else the
machine does; those of Spark, which runs a task for each stretch between two snapshots, are by the clock, with its first
query left out: workers start then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from trimaran.cluster.time_travel import replay_service, verify_snapshots, what_if
from trimaran.service_api.errors import ConfigurationError

from ..logs.time_travel_log import make_log
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..services.time_travel import AnsweringSumService, RoundingSumService, SumService
from ..statistics.report import Report, progress_line

SPARK_TARGET_PER_S: Final = 1_360_000
"""What a prototype reached on two cores with a service like `SumService`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TimeTravelParameters:
    """What one benchmark does.

    Raises:
        ConfigurationError: values that make no run.
    """

    messages: int = 2_000_000
    payload: int = 32
    snapshots: int = 4
    rounds: int = 3
    with_spark: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.messages < 1000 * max(1, self.snapshots) or self.rounds < 1 or self.payload < 16:
            raise ConfigurationError(
                f"messages={self.messages} rounds={self.rounds} payload={self.payload} expected at least 1000 messages "
                "for each snapshot, 1 round, 16 bytes"
            )


def run(parameters: TimeTravelParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Make the log and replay it in rounds."""
    with data_directory(directory, "time-travel", keep=keep) as path:
        member = path / "node"
        asyncio.run(
            make_log(
                member,
                AnsweringSumService,
                message_count=parameters.messages,
                payload_length=parameters.payload,
                snapshot_count=parameters.snapshots,
            )
        )
        ways = _ways(member, parameters.messages)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        with progress_line(parameters.rounds * len(ways)) as progress:
            for number in range(parameters.rounds):
                for index, (name, way) in enumerate(ways.items()):
                    progress.describe(f"round {number + 1}: {name}")
                    began_s = time.process_time()
                    way()
                    seconds[name].append(time.process_time() - began_s)
                    progress.update(number * len(ways) + index + 1)
        rates = {name: round(parameters.messages / median(taken)) for name, taken in seconds.items()}
        report: Report = {"scenario": "time-travel", "messages_per_cpu_s": rates}
        if parameters.with_spark:
            report["spark_messages_per_s"] = _measure_spark(member, parameters)
        return report | {"parameters": asdict(parameters), "environment": describe(path)}


def _ways(member: Path, message_count: int) -> dict[str, Callable[[], object]]:
    def expect_all(service: type[SumService], is_told: bool = False) -> None:
        told = [0]

        def sink(output: object) -> None:
            told[0] += 1

        replayed = replay_service(member, service, snapshot="none", sink=sink if is_told else None).service
        assert isinstance(replayed, SumService)
        if replayed.message_count != message_count or (is_told and told[0] != message_count):
            raise AssertionError(f"replayed={replayed.message_count} told={told} expected={message_count}")

    return {
        "state": lambda: expect_all(SumService),
        "state, answers counted": lambda: expect_all(AnsweringSumService),
        "state, answers told": lambda: expect_all(AnsweringSumService, is_told=True),
        "what if, same rule": lambda: what_if(member, old=AnsweringSumService, new=AnsweringSumService),
        "what if, changed rule": lambda: what_if(member, old=AnsweringSumService, new=RoundingSumService),
        "verify snapshots": lambda: verify_snapshots(member, AnsweringSumService),
    }


def _measure_spark(member: Path, parameters: TimeTravelParameters) -> dict[str, int]:
    """Replay with two tasks at once."""
    from trimaran.archive.spark import create_session
    from trimaran.cluster.time_travel.spark import replay_outputs, snapshot_verdicts

    spark = create_session("time-travel", master="local[2]", config={"spark.driver.memory": "1g"})
    try:
        queries: dict[str, Callable[[], int]] = {
            "verify snapshots": lambda: snapshot_verdicts(spark, member, SumService.__module__ + ":SumService").count(),
            "answers as rows": lambda: replay_outputs(spark, member, AnsweringSumService).count(),
        }
        rates = {}
        for name, query in queries.items():
            query()
            taken = []
            for _ in range(parameters.rounds):
                began_s = time.monotonic()
                query()
                taken.append(time.monotonic() - began_s)
            rates[name] = round(parameters.messages / median(taken))
        return rates
    finally:
        spark.stop()
