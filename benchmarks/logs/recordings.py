"""Archive directories full of frames, made quickly: one term is built, the others are its bytes with their own ids."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...archive import RecordingDescriptor
from ...archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from ...service_api.types import LOG_STREAM_ID, RecordingId
from ...service_api.wire.frame import FRAME_HEADER, HEADER_LENGTH, TYPE_DATA, UNFRAGMENTED, encode_padding
from ...service_api.wire.session import SESSION_HEADER_LENGTH, SESSION_MESSAGE, SESSION_MESSAGE_HEADER

TERM_LENGTH_BYTES: Final = 16 << 20
SEGMENT_LENGTH_BYTES: Final = 128 << 20
MTU_LENGTH_BYTES: Final = 1408

FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
SESSION_COUNT: Final = 100


MessageMaker = Callable[[int, int], bytes]
"""Makes a message, by its number in the term and the length that was drawn for it."""


def noise_messages(pick: random.Random) -> MessageMaker:
    """Make session messages of bytes without any pattern."""
    noise = pick.randbytes(1 << 16)

    def make(number: int, length: int) -> bytes:
        body = length - SESSION_HEADER_LENGTH
        begin = pick.randrange(len(noise) - body)
        session_id, timestamp = 1 + pick.randrange(SESSION_COUNT), FIRST_TIMESTAMP_MS + number // 100
        header = SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, 0, session_id, timestamp)
        return header + noise[begin : begin + body]

    return make


def make_recording(
    directory: Path,
    length_bytes: int,
    frame_lengths: Callable[[random.Random], int],
    *,
    messages: Callable[[random.Random], MessageMaker] = noise_messages,
    seed: int = 0,
) -> RecordingDescriptor:
    """Fill a directory with one recording of a log's messages with checksums, a whole number of terms long.

    `frame_lengths` draws the length of the next frame, header included, from 64 bytes to the mtu. `messages` makes what
    is in it, and may make it of another length.
    """
    term_count = max(1, length_bytes // TERM_LENGTH_BYTES)
    pick = random.Random(seed)
    term, slots = _build_term(frame_lengths, messages(pick), pick)
    words = term.view(np.int32)
    term_ids = words[5::8]
    for first in range(0, term_count, SEGMENT_LENGTH_BYTES // TERM_LENGTH_BYTES):
        with (directory / f"0-{first * TERM_LENGTH_BYTES}.rec").open("wb") as file:
            for term_id in range(first, min(term_count, first + SEGMENT_LENGTH_BYTES // TERM_LENGTH_BYTES)):
                term_ids[slots] = term_id
                file.write(term.data)
            file.truncate(SEGMENT_LENGTH_BYTES)
    descriptor = RecordingDescriptor(
        recording_id=RecordingId(0),
        start_timestamp_ms=FIRST_TIMESTAMP_MS,
        start_position=0,
        stop_position=term_count * TERM_LENGTH_BYTES,
        initial_term_id=0,
        segment_file_length=SEGMENT_LENGTH_BYTES,
        term_buffer_length=TERM_LENGTH_BYTES,
        mtu_length=MTU_LENGTH_BYTES,
        session_id=0,
        stream_id=LOG_STREAM_ID,
        checksummed=True,
    )
    (directory / CATALOG_FILE_NAME).write_bytes(encode_catalog([descriptor], next_recording_id=1))
    return descriptor


def _build_term(
    frame_lengths: Callable[[random.Random], int], make_message: MessageMaker, pick: random.Random
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Build the bytes of term 0, and say in which slots of 32 bytes its frames begin."""
    term = bytearray(TERM_LENGTH_BYTES)
    slots: list[int] = []
    offset = 0
    while True:
        message = make_message(len(slots), frame_lengths(pick) - HEADER_LENGTH)
        frame_length = HEADER_LENGTH + len(message)
        end = offset + (frame_length + 31 & -32)
        if end > TERM_LENGTH_BYTES:
            break
        payload = message.ljust(end - offset - HEADER_LENGTH, b"\0")
        crc = zlib.crc32(payload)
        session_id = crc - ((crc & 1 << 31) << 1)
        FRAME_HEADER.pack_into(
            term, offset, frame_length, 0, UNFRAGMENTED, TYPE_DATA, offset, session_id, LOG_STREAM_ID, 0, 0
        )
        term[offset + 32 : end] = payload
        slots.append(offset // 32)
        offset = end
    if offset < TERM_LENGTH_BYTES:
        padding = encode_padding(TERM_LENGTH_BYTES - offset, stream_id=LOG_STREAM_ID, term_offset=offset)
        term[offset : offset + 32] = padding[:32]
        slots.append(offset // 32)
    return np.frombuffer(term, np.uint8), np.array(slots, np.int64)
