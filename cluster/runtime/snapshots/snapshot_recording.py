"""Snapshots as recordings: writing one without holding the event loop, and reading one back.

A snapshot is a recording of its own in the archive: data frames of at most one mtu, messages in fragments where they
are longer. It is written once, stopped, and never changed. Bounds: while writing, 512 KiB that are not handed to the
recording and 2 MiB that are not durable; while reading, a batch of about 1 MiB, or one message if that is longer.

Where the time of writing goes (2 million orders, 195 MB in pieces of 48 KiB; processor time of one member, medians of 5
interleaved rounds in which three members on two cores write at once to one disk, with a load average of 5):

                                                            before      now
    the author's objects as lists of tuples, in C            90 ms    90 ms
    msgspec                                                 210 ms   200 ms
    digest (of all bytes before; `MessageDigest` now)       215 ms    15 ms
    frames, CRC-32 (under 10 ms), copies, turns of the loop 230 ms   125 ms
    writes and syncs in the worker's thread                 190 ms    95 ms
    together                                                935 ms   525 ms
    waiting for the disk                                    356 ms   259 ms
    until the slowest of the three has it                 2,035 ms 1,383 ms

So what helped: chunks of 512 KiB, each of which asks for a sync, instead of 64 KiB (230 syncs instead of 640; a member
waited for each while it held 1 MiB); a message of one frame is copied once and not three times; a digest of checksums.
What did not: freezing or stopping the garbage collector (it did not run once meanwhile: lists of tuples come and go
below its threshold); `encode_into` a buffer that is kept (3 % of msgspec's part); 4 MiB that are not durable (1,669 ms,
and a message in the log waits longer for its own sync); a digest with SHA-256 (110 ms here, and more than blake2b where
the processor has no instructions for it). What limits it now is the encoding, and that all members share the cores.

A thread reads, checks and joins a whole batch: `aiofiles.os.wrap` makes one hop of it. Rejected: a file of `aiofiles`
itself, which makes a hop of each read. Measured (process time, 2 cores, uvloop, file in the page cache): a hop costs
56 us, `aiofiles` needs 135 us to seek and read 64 KiB, `os.pread` 3 us. An image of 48 MiB is 48 hops, 3 ms, instead of
768 reads, 104 ms; and reads go through the archive's `FileSystem`, so that the simulator can damage them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeVar

import aiofiles.os

from ....archive import Archive, Recording
from ....archive.files.reader import FrameReader, MessageReader, RecordedMessage, StopReason
from ....service_api import RemoteProtocolError
from ....service_api.payloads import plain_bytes
from ....service_api.types import NULL_VALUE
from ....service_api.wire.message import is_optional
from ...core.log.log_buffer import LogBuffer
from ...core.log.log_publisher import LogPublisher
from ...service.digests import MessageDigest

T = TypeVar("T")

_SOURCE_IDENTITY: Final = "trimaran:archive"
_CHUNK_BYTES: Final = 512 << 10
_UNSYNCED_LIMIT_BYTES: Final = 2 << 20
_BATCH_BYTES: Final = 1 << 20
_TURN_NS: Final = 2_000_000
"""How long messages are taken before the loop may look at its sockets again."""


class SnapshotWriter:
    """Writes one snapshot; the `SnapshotPublication` that a service gets."""

    def __init__(self, recording: Recording, *, monotonic_ns: Callable[[], int]) -> None:
        descriptor = recording.descriptor
        self.recording: Final = recording
        self._buffer = LogBuffer(position=0, retained_bytes=0)
        self._term_length_bytes = descriptor.term_buffer_length
        self._publisher = LogPublisher(
            self._buffer,
            log_session_id=descriptor.session_id,
            initial_term_id=descriptor.initial_term_id,
            term_length_bytes=descriptor.term_buffer_length,
            mtu_length_bytes=descriptor.mtu_length,
            checksums=descriptor.checksummed,
            checksum_kind=descriptor.checksum_kind,
            stream_id=descriptor.stream_id,
        )
        self._monotonic_ns = monotonic_ns
        self._turn_began_ns = monotonic_ns()
        self.digest: MessageDigest | None = None
        """Of the messages that are offered from now on; None: nobody asks."""

    def __repr__(self) -> str:
        return f"<SnapshotWriter {self.recording!r}>"

    @classmethod
    async def start(
        cls, archive: Archive, *, stream_id: int, alias: str, monotonic_ns: Callable[[], int]
    ) -> SnapshotWriter:
        """Begin a recording for a snapshot.

        Raises:
            ArchiveError: the disk refused.
        """
        recording = await archive.start_recording(
            stream_id=stream_id,
            session_id=NULL_VALUE,
            channel=f"{_SOURCE_IDENTITY}?alias={alias}",
            source_identity=_SOURCE_IDENTITY,
            preallocate=False,
            may_use_reserve=True,  # without a snapshot the log is never purged, and the disk fills up
        )
        return cls(recording, monotonic_ns=monotonic_ns)

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Append one message, waiting for room.

        Raises:
            LocalProtocolError: the message is too long, or no bytes.
            ArchiveError: the disk refused.
        """
        data = bytes(plain_bytes("message", message))
        self._publisher.append_message(data)
        if self.digest is not None:
            self.digest.update(data)
        if self._buffer.append_position - self.recording.append_position >= _CHUNK_BYTES:
            await self._write()
        elif self._monotonic_ns() - self._turn_began_ns >= _TURN_NS:
            await self._give_turn()

    async def finish(self) -> int:
        """Make the snapshot durable, with its stop position; give the id of the recording.

        Raises:
            ArchiveError: the disk refused.
        """
        await self._write()
        await self.recording.stop()
        return self.recording.recording_id

    async def _write(self) -> None:
        """Hand what was offered to the recording, and let others have a turn."""
        recording, room = self.recording, 0
        run: list[bytes] = []
        for chunk in self._buffer.take_pending():
            if not run:
                room = self._term_length_bytes - recording.append_position % self._term_length_bytes
            run.append(chunk)
            room -= len(chunk)
            if room == 0:  # a chunk of the recording ends with its term at the latest
                recording.append(b"".join(run))
                run = []
        if run:
            recording.append(b"".join(run))
        self._buffer.discard_before(self._buffer.append_position)
        recording.flush()
        await recording.wait_recorded(recording.append_position - _UNSYNCED_LIMIT_BYTES)
        await self._give_turn()

    async def _give_turn(self) -> None:
        """Let the loop look at its sockets."""
        await asyncio.sleep(0)
        self._turn_began_ns = self._monotonic_ns()


class SnapshotReader:
    """Reads one snapshot, message by message; the `SnapshotImage` that a service gets, once."""

    def __init__(self, frames: FrameReader, unusable: Callable[[str], Exception]) -> None:
        self._frames = frames
        self._messages = MessageReader(frames)
        self._iterator: Iterator[RecordedMessage] = iter(self._messages)
        self.unusable: Final = unusable
        """Makes the error that says what is wrong with this snapshot, and what to do."""
        self._batch: list[bytes] = []
        """Read and not given yet, the next one last."""

    def __repr__(self) -> str:
        return f"<SnapshotReader {self._frames!r}>"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The messages that are left, in order.

        Raises:
            ClusterError: the recording is not valid.
        """
        while (message := await self.read()) is not None:
            yield message

    async def read(self) -> bytes | None:
        """The next message; None at the end.

        Raises:
            ClusterError: the recording is not valid.
        """
        if not self._batch:
            try:
                batch = await aiofiles.os.wrap(self._read_batch)()
            except (OSError, RemoteProtocolError) as error:
                raise self.unusable(str(error)) from error
            batch.reverse()
            self._batch = batch
        return self._batch.pop() if self._batch else None

    async def decode(self, decode: Callable[[bytes], T]) -> T | None:
        """The next message that this version knows, decoded; None at the end.

        Raises:
            ClusterError: the recording is not valid, or this is no such message, or one that it has to know.
        """
        try:
            while (data := await self.read()) is not None and is_optional(data):
                pass
            return None if data is None else decode(data)
        except RemoteProtocolError as error:
            raise self.unusable(str(error)) from error

    def _read_batch(self) -> list[bytes]:
        """Read some messages. Blocks."""
        batch, length = [], 0
        for message in self._iterator:
            batch.append(message.payload)
            length += len(message.payload)
            if length >= _BATCH_BYTES:
                return batch
        if self._frames.stop_reason is not StopReason.STOP_POSITION or self._messages.incomplete_message_count:
            raise RemoteProtocolError(f"damaged at position={self._frames.position}: {self._frames.detail}")
        return batch
