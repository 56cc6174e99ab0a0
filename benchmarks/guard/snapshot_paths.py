"""The paths of a snapshot in pieces: from the orders of a service to what its recording is given, and back.

A chunk is one piece, which holds as many orders as a chunk of the other paths holds messages, or one less: an order has
the length that makes it so. So what is counted for a message is counted for an order here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from itertools import cycle
from typing import Any, Final

from ...archive.format.descriptor import RecordingDescriptor
from ...cluster.runtime.snapshots.snapshot_recording import SnapshotWriter
from ...cluster.service.digests import MessageDigest
from ...service_api.snapshots import encode_pieces, read_pieces
from ...service_api.snapshots.pieces import PIECE_BYTES
from ...service_api.types import SERVICE_SNAPSHOT_STREAM_ID, RecordingId
from ..services.orders import Order
from .stand_ins import CHUNK_MESSAGES, MTU_LENGTH_BYTES, TERM_LENGTH_BYTES, ChunkPath

_PART: Final = "orders"
_FIRST_ID: Final = 1 << 31
"""Of ids that are all equally long."""
_REST_BYTES: Final = 92
"""Of an order, what is not its note."""
_RAMP_PIECES: Final = 20
"""Pieces until they have their length: each may be twice as long as the one before."""


class _DroppingRecording:
    """Takes what a snapshot is written with, and drops it: stands for `Recording`."""

    def __init__(self) -> None:
        self.append_position = 0
        self.descriptor = RecordingDescriptor(
            recording_id=RecordingId(0),
            start_timestamp_ms=0,
            start_position=0,
            initial_term_id=0,
            segment_file_length=TERM_LENGTH_BYTES,
            term_buffer_length=TERM_LENGTH_BYTES,
            mtu_length=MTU_LENGTH_BYTES,
            session_id=0,
            stream_id=SERVICE_SNAPSHOT_STREAM_ID,
            checksummed=True,
        )

    def append(self, chunk: bytes) -> None:
        """Drop."""
        self.append_position += len(chunk)

    def flush(self) -> None:
        """Nothing."""

    async def wait_recorded(self, position: int) -> None:
        """Return at once."""


def make_snapshot_paths() -> Mapping[str, Callable[[], ChunkPath]]:
    """Make the paths by name."""
    return {"snapshot_write": _write, "snapshot_read": _read}


def make_piece_maker() -> Callable[[], bytes]:
    """Return what makes one piece after another, each of as many orders as are in a chunk."""
    note = "n" * (PIECE_BYTES // CHUNK_MESSAGES - _REST_BYTES)
    numbers = range(_FIRST_ID, _FIRST_ID + CHUNK_MESSAGES)
    orders = [(number, Order(number, "customer", "SYM0", "buy", number, number, note)) for number in numbers]
    pieces = encode_pieces(_PART, cycle(orders))
    for _ in range(_RAMP_PIECES):
        next(pieces)
    return pieces.__next__


def _write() -> ChunkPath:
    """A member encodes orders, frames the piece, digests it and gives it to the recording."""
    recording: Any = _DroppingRecording()
    writer, make_piece = SnapshotWriter(recording, monotonic_ns=lambda: 0), make_piece_maker()
    writer.digest = MessageDigest()

    def run() -> None:
        _run_through(writer.offer(make_piece()))

    return run


def _read() -> ChunkPath:
    """A member that starts decodes a piece."""
    piece = make_piece_maker()()

    class Image:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            while True:
                yield piece

    pieces = read_pieces(Image(), {_PART: tuple[int, Order]})

    async def read() -> None:
        await anext(pieces)

    def run() -> None:
        _run_through(read())

    return run


def _run_through(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, which waits for nothing but its turn."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        pass
