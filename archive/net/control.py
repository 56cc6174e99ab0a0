"""The parts that both ends of an archive connection agree on: streams, framing, versions.

A connection begins with a setup frame of the dialer (stream 10). Requests are data frames on stream 10, responses and
signals on stream 20, recording events on stream 30; one message a frame. Requests may be sent without waiting for
answers, which come in the order of the requests and carry their correlation ids. Besides, a connection carries one
stream of frames at most, between whole control frames, byte for byte as recorded, and told apart from those by its
stream id; so no recording here has stream 10, 20 or 30. What stream it is, the archive says in a setup frame in front:

    replay        asked for by a replay request: frames of the archive, then the signal SYNC or STOP
    live stream   asked for by a status frame with the stream's session id: frames of the archive as they become
                  durable, then the signal STOP
    publication   asked for by a start or extend request: frames of the dialer; the archive tells with status frames
                  what is durable, and how much may be on its way beyond that

Who wants several replays or publications has a connection for each, so one that is slow holds back no other: TCP is
the flow control. `session_id` of a setup frame is what names the stream: a replay's session id, or a publication's.
Source: Aeron archive schema 101, transport frames; how they travel over TCP is ours.
"""

from __future__ import annotations

import re
from typing import Final

from ...service_api.types import NULL_VALUE, CorrelationId
from ...service_api.wire.frame import (
    CONTROL_TYPES,
    TYPE_SETUP,
    TYPE_STATUS,
    encode_frame,
    unpack_header,
)
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.message import Message
from ...service_api.wire.stream import FrameParser
from ..errors import ArchiveError, ArchiveErrorCode
from ..format import messages
from ..format.descriptor import RecordingDescriptor

CONTROL_STREAM_ID: Final = 10
RESPONSE_STREAM_ID: Final = 20
EVENTS_STREAM_ID: Final = 30
"""Asked for as the response stream of a session, it is told of every recording that starts, grows and stops."""

CONTROL_STREAM_IDS: Final = frozenset((CONTROL_STREAM_ID, RESPONSE_STREAM_ID, EVENTS_STREAM_ID))
PROTOCOL_VERSION: Final = 1 << 16 | 11 << 8
"""Semantic version of the control protocol: major, minor, patch in one int. The major one must match."""

MAX_CONTROL_FRAME_LENGTH: Final = 65536
FOLLOW_LENGTH: Final = -1
"""The `length` of a replay request that goes on as the recording grows."""
ALL_LENGTH: Final = -2
"""The `length` of a replay request that ends where the recording ends when it is received."""

CHANNEL_LIMIT_BYTES: Final = 1024
"""Of a channel's text, which is kept in the catalog and means nothing here."""

_FACTS: Final = re.compile(r" \(code=\w+(?: recording_id=(-?[0-9]{1,19}))?(?: position=(-?[0-9]{1,19}))?\)$")


def major_version(version: int) -> int:
    """Take the major part of a semantic version."""
    return version >> 16 & 0xFF


def check_channel(channel: str) -> None:
    """Refuse a channel that the catalog cannot hold.

    Raises:
        ArchiveError: it is not ASCII, or too long.
    """
    if not channel.isascii() or len(channel) > CHANNEL_LIMIT_BYTES:
        raise ArchiveError(f"invalid channel: length={len(channel)} expected ASCII, at most {CHANNEL_LIMIT_BYTES}")


def encode_request(message: Message) -> bytes:
    """Frame a message for the archive."""
    return encode_frame(message.encode(), stream_id=CONTROL_STREAM_ID)


def encode_response(message: Message) -> bytes:
    """Frame a message from the archive."""
    return encode_frame(message.encode(), stream_id=RESPONSE_STREAM_ID)


def control_frames(buffer: bytearray) -> FrameParser:
    """Return what takes control frames from the front of `buffer`, which others fill and take stream frames from."""
    return FrameParser(MAX_CONTROL_FRAME_LENGTH, types=CONTROL_TYPES, buffer=buffer)


def is_control_frame_next(buffer: bytearray) -> bool:
    """Whether what is at the front of `buffer`, a header at least, belongs to no stream of a recording."""
    header = unpack_header(buffer)
    return header.type in (TYPE_SETUP, TYPE_STATUS) or header.stream_id in CONTROL_STREAM_IDS


def announce(descriptor: RecordingDescriptor, position: int, session_id: int) -> SetupFrame:
    """Return the setup frame of a recording's stream from `position` on."""
    return SetupFrame.at_position(
        position,
        session_id=session_id,
        stream_id=descriptor.stream_id,
        initial_term_id=descriptor.initial_term_id,
        term_length_bytes=descriptor.term_buffer_length,
        mtu_length_bytes=descriptor.mtu_length,
        checksummed=descriptor.is_checkable,
        checksum_kind=descriptor.checksum_kind,
    )


def rules_of(setup: SetupFrame) -> FrameRules:
    """What the frames after a setup frame have to be like."""
    return FrameRules(
        initial_term_id=setup.initial_term_id,
        term_length_bytes=setup.term_length_bytes,
        mtu_length_bytes=setup.mtu_length_bytes,
        stream_id=setup.stream_id,
        checksummed=setup.checksummed,
        checksum_kind=setup.checksum_kind,
    )


def error_of(response: messages.ControlResponse) -> ArchiveError | None:
    """Make of a refusal what the archive raised over there: code, recording, position and reason; None of a yes."""
    code = messages.ControlResponseCode
    if response.code is code.OK:
        return None
    known = response.relevant_id in ArchiveErrorCode.__members__.values()
    error_code = ArchiveErrorCode(response.relevant_id) if known else ArchiveErrorCode.GENERIC
    facts = _FACTS.search(response.error_message)
    recording_id, position = (facts[1], facts[2]) if facts else (None, None)
    if response.code is code.RECORDING_UNKNOWN:
        error_code, recording_id = ArchiveErrorCode.UNKNOWN_RECORDING, str(response.relevant_id)
    elif response.code is code.SUBSCRIPTION_UNKNOWN:
        error_code = ArchiveErrorCode.UNKNOWN_SUBSCRIPTION
    return ArchiveError(
        f"archive answered: {_FACTS.sub('', response.error_message)}",
        code=error_code,
        recording_id=None if recording_id is None else int(recording_id),
        position=None if position is None else int(position),
    )


def refusal_of(error: ArchiveError, control_session_id: int, correlation_id: int) -> messages.ControlResponse:
    """Make the answer that carries an error to the other side; the reverse of `error_of`."""
    code, relevant_id = messages.ControlResponseCode.ERROR, int(error.code)
    if error.code is ArchiveErrorCode.UNKNOWN_RECORDING and error.recording_id is not None:
        code, relevant_id = messages.ControlResponseCode.RECORDING_UNKNOWN, error.recording_id
    elif error.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION:
        code, relevant_id = messages.ControlResponseCode.SUBSCRIPTION_UNKNOWN, NULL_VALUE
    return messages.ControlResponse(
        control_session_id=control_session_id,
        correlation_id=CorrelationId(correlation_id),
        relevant_id=relevant_id,
        code=code,
        version=PROTOCOL_VERSION,
        error_message=str(error),
    )
