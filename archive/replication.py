"""Pulling a range of a remote recording into one of ours.

The destination pulls, as in Aeron: it knows where it ends and what it wants. Every frame is checked before it
is appended, so what comes to rest here is what was recorded there; a broken connection leaves a recording
that ends at a frame boundary, and the next call goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from .client import ArchiveClient
from .errors import ArchiveError, ArchiveErrorCode
from .frame_check import FrameRules
from .recording import Recording

AHEAD_LIMIT_BYTES: Final = 8 << 20
"""How far the appended bytes may run ahead of the durable ones; then the remote archive is left waiting."""


async def replicate(
    *,
    host: str,
    port: int,
    src_recording_id: int,
    recording: Recording,
    stop_position: int,
    on_progress: Callable[[int], None] | None = None,
    credentials: bytes = b"",
    connect_timeout_s: float = 5.0,
    progress_timeout_s: float = 10.0,
) -> int:
    """Pull [recording.append_position, stop_position) from the archive at `host:port`; return the durable
    end.

    `on_progress` is told the append position after each chunk. Where the remote recording is still growing
    towards `stop_position`, this waits for it, at most `progress_timeout_s` for each next byte.

    Raises:
        ArchiveError: the remote archive cannot be reached or refuses, or the recordings do not fit together.
        RemoteProtocolError: a frame does not check out; everything before it was appended.
        ClusterTimeoutError: nothing came for `progress_timeout_s`.
    """
    position = recording.append_position
    if position > stop_position or stop_position % 32:
        raise ArchiveError(
            f"cannot replicate: append_position={position} stop_position={stop_position}",
            code=ArchiveErrorCode.INVALID_POSITION,
            recording_id=recording.recording_id,
            position=position,
        )
    if position < stop_position:
        async with ArchiveClient.connect(host, port, credentials=credentials, timeout_s=connect_timeout_s) as client:
            rules = await _agree(client, src_recording_id, recording)
            replay = client.replay(
                src_recording_id,
                position=position,
                stop_position=stop_position,
                rules=rules,
                timeout_s=progress_timeout_s,
            )
            async with aclosing(replay) as chunks:
                async for chunk in chunks:
                    recording.append(chunk)
                    recording.flush()
                    if on_progress is not None:
                        on_progress(recording.append_position)
                    await recording.wait_recorded(recording.append_position - AHEAD_LIMIT_BYTES)
    recording.flush()
    await recording.wait_recorded(stop_position)
    return recording.recorded_position


async def _agree(client: ArchiveClient, src_recording_id: int, recording: Recording) -> FrameRules:
    """Check that the remote recording is laid out as ours is, and return the rules of its frames."""
    remote, local = await client.list_recording(src_recording_id), recording.descriptor
    facts = (
        ("initial_term_id", remote.initial_term_id, local.initial_term_id),
        ("term_buffer_length", remote.term_buffer_length, local.term_buffer_length),
        ("mtu_length", remote.mtu_length, local.mtu_length),
        ("stream_id", remote.stream_id, local.stream_id),
    )
    for name, theirs, ours in facts:
        if theirs != ours:
            raise ArchiveError(
                f"recordings do not fit together: {name}={theirs} expected={ours}",
                code=ArchiveErrorCode.INVALID_EXTENSION,
                recording_id=local.recording_id,
            )
    return FrameRules.of(local)
