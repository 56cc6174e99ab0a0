"""The links between members: consensus, the live log, catch-up, and the shipping of snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from unittest.mock import patch

from tests.fuzz.loops import on_loop
from tests.fuzz.samples import framed, make_sample
from tests.fuzz.target import expect, target
from tests.fuzz.targets.wire import TERM_LENGTH, pieces_of, stamped
from tests.unit.cluster.core.rosters import roster, roster_at
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.unit.cluster.runtime.links.linked import ONE as PEER
from tests.unit.cluster.runtime.links.linked import SETTINGS, Dialler
from trimaran.cluster.core.events import LeaderSaid, StandbySaid
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.log.shipped_snapshot import ShippedTerm, check_offer, make_recording_log
from trimaran.cluster.core.peers.message_rules import SENDER_FIELDS
from trimaran.cluster.messages.backup import SnapshotRecording
from trimaran.cluster.messages.shipping import SHIPPING_ANSWERS, LeadershipTermEntry, LeadershipTerms, SnapshotOffer
from trimaran.cluster.runtime.links import log_links
from trimaran.cluster.runtime.links.log_links import LogImage, LogPublication, _LogLink
from trimaran.cluster.runtime.links.member_links import MemberLinks, _Outbound
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import (
    CONSENSUS_STREAM_ID,
    LOG_STREAM_ID,
    STATUS_STREAM_ID,
    MemberId,
    RecordingId,
    TermId,
)
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import encode_message, encode_padding
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.link_frames import SetupFrame, StatusFrame, encode_commit_frame
from trimaran.service_api.wire.message import Message, decode_message

# --- consensus


def _consensus_seeds() -> Iterator[bytes]:
    greeting = framed([SETTINGS.model_copy(update={"member_id": PEER})], CONSENSUS_STREAM_ID)
    setup = SetupFrame(session_id=PEER, stream_id=CONSENSUS_STREAM_ID, member_id=PEER)
    head = setup.encode() + greeting
    yield b"\xff" + head
    yield b"\xff" + SetupFrame(session_id=PEER, stream_id=STATUS_STREAM_ID).encode()
    for kind, sender in SENDER_FIELDS.items():
        message = make_sample(kind)
        named = message if sender is None else message.model_copy(update={sender: PEER})
        yield b"\xff" + head + framed([named], CONSENSUS_STREAM_ID)


def _links(messages: list[Message | LeaderSaid | StandbySaid]) -> MemberLinks:
    return MemberLinks(
        SETTINGS,
        roster_at(0, {PEER: Endpoint("127.0.0.1", 1), MemberId(2): Endpoint("127.0.0.1", 2)}),
        post=lambda said: messages.append(said) if isinstance(said, Message | LeaderSaid | StandbySaid) else None,
        find_seeded=lambda: None,
        make_status=lambda: b"{}",
        documents={},
        audit=AuditTrail(info=print, warn=print, monotonic_ns=lambda: 0),
    )


@target(_consensus_seeds, length_limit=2048)
def consensus_link(data: bytes) -> None:
    """What a member gets on a consensus link that was dialled here, and on one that it has dialled itself."""
    if data:
        on_loop(lambda: _receive_consensus(1 + data[0], data[1:]))


def _receive_consensus(piece_length: int, stream: bytes) -> None:
    messages: list[Message | LeaderSaid | StandbySaid] = []
    links, gate = _links(messages), quiet_gate()
    transport, accepted = FakeTransport(), let_in(gate, Purpose.CONSENSUS)
    transport.protocol = greeting = links._accept(accepted)
    greeting.connection_made(transport)
    inbound = Dialler(transport, accepted)
    outbound, out_transport = _Outbound(links, PEER, asyncio.get_running_loop().create_future()), FakeTransport()
    outbound.connection_made(out_transport)
    for piece in pieces_of(stream, piece_length):
        if not transport.is_closed:
            inbound.data_received(piece)
        if not out_transport.is_closed:
            outbound.data_received(piece)
    for message in messages:
        sender = "member_id" if isinstance(message, LeaderSaid | StandbySaid) else SENDER_FIELDS[type(message)]
        expect(sender is not None and getattr(message, sender) == PEER, "a link speaks for one", message=message)
    inbound.connection_lost(None)
    outbound.connection_lost(None)
    links.close()


# --- the log


def _image_seeds() -> Iterator[bytes]:
    setup = SetupFrame.at_position(
        0, session_id=7, stream_id=LOG_STREAM_ID, term_length_bytes=TERM_LENGTH, mtu_length_bytes=1408
    )
    frames = b""
    for length in (40, 64, 64, 500, 3000):
        frames += encode_message(bytes(length), stream_id=LOG_STREAM_ID, mtu_length=1408, term_offset=len(frames)) + (
            encode_commit_frame(1, len(frames)) if length == 500 else b""
        )
    yield b"\x01\xff" + setup.encode() + stamped(frames, ChecksumKind.CRC32)
    yield b"\x00\x10" + setup.encode() + frames[:300]
    yield b"\x01\xff" + setup.encode() + encode_padding(TERM_LENGTH, stream_id=LOG_STREAM_ID)[:64]


@target(_image_seeds)
def log_image(data: bytes) -> None:
    """What a follower gets on its log and catch-up endpoints, before it wants the stream and after."""
    if len(data) >= 2:
        with patch.object(log_links, "_RECEIVE_BUFFER_BYTES", 1 << 12):  # a small one is made sooner, and has to grow
            on_loop(lambda: _receive_log(data[0], 1 + data[1], data[2:]))


def _receive_log(flags: int, piece_length: int, stream: bytes) -> None:
    log_buffer, committed = LogBuffer(position=0, retained_bytes=1 << 20), []
    rules = FrameRules(
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=1408,
        stream_id=LOG_STREAM_ID,
        checksummed=bool(flags & 1),
        is_cluster_log=bool(flags & 8),
    )

    def open_image(image: LogImage) -> None:
        if not flags & 2:
            image.open(LogReceiver(log_buffer, rules, roster(0, 1).history), join_position=0 if flags & 4 else None)

    image = LogImage(
        let_in(quiet_gate(), Purpose.LOG),
        lambda accepted, setup: None,
        open_image,
        lambda image, reason: None,
        lambda said: None if said is None else committed.append(said),
    )
    transport = FakeTransport()
    image.connection_made(transport)
    received = 0
    for piece in pieces_of(stream, piece_length):
        if transport.is_closed or transport.is_reading_paused:
            break
        received += _receive_while_open(image, transport, piece)
        expect(len(image._buffer) <= (1 << 13) + 2 * received, "memory follows what came", image=image)
    image.connection_lost(None)
    expect(log_buffer.append_position <= received, "the log is what came", log_buffer=log_buffer)


def _receive_while_open(image: LogImage, transport: FakeTransport, data: bytes) -> int:
    """Let an image receive bytes as a loop would, which reads no more once it is closed or paused."""
    taken = 0
    while taken < len(data) and not transport.is_closed and not transport.is_reading_paused:
        room = len(image.get_buffer(-1))
        receive(image, data[taken : taken + room])
        taken += min(room, len(data) - taken)
    return taken


def _status_seeds() -> Iterator[bytes]:
    setup = SetupFrame(session_id=7, stream_id=LOG_STREAM_ID)
    yield b"\xff" + StatusFrame.at_position(0, setup=setup).encode()
    yield b"\xff" + StatusFrame.at_position(96, setup=setup).encode()


@target(_status_seeds, length_limit=256)
def log_link(data: bytes) -> None:
    """What a leader gets from a follower on its log link: where it wants to join."""
    if data:
        on_loop(lambda: _join_log(1 + data[0], data[1:]))


def _join_log(piece_length: int, stream: bytes) -> None:
    log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)
    log_buffer.append(encode_message(bytes(100), stream_id=LOG_STREAM_ID, mtu_length=1408))
    joined: list[int] = []
    make_setup: Callable[[int], SetupFrame] = lambda position: SetupFrame.at_position(  # noqa: E731  # one argument of many
        position, session_id=7, stream_id=LOG_STREAM_ID
    )
    publication = LogPublication(
        make_setup, log_buffer, leadership_term_id=1, on_live_joined=lambda member_id, position: joined.append(position)
    )
    link, transport = _LogLink(publication, PEER, asyncio.get_running_loop().create_future()), FakeTransport()
    link.connection_made(transport)
    for piece in pieces_of(stream, piece_length):
        if not transport.is_closed:
            link.data_received(piece)
    expect(all(0 <= position <= log_buffer.append_position for position in joined), "a link joins in the log")
    link.connection_lost(None)


# --- shipping


def _offer(terms: int) -> list[Message]:
    places = [(-1, 5), (0, 4)]
    snapshots = tuple(
        SnapshotRecording(
            recording_id=RecordingId(recording_id),
            leadership_term_id=TermId(terms - 1),
            term_base_log_position=64 * (terms - 1),
            log_position=960,
            timestamp=3,
            service_id=service_id,
        )
        for service_id, recording_id in places
    )
    entries = tuple(
        LeadershipTermEntry(leadership_term_id=TermId(term), term_base_log_position=64 * term, timestamp=term)
        for term in range(terms)
    )
    offer = SnapshotOffer(
        member_id=PEER, log_recording_id=RecordingId(0), log_start_position=0, term_count=terms, snapshots=snapshots
    )
    return [offer, LeadershipTerms(terms=entries)]


def _shipping_seeds() -> Iterator[bytes]:
    for terms in (1, 3):
        first, second = (message.encode() for message in _offer(terms))
        yield len(first).to_bytes(2, "little") + first + second


@target(_shipping_seeds, length_limit=2048)
def snapshot_shipping(data: bytes) -> None:
    """A member's answer about its snapshot, made into the recording log of the member that asked."""
    length = 2 + int.from_bytes(data[:2], "little")
    try:
        offer = decode_message(data[2:length], registry=SHIPPING_ANSWERS)
        entries = decode_message(data[length:], registry=SHIPPING_ANSWERS)
    except RemoteProtocolError:
        return
    if not isinstance(offer, SnapshotOffer) or not isinstance(entries, LeadershipTerms):
        return
    terms = [ShippedTerm.of(term) for term in entries.terms]
    snapshots = [RecordedSnapshot.of(found) for found in offer.snapshots]
    try:
        check_offer(terms, snapshots, service_count=1)
    except RemoteProtocolError:
        return
    log = make_recording_log(terms, snapshots, log_recording_id=offer.log_recording_id)
    file = bytearray()
    for write in log.take_writes():
        file[write.file_position : write.file_position + len(write.data)] = write.data
    written = RecordingLog.parse(bytes(file))
    expect(written.entries == log.entries, "the log that is made can be read", log=log)
    expect(len(log.latest_snapshots(1)) == 2, "the log that is made has the snapshot", log=log)
