"""Streams of frames as a leader builds them, and archives to put them into: shared by the archive's tests."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.places import AERON
from trimaran.archive import Archive, ArchiveConfig
from trimaran.archive.disk.file_system import FileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem, OnOperation
from trimaran.archive.files.mark_file import MARK_FILE_NAME
from trimaran.archive.log.group_directories import settle_group_count
from trimaran.archive.store.worker import Done, Job, ThreadWorker, WorkerFactory
from trimaran.service_api.wire.frame import encode_message, encode_padding, frame_crc, framed_length

DIRECTORY = Path("/archive")
TERM_LENGTH = 65536
STREAM_ID = 100


class StreamBuilder:
    """Builds the frames of one stream, term by term, with padding and checksums, from `position` on."""

    def __init__(
        self,
        *,
        position: int = 0,
        term_length: int = TERM_LENGTH,
        mtu_length: int = 1408,
        initial_term_id: int = 0,
        checksums: bool = True,
        seed: int = 0,
    ) -> None:
        self.position = position
        self._term_length = term_length
        self._mtu_length = mtu_length
        self._initial_term_id = initial_term_id
        self._checksums = checksums
        self._random = random.Random(seed)

    def message(self, length: int) -> list[bytes]:
        """The chunks, none of which crosses a term, that append one message of random bytes."""
        chunks = []
        needed = framed_length(length, self._mtu_length)
        room = self._term_length - self.position % self._term_length
        if needed > room:
            chunks.append(self._take(encode_padding(room, stream_id=STREAM_ID, **self._place())))
        payload = self._random.randbytes(length)
        frames = encode_message(
            payload, stream_id=STREAM_ID, mtu_length=self._mtu_length, checksum_kind=None, **self._place()
        )
        chunks.append(self._take(self._with_checksums(frames)))
        return chunks

    def fill_to(self, position: int) -> Iterator[bytes]:
        """Chunks that end exactly at `position`, a multiple of 32."""
        while self.position < position:
            left = min(position - self.position, self._term_length - self.position % self._term_length)
            yield from self.message(min(left, self._mtu_length) - 32)

    def _place(self) -> dict[str, int]:
        term_id = self._initial_term_id + self.position // self._term_length
        return {
            "term_id": (term_id + 2**31) % 2**32 - 2**31,
            "term_offset": self.position % self._term_length,
        }

    def _take(self, chunk: bytes) -> bytes:
        self.position += len(chunk)
        return chunk

    def _with_checksums(self, frames: bytes) -> bytes:
        if not self._checksums:
            return frames
        stamped = bytearray(frames)
        offset = 0
        while offset < len(stamped):
            (frame_length,) = struct.unpack_from("<i", stamped, offset)
            struct.pack_into("<i", stamped, offset + 12, frame_crc(frames, offset, frame_length))
            offset += (frame_length + 31) & -32
        return bytes(stamped)


class PowerLoss(Exception):
    """Ends an operation in the middle: not an error that any code expects."""


class PowerSupply:
    """Fails at a chosen operation: put in as `on_operation` of a disk. Reading takes no power, nor telling the time."""

    def __init__(self) -> None:
        self.operations_left = -1
        self.operation_count = 0

    def __call__(self, name: str, path: Path, length: int) -> None:
        if name in ("open", "pread") or path.name == MARK_FILE_NAME:
            return
        if self.operations_left == 0:
            raise PowerLoss
        self.operations_left -= 1
        self.operation_count += 1


def failing(error: OSError, *names: str) -> OnOperation:
    """Make each operation of these names fail: put in as `on_operation` of a disk."""

    def on_operation(name: str, path: Path, length: int) -> None:
        if name in names:
            raise error

    return on_operation


class ManualWorker:
    """Keeps the jobs until the test runs them; fails the test when two are in flight."""

    def __init__(self, name: str = "") -> None:
        self.pending: tuple[Job, Done] | None = None
        self.submitted = 0

    def submit(self, job: Job, done: Done) -> None:
        assert self.pending is None, "more than one sync in flight"
        self.pending = (job, done)
        self.submitted += 1

    def close(self) -> None:
        pass

    def complete(self) -> None:
        """Run the job in flight and report its end."""
        assert self.pending is not None
        (job, done), self.pending = self.pending, None
        try:
            job()
        except BaseException as error:
            done(error)
        else:
            done(None)


class InlineWorker:
    """Runs each job at once: a disk whose syncs take no time."""

    def __init__(self, name: str = "") -> None:
        pass

    def submit(self, job: Job, done: Done) -> None:
        try:
            job()
        except BaseException as error:
            done(error)
        else:
            done(None)

    def close(self) -> None:
        pass


class BytesSink:
    """Keeps what a replay sends."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass


def small_config(**changes: Any) -> ArchiveConfig:  # any field of the config
    defaults: dict[str, Any] = {
        "term_length_bytes": TERM_LENGTH,
        "segment_length_bytes": TERM_LENGTH,
        "mtu_length_bytes": 1408,
    }
    return ArchiveConfig(**(defaults | changes))


async def launch(
    file_system: FileSystem | None = None,
    directory: Path = DIRECTORY,
    *,
    config: ArchiveConfig | None = None,
    make_worker: WorkerFactory | None = None,
    monotonic_ns: Callable[[], int] = lambda: 0,
    is_power_loss_possible: bool = False,
) -> Archive:
    """An archive with small terms, in memory unless told otherwise."""
    if file_system is None:
        file_system = MemoryFileSystem()
    if make_worker is None:
        make_worker = InlineWorker if isinstance(file_system, MemoryFileSystem) else ThreadWorker
    return await Archive.launch(
        directory,
        config or small_config(),
        clock_ms=lambda: 1_700_000_000_000,
        file_system=file_system,
        make_worker=make_worker,
        monotonic_ns=monotonic_ns,
        is_power_loss_possible=is_power_loss_possible,
    )


def read_all(archive: Archive, recording_id: int = 0, limit_bytes: int = 10_000) -> bytes:
    """Everything an archive has of a recording."""
    position = archive.descriptor(recording_id).start_position
    stop_position = archive.recorded_position(recording_id)
    chunks = []
    while chunk := archive.read(recording_id, position, limit_bytes, stop_position=stop_position):
        chunks.append(chunk)
        position += len(chunk)
    return b"".join(chunks)


def extract_sample(name: str, target: Path) -> Path:
    """Unpack one of the Aeron samples; return its directory."""
    with tarfile.open(AERON / f"{name}.tar.gz") as tar:
        # Python 3.11.3 and older have neither the argument nor the filter; the data is our own.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        tar.extractall(target)
    return target / name


SAMPLES_OF_GROUPS: Final = (("single-node", "node0"), ("three-node-failover", "node1"))
"""A log for each of two groups, recorded by real clusters."""


def make_member_of_samples(directory: Path, samples: Sequence[tuple[str, str]] = SAMPLES_OF_GROUPS) -> Path:
    """Make the directory of a member whose groups have the logs of samples; return it."""
    member = directory / "node-0"
    settle_group_count(member, len(samples))
    for index, (scenario, node) in enumerate(samples):
        extract_sample(scenario, directory)
        shutil.move(directory / scenario / node, member / f"group-{index}")
    return member


def load_truth(name: str) -> dict[str, Any]:
    with gzip.open(AERON / f"truth-{name}.json.gz", "rt") as file:
        truth: dict[str, Any] = json.load(file)
    return truth
