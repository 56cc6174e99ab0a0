"""Copies a range of a remote recording into a local one.

The destination pulls, as in Aeron: it knows where it ends and what it wants. Every frame is checked before it
is appended, so what comes to rest here is what was recorded there; a broken connection leaves a recording
that ends at a frame boundary, and the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.endpoint import Endpoint
from ...service_api.errors import RemoteProtocolError
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.types import RecordingId
from ...service_api.wire.frame import FRAME_ALIGNMENT, HEADER_LENGTH
from ..config import RecordingLayout
from ..errors import ArchiveError, ArchiveErrorCode
from ..format import messages
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from ..format.layout import SEGMENT_LENGTH_LIMIT_BYTES
from ..store.recording import Recording
from .connection import ArchiveConnection, Credentials
from .frame_stream import TERM_LENGTH_LIMIT_BYTES, open_replay

TERM_LENGTH_MIN_BYTES: Final = 64 << 10
MTU_LIMIT_BYTES: Final = 65504
"""The shortest term and the longest MTU there are. Source: Aeron `LogBufferDescriptor`, `Configuration`."""

AHEAD_LIMIT_BYTES: Final = 8 << 20
"""How far the appended bytes may run ahead of the durable ones; then the remote archive is left waiting."""

Append = Callable[[Recording, bytes], None]
"""Appends a chunk to a recording and asks for its durability."""

OnProgress = Callable[[int], None]
"""Told the append position after each chunk."""


def append_and_flush(recording: Recording, chunk: bytes) -> None:
    """Do with a chunk what is done unless an owner does more."""
    recording.append(chunk)
    recording.flush()


async def replicate(
    *,
    source: Endpoint,
    src_recording_id: int,
    recording: Recording,
    stop_position: int,
    append: Append = append_and_flush,
    on_progress: OnProgress | None = None,
    credentials: bytes = b"",
    connect_timeout_s: float = 5.0,
    progress_timeout_s: float = 10.0,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> int:
    """Pull [recording.append_position, stop_position) from the archive at `source`; return the durable end.

    An owner who keeps what is appended brings its own `append`; `on_progress` is told the append position after each
    chunk. Where the remote recording is still growing towards `stop_position`, this waits for it, at most
    `progress_timeout_s` for each next byte. An archive of another cluster than `cluster_id` refuses.

    Raises:
        ArchiveError: the remote archive cannot be reached or refuses, or the recordings do not fit together.
        RemoteProtocolError: a frame is not valid; everything before it was appended.
        ClusterTimeoutError: nothing came for `progress_timeout_s`.
    """
    position = recording.append_position
    _expect_range(recording, position, stop_position)
    if position < stop_position:
        connection = await ArchiveConnection.dial(
            network,
            source,
            credentials=Credentials(encoded=credentials),
            timeout_s=connect_timeout_s,
            cluster_id=cluster_id,
        )
        try:
            check_fit(await fetch_descriptor(connection, src_recording_id), recording.descriptor)
            stream = await open_replay(
                connection,
                src_recording_id,
                position=position,
                stop_position=stop_position,
                follow=False,
                rules=frame_rules_of(recording.descriptor),
                timeout_s=progress_timeout_s,
            )
            await copy(
                lambda: stream.read(progress_timeout_s),
                recording,
                stop_position=stop_position,
                append=append,
                on_progress=on_progress,
            )
        finally:
            connection.abort()
    recording.flush()
    await recording.wait_recorded(stop_position)
    return recording.recorded_position


def _expect_range(recording: Recording, position: int, stop_position: int) -> None:
    if position > stop_position or stop_position % 32:
        raise ArchiveError(
            f"cannot replicate: append_position={position} stop_position={stop_position}",
            code=ArchiveErrorCode.INVALID_POSITION,
            recording_id=recording.recording_id,
            position=position,
        )


async def copy(
    read: Callable[[], Awaitable[bytes]],
    recording: Recording,
    *,
    stop_position: int | None,
    append: Append = append_and_flush,
    on_progress: OnProgress | None = None,
) -> None:
    """Append chunk after chunk until the end, which is at `stop_position` if that is given.

    Raises:
        RemoteProtocolError: a chunk runs past the stop position.
        ArchiveError: the chunks end in front of it; or the disk refused.
    """
    recording.is_copy = True
    try:
        while stop_position is None or recording.append_position < stop_position:
            chunk = await read()
            position = recording.append_position
            if not chunk:
                if stop_position is None:
                    return
                raise ArchiveError(
                    f"source ends before stop_position={stop_position}",
                    code=ArchiveErrorCode.INVALID_POSITION,
                    recording_id=recording.recording_id,
                    position=position,
                )
            if stop_position is not None and position + len(chunk) > stop_position:
                raise RemoteProtocolError(
                    f"replayed frames pass the requested end: position={position} length={len(chunk)} "
                    f"end={stop_position}"
                )
            append(recording, chunk)
            if on_progress is not None:
                on_progress(recording.append_position)
            await recording.wait_recorded(recording.append_position - AHEAD_LIMIT_BYTES)
    finally:
        recording.is_copy = False


async def fetch_descriptor(connection: ArchiveConnection, recording_id: int) -> messages.RecordingDescriptorRow:
    """Ask an archive for the descriptor of a recording.

    Raises:
        ArchiveError: UNKNOWN_RECORDING, or the archive is gone.
    """
    rows = await connection.ask_rows(
        messages.ListRecordingRequest, 1, is_range=False, recording_id=RecordingId(recording_id)
    )
    (descriptor,) = rows
    assert isinstance(descriptor, messages.RecordingDescriptorRow)
    return descriptor


def check_fit(remote: messages.RecordingDescriptorRow, local: RecordingDescriptor) -> None:
    """Check that a remote recording is laid out as ours is.

    Raises:
        ArchiveError: INVALID_EXTENSION; it is not.
    """
    facts = (
        ("initial_term_id", remote.initial_term_id, local.initial_term_id),
        ("term_buffer_length", remote.term_buffer_length, local.term_buffer_length),
        ("mtu_length", remote.mtu_length, local.mtu_length),
        ("stream_id", remote.stream_id, local.stream_id),
    )
    for name, theirs, ours in facts:
        if theirs != ours:
            raise ArchiveError(
                f"recordings cannot be joined: {name}={theirs} expected={ours}",
                code=ArchiveErrorCode.INVALID_EXTENSION,
                recording_id=local.recording_id,
            )


def layout_like(remote: messages.RecordingDescriptorRow) -> RecordingLayout:
    """Lay a copy out as the source is.

    Raises:
        ArchiveError: INVALID_EXTENSION; no recording is laid out as the source says.
    """
    term_length, segment_length, mtu_length = (
        remote.term_buffer_length,
        remote.segment_file_length,
        remote.mtu_length,
    )
    is_possible = (
        TERM_LENGTH_MIN_BYTES <= term_length <= TERM_LENGTH_LIMIT_BYTES
        and not term_length & (term_length - 1)
        and term_length <= segment_length <= SEGMENT_LENGTH_LIMIT_BYTES
        and not segment_length % term_length
        and HEADER_LENGTH < mtu_length <= MTU_LIMIT_BYTES
        and not mtu_length % FRAME_ALIGNMENT
    )
    if not is_possible:
        raise ArchiveError(
            f"invalid layout of the source recording: term_length={term_length} segment_length={segment_length} "
            f"mtu={mtu_length}",
            code=ArchiveErrorCode.INVALID_EXTENSION,
            recording_id=remote.recording_id,
        )
    return RecordingLayout(
        term_length_bytes=term_length, segment_length_bytes=segment_length, mtu_length_bytes=mtu_length
    )
