"""Frames and messages as they lie on links and in files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import trimaran.archive.format.messages
import trimaran.cluster.messages
import trimaran.cluster.messages.condition
import trimaran.cluster.messages.digests
import trimaran.cluster.messages.mark
import trimaran.cluster.messages.reads
import trimaran.cluster.messages.replies
import trimaran.cluster.messages.settings
import trimaran.cluster.messages.shipping
import trimaran.service_api.wire.queries
from tests.fuzz.samples import sample_messages
from tests.fuzz.target import expect, target
from tests.unit.cluster.core.rosters import roster
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    encode_message,
    encode_padding,
    frame_crc,
    iter_headers,
    stamp_checksums,
    unpack_header,
)
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.link_frames import CommitFrame, SetupFrame, StatusFrame, encode_commit_frame
from trimaran.service_api.wire.log.log_rules import Before, what_follows
from trimaran.service_api.wire.message import MESSAGES, Message, decode_message
from trimaran.service_api.wire.request import ReplyHeader, RequestHeader
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH, SessionMessageHeader
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler, StreamFrame

MODULES = (trimaran.archive.format.messages, trimaran.cluster.messages)  # imported for their registration
SCHEMAS = {
    "archive_mark_messages": 100,
    "archive_messages": 101,
    "cluster_mark_messages": 110,
    "cluster_messages": 111,
    "node_state_messages": 112,
    "trimaran_messages": 811,
}
"""By target: the schema whose messages it decodes."""

TERM_LENGTH = 1 << 16
MTU = 1408


def pieces_of(data: bytes, length: int) -> list[bytes]:
    """Cut bytes into pieces of a length."""
    return [data[start : start + length] for start in range(0, len(data), length)]


# --- frames


def _frame_seeds() -> Iterator[bytes]:
    long = encode_message(bytes(range(256)) * 3, stream_id=7, mtu_length=288)
    yield b"\x40" + encode_message(b"hello", stream_id=7, mtu_length=288) + long
    yield b"\x07" + SetupFrame(session_id=1, stream_id=108).encode() + encode_padding(64, stream_id=7)
    setup = SetupFrame(session_id=1, stream_id=10)
    yield b"\xff" + StatusFrame.at_position(64, setup=setup).encode() + long[:300]


def _parse(pieces: list[bytes]) -> tuple[list[StreamFrame], bool]:
    parser, frames = FrameParser(2048), []
    try:
        for piece in pieces:
            frames += parser.feed(piece)
            expect(parser.buffered_bytes <= 2048 + len(piece), "a parser holds one frame", parser=parser)
    except RemoteProtocolError:
        return frames, True
    return frames, False


@target(_frame_seeds)
def frames(data: bytes) -> None:
    """Frames cut out of a byte stream, whole and in pieces, and messages joined of fragments."""
    piece_length, stream = 1 + data[0] % 200 if data else 1, data[1:]
    whole, is_refused = _parse([stream])
    in_pieces, is_refused_in_pieces = _parse(pieces_of(stream, piece_length))
    expect(is_refused == is_refused_in_pieces, "the same is refused whole and in pieces")
    expect(is_refused or whole == in_pieces, "frames are the same whole and in pieces")
    assembler = MessageAssembler(1 << 12)
    for frame in in_pieces:
        expect(FRAME_HEADER.pack(*frame[:9]) + frame.payload == frame.raw, "a frame is its header and its payload")
        try:
            assembler.append(frame)
        except RemoteProtocolError:
            return
        expect(assembler.held_bytes <= 1 << 12, "an assembler holds one message")


def _link_frame_seeds() -> Iterator[bytes]:
    setup = SetupFrame.at_position(
        1 << 20, session_id=1, stream_id=100, initial_term_id=-5, term_length_bytes=TERM_LENGTH
    )
    yield setup.encode()
    yield StatusFrame.at_position(96, setup=setup).encode()
    yield encode_commit_frame(3, 4096)


@target(_link_frame_seeds, length_limit=80)
def link_frames(data: bytes) -> None:
    """Setup, status and commit frames: read, their positions computed, written and read again."""
    for kind in (SetupFrame, StatusFrame, CommitFrame):
        try:
            frame = kind.decode(data)
        except RemoteProtocolError:
            continue
        expect(type(frame).decode(frame.encode()) == frame, "a frame of a link is read as it was written", frame=frame)
        if isinstance(frame, SetupFrame):
            expect(frame.position % 32 == 0, "a stream begins where a frame can", frame=frame)
            expect(frame.checksum_kind in ChecksumKind, "a stream has a kind of checksum")
        elif isinstance(frame, StatusFrame):
            frame.position(initial_term_id=0, term_length_bytes=TERM_LENGTH)


# --- messages


def _models(schema_id: int) -> list[type[Message]]:
    # A test may define models of its own.
    return [
        model
        for _, model in sorted(MESSAGES.items())
        if schema_id == model.SCHEMA_ID and model.__module__.startswith("trimaran.")
    ]


def _message_seeds(schema_id: int) -> Iterator[bytes]:
    models = _models(schema_id)
    if schema_id == SessionMessageHeader.SCHEMA_ID:
        models += [RequestHeader, ReplyHeader]
    for message in sample_messages(models):
        yield message.encode()


def _has_only_ascii(message: object) -> bool:
    """Whether no text of a message holds what stands for a byte above 127, which is written as a question mark."""
    return "\ufffd" not in repr(message)


def decode_with(registry: dict[int, type[Message]], data: bytes) -> None:
    """Read a message of a registry, write it, and read that again."""
    try:
        message = decode_message(data, registry=registry)
    except RemoteProtocolError:
        return
    type(message).unpack(data)
    again = decode_message(message.encode(), registry=registry)
    if _has_only_ascii(message):
        expect(again == message, "a message is read as it was written", message=message, again=again)
    expect(decode_message(again.encode(), registry=registry) == again, "and so it stays", message=again)
    shifted = decode_message(memoryview(b"\xaa" + data + b"\xbb"), 1, len(data), registry=registry)
    expect(shifted == message, "a message is the same wherever it lies", message=message, shifted=shifted)


def _add_schema(name: str, schema_id: int) -> None:
    registry = {(schema_id << 16 | model.TEMPLATE_ID): model for model in _models(schema_id)}
    run = partial(decode_with, registry)
    run.__doc__ = f"SBE messages of schema {schema_id}: read, written, and read again."
    target(partial(_message_seeds, schema_id), name=name, length_limit=1024)(run)


for _name, _schema_id in SCHEMAS.items():
    _add_schema(_name, _schema_id)


# --- frames of a log


def _log_seeds() -> Iterator[bytes]:
    messages = [b"x" * length for length in (0, 40, 96, 96, 96, 96, 96, 96, 96, 96, 200, 3000)]
    frames, position = b"", 0
    for message in messages:
        frames += encode_message(
            bytes(SESSION_HEADER_LENGTH) + message, stream_id=LOG_STREAM_ID, mtu_length=MTU, term_offset=position
        )
        position = len(frames)
    frames += encode_padding(96, stream_id=LOG_STREAM_ID, term_offset=position)
    for flags in (0b001, 0b011, 0b111, 0b000, 0b1011, 0b11011):
        yield bytes([flags, 200]) + frames
    yield bytes([0b011, 33]) + frames[:1024] + encode_commit_frame(1, 1024) + frames[1024:1600]


def _rules(flags: int) -> FrameRules:
    return FrameRules(
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        stream_id=LOG_STREAM_ID,
        checksummed=bool(flags & 2),
        checksum_kind=ChecksumKind.CRC32C if flags & 4 else ChecksumKind.CRC32,
        is_cluster_log=flags & 24 == 8,
        is_snapshot=flags & 24 == 24,
    )


def stamped(data: bytes, kind: ChecksumKind) -> bytes:
    """Give every frame the checksum of what it holds, so that checksums do not hide the other rules."""
    buffer = bytearray(data)
    stamp_checksums(buffer, kind)
    return bytes(buffer)


@target(_log_seeds)
def frame_rules(data: bytes) -> None:
    """The frames of a recording, judged one by one and many at once: both find the same."""
    if len(data) < 2:
        return
    flags, buffer = data[0], data[2:]
    rules = _rules(flags)
    if flags & 1:
        buffer = stamped(buffer, rules.checksum_kind)
    found = rules.skip_valid_frames(buffer, 0, 0, len(buffer))
    offset, last_one_by_one, before = 0, None, Before.UNKNOWN
    while offset + HEADER_LENGTH <= len(buffer) and rules.find_fault(buffer, offset, offset, before) is None:
        header = unpack_header(buffer, offset)
        following = offset + header.aligned_length
        if following > len(buffer):
            break
        if rules.is_cluster_written:
            before = what_follows(header, before)
        last_one_by_one, offset = offset, following
    alone = offset, last_one_by_one, before
    expect(found == alone, "frames are as valid together as alone", found=found, alone=alone)
    for position in rules.find_valid_frames(buffer, 0):
        expect(rules.find_fault(buffer, position, position) is None, "a frame that is found is valid")


@target(_log_seeds)
def log_receiver(data: bytes) -> None:
    """A follower's gate to the log: what it takes is what the rules pass, however it is cut."""
    if len(data) < 2:
        return
    flags, piece_length, stream = data[0], 1 + data[1], data[2:]
    rules = _rules(flags)
    if flags & 1:
        stream = stamped(stream, rules.checksum_kind)
    log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)
    receiver, buffer = LogReceiver(log_buffer, rules, roster(0, 1).history), bytearray()
    try:
        for piece in pieces_of(stream, piece_length):
            buffer += piece
            del buffer[: receiver.accept(buffer, 0, len(buffer))]
            needed = receiver.needed_bytes(buffer, 0, len(buffer))
            expect(HEADER_LENGTH <= needed <= TERM_LENGTH, "a frame fits into a term", needed=needed)
    except RemoteProtocolError:
        pass
    receiver.take_committed()
    taken = b"".join(log_buffer.chunks_from(0))
    for offset, header in iter_headers(taken):
        fault = rules.find_header_fault(header, offset)
        expect(fault is None, "what is taken is valid", fault=fault, offset=offset)
        if header.type == TYPE_DATA and rules.checksummed:
            crc = frame_crc(taken, offset, header.frame_length, rules.checksum_kind)
            expect(crc == header.session_id, "what is taken has its checksum", offset=offset)
        expect(header.type in (TYPE_DATA, TYPE_PADDING), "a log holds data and padding", header=header)
