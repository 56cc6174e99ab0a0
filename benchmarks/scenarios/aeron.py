"""Beside Aeron's own Java: three members of each in turn, an echo service, one client, and the same messages.

`AERON_RIG` names a folder with a build of Aeron and of two small programs that use it: `lib/aeron.jar`, `agrona.jar`,
`sbe.jar` and `rig.jar`, whose `peerbench.BenchNode` is one member with an echo service and whose
`peerbench.BenchClient` is a closed loop that prints a line of JSON for each depth. Nothing of Aeron is in this project.

A member of Aeron runs driver, archive, consensus module and service in one thread, the fastest way on few cores. Both
have a CRC-32 in every frame. The systems change places from round to round, so a noisy minute is nobody's alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, TypeAlias
from zipfile import ZipFile

import typer

from ...service_api.errors import ClusterTimeoutError, ConfigurationError
from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import Payload, Rounds
from ..peers.peer import MEMBERS, Missing, find_program, wait_until
from ..rig.processes import ProcessError, ProcessGroup
from ..statistics.report import Report, print_table, progress_line
from . import echo
from .echo import EchoParameters

RIG_VARIABLE: Final = "AERON_RIG"
TRIMARAN: Final = "trimaran"
AERON: Final = "aeron"

_JARS: Final = ("agrona.jar", "aeron.jar", "sbe.jar", "rig.jar")
_PORTS_PER_MEMBER: Final = 10
_CLIENT_LIMIT_S: Final = 300.0
_PORT_ATTEMPTS: Final = 100
_ATTEMPTS: Final = 3
"""An election of Aeron can fail on a busy machine: then everything begins again."""
_WARMUP_MESSAGES: Final = 100_000
"""Both of Java's compilers need some."""
_OPTIONS: Final = (
    *("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xms256m", "-Xmx512m"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:GuaranteedSafepointInterval=300000"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    *("--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens", "java.base/java.util.zip=ALL-UNNAMED"),
)
_PROPERTIES: Final[Mapping[str, object]] = {
    "java.net.preferIPv4Stack": "true",
    "agrona.disable.bounds.checks": "true",
    "aeron.print.configuration": "false",
    "aeron.socket.so_sndbuf": "2m",
    "aeron.socket.so_rcvbuf": "2m",
    "aeron.rcv.initial.window.length": "256k",
    "aeron.term.buffer.sparse.file": "true",
    "aeron.mtu.length": 8192,
    "aeron.ipc.mtu.length": 8192,
}

Figures: TypeAlias = dict[str, float]
"""`messages_per_s` and `p50_us`."""


@dataclass(slots=True, frozen=True, kw_only=True)
class AeronParameters:
    """Parameters of one run."""

    rounds: Rounds = 3
    depths: Annotated[tuple[int, ...], typer.Option(min=1, help="Messages in flight.")] = (1, 64, 1024, 4096)
    levels: Annotated[tuple[int, ...], typer.Option(min=0, help="File sync levels: 0 page cache, 1 fdatasync.")] = (
        1,
        0,
    )
    payload: Payload = 32
    messages: Annotated[
        int, typer.Option(min=100, help="Messages at the deepest; 1 in flight: a thirtieth; 64: a third.")
    ] = 200_000

    def count(self, depth: int) -> int:
        """Return how many messages are measured with so many in flight."""
        share = 30 if depth == 1 else 3 if depth <= 64 else 1
        return max(self.messages // share, depth)


@dataclass(slots=True, frozen=True)
class AeronRig:
    """A build of Aeron, and the version that it says it is."""

    library: Path
    version: str

    @classmethod
    def find(cls) -> AeronRig:
        """Find the build that the environment names.

        Raises:
            ConfigurationError: there is none, or no Java; says what to do.
        """
        named = os.environ.get(RIG_VARIABLE, "")
        library = Path(named) / "lib"
        absent = [jar for jar in _JARS if not (library / jar).is_file()] if named else []
        if not named or absent:
            found = f"lacks {', '.join(f'lib/{jar}' for jar in absent)}" if named else "is not set"
            raise ConfigurationError(
                f"{RIG_VARIABLE}={named} {found}: expected a folder with {', '.join(f'lib/{jar}' for jar in _JARS)}, "
                "a build of Aeron and of the programs that measure it. Without one, this comparison cannot run; "
                "docs/performance.md has the figures of the last one"
            )
        java = find_program("java", "-version")
        if isinstance(java, Missing):
            raise ConfigurationError(f"{java.reason}: Aeron needs Java 17 or newer")
        return cls(library, _version_in(library / "aeron.jar"))

    def command(self, program: str, properties: Mapping[str, object]) -> list[str]:
        """Return the command line of a program with its properties."""
        path = ":".join(str(self.library / jar) for jar in _JARS)
        given = [f"-D{name}={value}" for name, value in {**_PROPERTIES, **properties}.items()]
        return ["java", *_OPTIONS, *given, "-cp", path, program]


def run(parameters: AeronParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run all rounds; every process that it starts has ended when it returns or raises.

    Raises:
        ConfigurationError: no build of Aeron is here.
        ClusterError: a measurement failed.
    """
    rig = AeronRig.find()
    found: dict[tuple[int, int], dict[str, list[Figures]]] = {
        (level, depth): {TRIMARAN: [], AERON: []} for level in parameters.levels for depth in parameters.depths
    }
    total = 2 * parameters.rounds * len(parameters.levels)
    done = 0
    with data_directory(directory, "aeron", keep=keep) as data_dir, progress_line(total) as progress:
        environment = describe(data_dir)
        for number in range(parameters.rounds):
            for level in parameters.levels:
                for system in (AERON, TRIMARAN) if number % 2 == 0 else (TRIMARAN, AERON):
                    progress.describe(f"round {number + 1}/{parameters.rounds}: {system}, level {level}")
                    with measurement_directory(data_dir / f"{done}", keep=keep) as place:
                        measured = (
                            _measure_aeron(rig, parameters, level, place)
                            if system == AERON
                            else _measure_trimaran(parameters, level, place)
                        )
                    for depth, figures in measured.items():
                        found[level, depth][system].append(figures)
                    done += 1
                    progress.update(done)
    return {
        "scenario": "aeron",
        "aeron_version": rig.version,
        "rows": [_row(level, depth, systems) for (level, depth), systems in found.items()],
        "parameters": asdict(parameters),
        "environment": environment,
    }


def print_rows(report: Report) -> None:
    """Print a line for each load: both rates, and how many times faster Trimaran is."""
    rows = {
        f"level {row['file_sync_level']}, {row['inflight']:,} in flight": (
            f"{row['times']:.2f} x; Trimaran {_said(row[TRIMARAN])}; Aeron {_said(row[AERON])}"
        )
        for row in report["rows"]
    }
    print_table(f"Trimaran beside Aeron {report['aeron_version']} in Java", rows)


def _said(figures: Figures) -> str:
    return f"{figures['messages_per_s']:,.0f}/s, p50 {figures['p50_us']:,.0f} µs"


def _row(level: int, depth: int, systems: Mapping[str, list[Figures]]) -> dict[str, Any]:
    """Put the rounds of one load together: medians, and the median of the rounds' ratios."""
    pairs = zip(systems[TRIMARAN], systems[AERON], strict=True)
    return {
        "file_sync_level": level,
        "inflight": depth,
        **{
            system: {name: round(median(each[name] for each in rounds)) for name in ("messages_per_s", "p50_us")}
            for system, rounds in systems.items()
        },
        "times": round(median(ours["messages_per_s"] / theirs["messages_per_s"] for ours, theirs in pairs), 2),
    }


def _measure_trimaran(parameters: AeronParameters, level: int, place: Path) -> dict[int, Figures]:
    measured = {}
    for depth in parameters.depths:
        count = parameters.count(depth)
        given = EchoParameters(
            payload=parameters.payload,
            inflight=depth,
            messages=count,
            warmup=max(depth, min(20_000, count // 3)),
            file_sync_level=level,
        )
        report = echo.run(given, directory=place / f"{depth}")
        measured[depth] = {"messages_per_s": report["throughput_msgs_per_s"], "p50_us": report["p50_us"]}
    return measured


def _measure_aeron(rig: AeronRig, parameters: AeronParameters, level: int, place: Path) -> dict[int, Figures]:
    """Measure all depths on one cluster.

    Raises:
        ProcessError: it did not answer, three times; the message has what was printed last.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with measurement_directory(place / f"{attempt}", keep=True) as tried:
                return _try_aeron(rig, parameters, level, tried)
        except (ProcessError, ClusterTimeoutError):
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError


def _try_aeron(rig: AeronRig, parameters: AeronParameters, level: int, place: Path) -> dict[int, Figures]:
    base_port = _free_datagram_ports(MEMBERS * _PORTS_PER_MEMBER)
    with ProcessGroup() as group, _driver_directories() as drivers:
        logs = [place / f"node{member}.log" for member in range(MEMBERS)]
        for member, log in enumerate(logs):
            properties = {
                "node.id": member,
                "port.base": base_port,
                "node.sync": level,
                "node.crc": "true",
                "aeron.dir.name": drivers / f"{member}",
                "data.dir": place / f"node{member}",
            }
            group.spawn(f"aeron-{member}", rig.command("peerbench.BenchNode", properties), log_path=log)
        wait_until(lambda: any("ROLE LEADER" in log.read_text() for log in logs), "a leader of Aeron", group)
        depths = parameters.depths
        properties = {
            "port.base": base_port,
            "payload": parameters.payload,
            "inflight": ",".join(map(str, depths)),
            "count": ",".join(str(parameters.count(depth)) for depth in depths),
            "warm": min(_WARMUP_MESSAGES, parameters.messages),
            "aeron.dir.name": drivers / "client",
        }
        command = rig.command("peerbench.BenchClient", properties)
        try:
            client = subprocess.run(command, capture_output=True, text=True, timeout=_CLIENT_LIMIT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise ClusterTimeoutError(f"Aeron's client did not end within {_CLIENT_LIMIT_S:g} s") from error
    lines = [json.loads(line) for line in client.stdout.splitlines() if line.startswith("{")]
    if [line["inflight"] for line in lines] != list(depths):
        said = (client.stdout + client.stderr)[-1_000:]
        raise ProcessError(f"Aeron's client measured {len(lines)} of {len(depths)} depths: {said}")
    return {line["inflight"]: {"messages_per_s": line["thr"], "p50_us": line["p50_us"]} for line in lines}


def _free_datagram_ports(count: int) -> int:
    """Find consecutive ports of 127.0.0.1 that no process has bound for datagrams just now; return the first.

    Raises:
        ProcessError: there are none.
    """
    for _ in range(_PORT_ATTEMPTS):
        with ExitStack() as stack:
            first = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            first.bind(("127.0.0.1", 0))
            base_port: int = first.getsockname()[1]
            try:
                for port in range(base_port + 1, base_port + count):
                    stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return base_port
    raise ProcessError(f"no free ports: wanted={count} consecutive ones for datagrams")


@contextmanager
def _driver_directories() -> Iterator[Path]:
    """Make a directory for media drivers, in shared memory where there is any, as Aeron itself does."""
    shared = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="trimaran-bench-aeron-", dir=shared if os.access(shared, os.W_OK) else None))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _version_in(jar: Path) -> str:
    """Read the version that a build says it is, in its manifest or its version class; "unknown" if nowhere."""
    with ZipFile(jar) as archive:
        for name, pattern in (
            ("META-INF/MANIFEST.MF", rb"Implementation-Version: *([0-9][^\s]*)"),
            ("io/aeron/AeronVersion.class", rb"([0-9]+\.[0-9]+\.[0-9]+[-A-Z]*)"),
        ):
            if name in archive.namelist():
                found = re.search(pattern, archive.read(name))
                if found:
                    return found[1].decode()
    return "unknown"
