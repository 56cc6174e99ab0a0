"""Archive: how fast recordings are read, by what is asked for, beside `zlib.crc32` over the same files.

Everything is read from the page cache by one thread, so nothing waits, and rates are by the processor time of the
process: what one core does, whatever else the machine does. In each round every reader takes its turn on every
recording, and the median round counts. The reference reads the files in blocks, as the readers do, and hands each to
`zlib.crc32`: a reader that checks checksums with it cannot be faster. `verify` is the command itself, in a process of
its own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final

from trimaran.archive import RecordingDescriptor
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.reading.frame_batches import FrameSelection, ReadProblem, make_schema, read_batches
from trimaran.archive.reading.frame_columns import FRAME_COLUMNS, HEADER_COLUMNS, MESSAGE_COLUMNS
from trimaran.archive.reading.vector.scan import BLOCK_LENGTH_BYTES, FrameScanner
from trimaran.service_api.errors import ClusterError, ConfigurationError
from trimaran.service_api.types import TimeUnit

from ..logs.recordings import TERM_LENGTH_BYTES, make_recording
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..statistics.report import Report, progress_line

_MIB: Final = 1 << 20
_PLAIN_READER_FRAMES: Final = 50_000
"""How many frames `FrameReader` reads in a round: all of them would take most of the time."""


def _mixed_length(pick: random.Random) -> int:
    """Mostly short messages, some of middling length, now and then one of several frames."""
    share = pick.random()
    if share < 0.6:
        return pick.randrange(64, 257)
    return pick.randrange(257, 1024) if share < 0.9 else 1408


SHAPES: Final[dict[str, Callable[[random.Random], int]]] = {
    "1024 B": lambda pick: 1024,
    "96 B": lambda pick: 96,
    "mixed": _mixed_length,
}
"""The recordings, by the lengths of their frames with header."""

COLUMN_SETS: Final[dict[str, tuple[str, ...]]] = {
    "headers": HEADER_COLUMNS,
    "headers and messages": (*HEADER_COLUMNS, *MESSAGE_COLUMNS),
    "all columns": FRAME_COLUMNS,
}


@dataclass(slots=True, frozen=True, kw_only=True)
class ArchiveParameters:
    """What is read, and how often."""

    mib: int = 128
    """The length of each recording, in whole terms of 16 MiB."""
    rounds: int = 7
    verify_mib: int = 1024
    """The length of the recording that is verified; 0 leaves that out."""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        shortest = TERM_LENGTH_BYTES // _MIB
        if self.mib < shortest or 0 < self.verify_mib < shortest or self.verify_mib < 0:
            raise ConfigurationError(f"mib={self.mib} verify_mib={self.verify_mib} expected at least {shortest} each")
        if self.rounds < 1:
            raise ConfigurationError(f"rounds={self.rounds} expected at least 1")


def run(parameters: ArchiveParameters, *, directory: Path | None, keep: bool) -> Report:
    """Make the recordings, read them in rounds, verify a long one."""
    with data_directory(directory, "archive", keep=keep) as path:
        work_count = len(SHAPES) * (parameters.rounds + 1) + 2
        with progress_line(work_count) as progress:
            done = 0
            readings: dict[str, dict[str, Reading]] = {}
            for name, lengths in SHAPES.items():
                progress.describe(f"making frames of {name}")
                place = path / name.replace(" ", "-")
                place.mkdir()
                readings[name] = _readings(place, make_recording(place, parameters.mib * _MIB, lengths))
                progress.update(done := done + 1)
            seconds: dict[str, dict[str, list[float]]] = {
                name: {kind: [] for kind in kinds} for name, kinds in readings.items()
            }
            for number in range(parameters.rounds):
                for name, kinds in readings.items():
                    progress.describe(f"round {number + 1}: frames of {name}")
                    for kind, reading in kinds.items():
                        seconds[name][kind].append(reading.measure())
                    progress.update(done := done + 1)
            figures: Report = {name: _figures(kinds, seconds[name]) for name, kinds in readings.items()}
            if parameters.verify_mib:
                progress.describe("verifying a long recording")
                figures["verify"] = _verify(path / "verify", parameters.verify_mib * _MIB)
            progress.update(work_count)
        return {
            "scenario": "archive",
            **figures,
            "parameters": {"mib": parameters.mib, "rounds": parameters.rounds, "verify_mib": parameters.verify_mib},
            "environment": {
                **describe(path),
                "numpy": version("numpy"),
                "pyarrow": version("pyarrow"),
                "zlib": zlib.ZLIB_RUNTIME_VERSION,
                "page_cache": "warm",
            },
        }


@dataclass(slots=True, frozen=True)
class Reading:
    """One way of reading a recording: what it does, and how many bytes and frames that are."""

    read: Callable[[], int]
    """Reads, and gives the frames read."""
    frame_count: int
    length_bytes: int

    def measure(self) -> float:
        """Read once; give the seconds of processor time.

        Raises:
            ClusterError: another number of frames was read than are there.
        """
        begin_s = time.process_time()
        count = self.read()
        duration_s = time.process_time() - begin_s
        if count != self.frame_count:
            raise ClusterError(f"frames read: {count} expected={self.frame_count}")
        return duration_s


def _readings(directory: Path, descriptor: RecordingDescriptor) -> dict[str, Reading]:
    assert descriptor.stop_position is not None
    length = descriptor.stop_position
    count = sum(map(len, FrameScanner(directory, descriptor, checksummed=False)))
    few = list(islice(FrameReader(directory, descriptor, checksummed=False), _PLAIN_READER_FRAMES))

    def scan(*, checksums: bool) -> Reading:
        return Reading(lambda: sum(map(len, FrameScanner(directory, descriptor, checksummed=checksums))), count, length)

    def batches(columns: Sequence[str], *, checksums: bool) -> Reading:
        schema = make_schema(columns, TimeUnit.MILLIS)
        selection = FrameSelection(checksums=checksums)
        return Reading(
            lambda: sum(b.num_rows for b in read_batches(directory, descriptor, selection, schema, _fail)),
            count,
            length,
        )

    def one_by_one(*, checksums: bool) -> Reading:
        return Reading(
            lambda: sum(
                1 for _ in FrameReader(directory, descriptor, stop_position=few[-1].end_position, checksummed=checksums)
            ),
            len(few),
            few[-1].end_position,
        )

    return {
        "zlib.crc32 over the files": Reading(lambda: _read_with_crc(directory, length) or count, count, length),
        "scan": scan(checksums=False),
        "scan, checksums": scan(checksums=True),
        **{name: batches(columns, checksums=False) for name, columns in COLUMN_SETS.items()},
        "all columns, checksums": batches(FRAME_COLUMNS, checksums=True),
        "FrameReader": one_by_one(checksums=False),
        "FrameReader, checksums": one_by_one(checksums=True),
    }


def _read_with_crc(directory: Path, length: int) -> int:
    """The reference: read what the readers read, in the same blocks, and compute its CRC-32. Gives 0."""
    buffer = bytearray(BLOCK_LENGTH_BYTES)
    view = memoryview(buffer)
    crc = 0
    for path in sorted(directory.glob("*.rec"), key=lambda path: int(path.stem[2:])):
        handle = os.open(path, os.O_RDONLY)
        offset = 0
        while length and (got := os.preadv(handle, [view[: min(len(view), length)]], offset)):
            crc = zlib.crc32(view[:got], crc)
            offset += got
            length -= got
        os.close(handle)
    return 0


def _fail(problem: ReadProblem) -> None:
    raise ClusterError(f"the recording is damaged: position={problem.position} {problem.reason}")


def _figures(readings: dict[str, Reading], seconds: dict[str, list[float]]) -> dict[str, float]:
    figures = {}
    for kind, reading in readings.items():
        duration_s = median(seconds[kind])
        figures[f"{kind}, GB/s"] = round(reading.length_bytes / duration_s / 1e9, 3)
        figures[f"{kind}, million frames/s"] = round(reading.frame_count / duration_s / 1e6, 2)
    reference = seconds["zlib.crc32 over the files"]
    for kind in ("scan, checksums", "all columns, checksums"):
        shares = [known / measured for known, measured in zip(reference, seconds[kind], strict=True)]
        figures[f"{kind}, share of zlib.crc32"] = round(median(shares), 2)
    return figures


_VERIFY_PROGRAM: Final = """
import atexit, pathlib, sys
from trimaran.cluster.cli import main
atexit.register(lambda: print(pathlib.Path("/proc/self/status").read_text(), file=sys.stderr))
main()
"""
"""The command, which tells its greatest memory at its end: `wait4` would tell that of the process that started it."""


def _verify(directory: Path, length_bytes: int) -> dict[str, float]:
    """Run the command on a long recording; it has to find everything right."""
    directory.mkdir()
    make_recording(directory, length_bytes, _mixed_length)
    arguments = [sys.executable, "-c", _VERIFY_PROGRAM, "archive", "verify", str(directory), "-o", "jsonl"]
    before, begin_s = os.times(), time.perf_counter()
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    after, duration_s = os.times(), time.perf_counter() - begin_s
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    if done.returncode:
        raise ClusterError(f"verify: exit_status={done.returncode} {done.stdout} {done.stderr}")
    (row,) = map(json.loads, done.stdout.splitlines())
    (peak_kib,) = [int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("VmHWM:")]
    return {
        "MiB": length_bytes // _MIB,
        "frames": row["frame_count"],
        "seconds, start of Python included": round(duration_s, 2),
        "processor seconds, start of Python included": round(cpu_s, 2),
        "GB per processor second": round(row["stop_position"] / cpu_s / 1e9, 3),
        "greatest memory, MiB": round(peak_kib / 1024, 1),
    }
