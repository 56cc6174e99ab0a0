"""`python -m trimaran.benchmarks COMMAND`: run a benchmark, print its figures, write them to a file."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog
import typer

from ..service_api.distribution import install_advice
from ..service_api.errors import ClusterError, ConfigurationError, first_leaf

_HELP: Final = """Benchmarks of Trimaran.

Begin with `echo`, which starts three members and takes half a minute. `make bench` measures every target in ten minutes
and writes docs/performance.md; `make peers` installs what `compare` and `profile` need."""


@dataclass(slots=True, frozen=True)
class CommandRow:
    """A command, which is imported when it is run. `show` prints its report; "": all of its figures."""

    panel: str
    module: str
    parameters: str
    """The dataclass of its options; "": the command is a function of its own name."""
    help: str
    show: str = ""

    def load(self, name: str) -> Callable[..., None]:
        """Import the command."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        function: Callable[..., None]
        if not self.parameters:
            function = getattr(module, name)
            return function
        from .options import make_command
        from .statistics.report import print_figures

        show = getattr(module, self.show) if self.show else print_figures
        return make_command(getattr(module, self.parameters), module.run, show=show)


_LOAD: Final = "A cluster under load"
_GROWTH: Final = "How cost grows"
_STATE: Final = "Logs, snapshots and backups"
_FAULTS: Final = "Faults"
_SPARK: Final = "Spark"
_TARGETS: Final = "Targets, others, and the page"
_CODE: Final = "Where the time goes"

COMMANDS: Final = {
    "echo": CommandRow(
        *(_LOAD, "scenarios.echo", "EchoParameters"),
        "A service that sends every message back: throughput, latency, CPU time by process.",
    ),
    "request": CommandRow(
        *(_LOAD, "scenarios.request", "RequestParameters"),
        "Requests that run exactly once: how many a second, and how long each takes.",
    ),
    "typed": CommandRow(
        *(_LOAD, "scenarios.typed", "TypedParameters"),
        "Echoes, requests as bytes, as classes, in batches and with double execution: the cost of each layer.",
        "print_cases",
    ),
    "tails": CommandRow(
        *(_LOAD, "tails.tails", "TailsParameters"),
        "Open loops at half of the peak, disturbances beside the calm, slow callbacks: how steady latencies are.",
        "print_tails",
    ),
    "stops": CommandRow(
        *(_LOAD, "scenarios.stops", "StopsParameters"),
        "The longest that a loop is busy with one turn, by what a member does beside the log.",
        "print_stops",
    ),
    "fairness": CommandRow(
        *(_LOAD, "scenarios.fairness", "FairnessParameters"),
        "Clients with one message in flight each, alone and beside a greedy client.",
    ),
    "encryption": CommandRow(
        *(_LOAD, "scenarios.encryption", "EncryptionParameters"),
        "The cost of TLS: echoes and a catch-up in plain text and with TLS, interleaved.",
        "print_rows",
    ),
    "flood": CommandRow(
        *(_LOAD, "scenarios.flood", "FloodParameters"),
        "Hostile clients against the leader: its memory, and the answers of an honest client meanwhile.",
    ),
    "scan": CommandRow(
        *(_GROWTH, "scenarios.scan", "ScanParameters"),
        "Echoes by payload, messages in flight, members, sessions and length of the log, one varied at a time.",
        "print_points",
    ),
    "opening": CommandRow(
        *(_GROWTH, "scenarios.opening", "OpeningParameters"),
        "Many sessions: to open them, to hold them, and until the next leader has answered all.",
        "print_cases",
    ),
    "memory": CommandRow(
        *(_GROWTH, "scenarios.memory", "MemoryParameters"),
        "Resident memory of members by sessions, keys, queued jobs and messages, beside etcd's and Redis'.",
        "print_memory",
    ),
    "groups": CommandRow(
        *(_GROWTH, "scenarios.groups", "GroupsParameters"),
        "One, two and four groups with the same number of messages in flight.",
    ),
    "replay": CommandRow(
        *(_STATE, "scenarios.replay", "ReplayParameters"),
        "A node starts with a long log and no snapshot: messages a second through its service, time, memory.",
    ),
    "catchup": CommandRow(
        *(_STATE, "scenarios.catchup", "CatchupParameters"),
        "A member comes back to a busy cluster: megabytes a second of its catch-up, and latencies meanwhile.",
    ),
    "snapshots": CommandRow(
        *(_STATE, "scenarios.snapshots", "SnapshotsParameters"),
        "A cluster with much state takes snapshots under load, in each way: how long everything stands still.",
        "print_ways",
    ),
    "backup": CommandRow(
        *(_STATE, "backups.following", "BackupParameters"),
        "A backup follows a busy cluster: the age of the newest message that could be restored.",
    ),
    "restore": CommandRow(
        *(_STATE, "backups.restoring", "RestoreParameters"),
        "From a backup to a cluster that serves: restore, start, replay of the whole log.",
    ),
    "failover": CommandRow(
        *(_FAULTS, "scenarios.failover", "FailoverParameters"),
        "The leader dies, stands still, is cut off or hands over: time until the next leader has committed a message.",
    ),
    "chaos": CommandRow(
        *(_FAULTS, "chaos.command", ""),
        "Real processes under checked load and real faults, drawn by seed; exit status 1 on a violation.",
    ),
    "spark": CommandRow(
        *(_SPARK, "scenarios.spark", "SparkParameters"),
        "A log through Spark's data source, beside the same rows from Parquet.",
    ),
    "stream": CommandRow(
        *(_SPARK, "scenarios.stream", "StreamParameters"),
        "A Spark query follows a live log: how long after the leader took a message it is in the sink.",
    ),
    "table": CommandRow(
        *(_TARGETS, "scenarios.table", "TableParameters"),
        "Every row of the targets: measured, target, reached.",
        "print_targets",
    ),
    "aeron": CommandRow(
        *(_TARGETS, "scenarios.aeron", "AeronParameters"),
        "Aeron's own Java in the same hour, where AERON_RIG names a build: echoes by depth and file sync level.",
        "print_rows",
    ),
    "compare": CommandRow(
        *(_TARGETS, "scenarios.compare", "CompareParameters"),
        "Trimaran, etcd, ZooKeeper, NATS JetStream, PySyncObj and Redis, as far as installed: see `make peers`.",
        "show",
    ),
    "performance": CommandRow(
        *(_TARGETS, "page.performance_page", ""),
        "Write docs/performance.md and its plots from benchmarks/results/*.json.",
    ),
    "profile": CommandRow(
        *(_CODE, "scenarios.profile", "ProfileParameters"),
        "Where each microsecond of leader, follower and client goes at peak: by stage, with perf and py-spy.",
        "print_profile",
    ),
    "guard": CommandRow(
        *(_CODE, "guard.guard", ""),
        "Instructions of each hot path under callgrind, beside the stored ones; fails where they grew by over 5 %.",
    ),
}


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the app for these arguments: the command that they name is imported, the others are names only."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        rich_markup_mode="markdown",
        help=_HELP,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_choose)
    for name, command in COMMANDS.items():
        function = command.load(name) if name in arguments[:1] else _not_imported
        app.command(name, help=command.help, rich_help_panel=command.panel)(function)
    return app


def _choose() -> None:
    """Choose a command."""


def _not_imported() -> None:
    """Stand for a command that the arguments do not name."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; a failure is one line on standard error."""
    # Ending in order, with every child, is what Ctrl-C does; SIGTERM is to do the same.
    signal.signal(signal.SIGTERM, _interrupt)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    given = sys.argv[1:] if arguments is None else arguments
    try:
        build_app(given)(args=given, prog_name="python -m trimaran.benchmarks")
    except ModuleNotFoundError as error:
        print(f"benchmarks: {given[0]} needs {error.name}: {install_advice('bench')}", file=sys.stderr)
        sys.exit(2)
    except (ClusterError, BaseExceptionGroup) as error:
        leaf = first_leaf(error)
        if not isinstance(leaf, ClusterError):
            raise
        print(f"benchmarks: {leaf}", file=sys.stderr)
        sys.exit(2 if isinstance(leaf, ConfigurationError) else 1)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
