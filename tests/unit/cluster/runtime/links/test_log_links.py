"""The log on the wire: who gets which bytes from where on, and what becomes of links that come, lag, lie and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.facts import has_facts
from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.log_rules import log_rules
from tests.unit.cluster.runtime.fake_gate import AuditLines, let_in, quiet_gate
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from tests.waiting import until, within
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.cluster.runtime.links.log_links import LogImage, LogPublication, LogSubscription, _LogLink
from trimaran.service_api.access.identity import STRANGER, Caller, CallerRole, Proof
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import (
    CONSENSUS_STREAM_ID,
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    LOG_STREAM_ID,
    MemberId,
)
from trimaran.service_api.wire.client_end import WRONG_PORT_ID
from trimaran.service_api.wire.link_frames import SetupFrame, StatusFrame, encode_commit_frame
from trimaran.service_api.wire.session import SessionEvent
from trimaran.service_api.wire.stream import FrameParser

TERM_LENGTH = 64 << 10
ONE, TWO = MemberId(1), MemberId(2)


def log_of(message_count: int, *, window_bytes: int = 1 << 20, length: int = 32) -> LogBuffer:
    """A leader's window with messages in it, a chunk each, and nothing pending."""
    log_buffer = LogBuffer(position=0, retained_bytes=window_bytes)
    append(log_buffer, message_count, length=length)
    log_buffer.take_pending()
    return log_buffer


def append(log_buffer: LogBuffer, message_count: int, *, length: int = 32) -> None:
    publisher = LogPublisher(
        log_buffer,
        log_session_id=7,
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=1408,
        checksums=True,
    )
    for number in range(message_count):
        publisher.append_message(number.to_bytes(8, "little").ljust(length, b"."))


CLUSTER_ID = 0x3F9A0C12D45E77B1


def setup(session_id: int = 7, *, position: int = 0, stream_id: int = LOG_STREAM_ID, member_id: int = 1) -> SetupFrame:
    return SetupFrame.at_position(
        position,
        session_id=session_id,
        stream_id=stream_id,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=1408,
        member_id=member_id,
    )


class Leader:
    """The publication of a leader with links to followers, and what it told the core."""

    def __init__(self, log_buffer: LogBuffer) -> None:
        self.log_buffer = log_buffer
        self.joined: list[tuple[MemberId, int]] = []
        self.publication = LogPublication(
            lambda position: setup(position=position),
            log_buffer,
            leadership_term_id=5,
            on_live_joined=lambda member_id, position: self.joined.append((member_id, position)),
        )

    def dial(self, member_id: MemberId) -> tuple[asyncio.Protocol, FakeTransport]:
        transport = FakeTransport()
        protocol = _LogLink(self.publication, member_id, asyncio.get_running_loop().create_future())
        protocol.connection_made(transport)
        assert transport.take_written() == setup(position=self.log_buffer.append_position).encode()
        return protocol, transport

    def join(self, member_id: MemberId, position: int) -> FakeTransport:
        protocol, transport = self.dial(member_id)
        protocol.data_received(StatusFrame.at_position(position, setup=setup()).encode())
        return transport

    def flush(self, commit_position: int | None = None) -> bytes:
        chunks = self.log_buffer.take_pending()
        self.publication.send(chunks, commit_position)
        return b"".join(chunks)


# --- the leader's end


async def test_follower_gets_the_log_from_where_it_joins_without_gap_or_repetition() -> None:
    """Some of it is in the window, some is appended and not flushed yet, some comes later."""
    leader = Leader(log_of(10))
    join_position = 64 * 4
    append(leader.log_buffer, 3)

    transport = leader.join(ONE, join_position)
    leader.flush()
    append(leader.log_buffer, 2)
    leader.flush()

    assert transport.take_written() == b"".join(leader.log_buffer.chunks_from(join_position))
    assert leader.joined == [(ONE, join_position)]


async def test_follower_that_joins_at_the_end_gets_only_what_comes() -> None:
    leader = Leader(log_of(3))

    transport = leader.join(ONE, leader.log_buffer.append_position)

    assert transport.take_written() == b""
    append(leader.log_buffer, 1)
    assert transport.take_written() == b""
    assert leader.flush() == transport.take_written() != b""


async def test_commit_position_goes_in_front_of_the_log() -> None:
    """In one write: a second one would wake the follower once more."""
    leader = Leader(log_of(3))
    transport = leader.join(ONE, leader.log_buffer.append_position)
    append(leader.log_buffer, 2)

    flushed = leader.flush(commit_position=128)

    assert transport.take_written() == encode_commit_frame(5, 128) + flushed


async def test_an_encrypted_link_writes_a_batch_at_once() -> None:
    """Each write would be a record of its own, with a call into OpenSSL and 22 bytes more."""
    writes: list[bytes] = []

    class Encrypted(FakeTransport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:  # as the loop's transports have it
            return object() if name == "ssl_object" else default

        def write(self, data: Any) -> None:  # bytes of any kind
            writes.append(bytes(data))

    leader, transport = Leader(log_of(3)), Encrypted()
    protocol = _LogLink(leader.publication, ONE, asyncio.get_running_loop().create_future())
    protocol.connection_made(transport)
    protocol.data_received(StatusFrame.at_position(leader.log_buffer.append_position, setup=setup()).encode())
    writes.clear()
    append(leader.log_buffer, 2)

    flushed = leader.flush(commit_position=128)

    assert writes == [encode_commit_frame(5, 128) + flushed]


async def test_link_that_has_not_joined_gets_nothing() -> None:
    leader = Leader(log_of(3))
    _, transport = leader.dial(ONE)

    append(leader.log_buffer, 1)
    leader.flush()

    assert transport.take_written() == b""


@pytest.mark.parametrize("position", [64 * 2, 64 * 11])
async def test_join_outside_the_window_is_refused(position: int) -> None:
    """Below the window the follower has to catch up first; above it the leader has nothing to say."""
    leader = Leader(log_of(10, window_bytes=64 * 5))
    leader.log_buffer.discard_before(1 << 20)

    transport = leader.join(ONE, position)

    assert transport.is_aborted
    assert leader.joined == []


async def test_slow_follower_is_dropped_and_the_others_are_not_held_up() -> None:
    """Source: DESIGN §4; peers.md C4 classes 28 and 29."""
    leader = Leader(log_of(0))
    slow, quick = leader.join(ONE, 0), leader.join(TWO, 0)
    slow.waiting_bytes = (32 << 20) + 1

    append(leader.log_buffer, 1)
    flushed = leader.flush()

    assert slow.is_aborted
    assert quick.take_written() == flushed


async def test_link_that_was_dropped_gets_no_more_before_its_loss_is_told() -> None:
    """The connection is closed before `connection_lost` comes; uvloop raises on writes to it."""
    leader = Leader(log_of(0))
    slow = leader.join(ONE, 0)
    slow.waiting_bytes = (32 << 20) + 1
    append(leader.log_buffer, 1)
    leader.flush()
    slow.waiting_bytes = 0

    append(leader.log_buffer, 1)
    leader.flush()

    assert slow.is_aborted
    assert slow.take_written() == b""


async def test_link_that_is_lost_gets_no_more_and_its_dialler_is_told() -> None:
    leader = Leader(log_of(0))
    protocol, transport = leader.dial(ONE)
    protocol.data_received(StatusFrame.at_position(0, setup=setup()).encode())

    protocol.connection_lost(None)
    append(leader.log_buffer, 1)
    leader.flush()

    assert transport.take_written() == b""


async def test_closed_publication_drops_its_links() -> None:
    leader = Leader(log_of(0))
    transport = leader.join(ONE, 0)

    leader.publication.close()

    assert transport.is_aborted


# --- the follower's end


class Follower:
    """A subscription with a window behind it, and what it told."""

    def __init__(self) -> None:
        self.log_buffer = LogBuffer(position=0, retained_bytes=1 << 20)
        self.images: list[int] = []
        self.closed: list[tuple[int, str]] = []
        self.frame_count = 0
        self.gate = quiet_gate()
        self.audit = AuditLines()
        self.commits: list[tuple[int, int]] = []
        self.subscription = LogSubscription(
            roster(0, 1),
            cluster_id=lambda: CLUSTER_ID,
            audit=self.audit.audit,
            on_frames=self._on_frames,
            on_image=self.images.append,
            on_closed=lambda session_id, reason: self.closed.append((session_id, reason)),
        )

    def _on_frames(self, committed: tuple[int, int] | None) -> None:
        self.frame_count += 1
        if committed is not None:
            self.commits.append(committed)

    def make_image(self) -> LogImage:
        return self.subscription._make_image(let_in(self.gate, Purpose.LOG))

    def connect(self, session_id: int = 7) -> tuple[LogImage, FakeTransport]:
        image, transport = self.make_image(), FakeTransport()
        image.connection_made(transport)
        receive(image, setup(session_id).encode())
        return image, transport

    def open(self, session_id: int = 7, *, join_position: int | None = None) -> None:
        image = self.subscription.image(session_id, sender_id=ONE)
        assert image is not None
        receiver = LogReceiver(self.log_buffer, log_rules(term_length_bytes=TERM_LENGTH), roster(0, 1).history)
        self.subscription.open(image, receiver, join_position=join_position)


@pytest.fixture
def follower() -> Follower:
    return Follower()


def sent(message_count: int, *, length: int = 32) -> bytes:
    return b"".join(log_of(message_count, length=length).chunks_from(0))


def test_image_asks_for_nothing_before_it_is_opened(follower: Follower) -> None:
    """The leader dials early; the follower is in an election and does not know yet from where on it wants the log."""
    _, transport = follower.connect()

    assert transport.take_written() == b""
    assert follower.images == [7]
    follower.open(join_position=0)

    assert transport.take_written() == StatusFrame.at_position(0, setup=setup()).encode()


async def test_a_client_is_told_where_the_ingress_is_and_what_it_still_sends_is_dropped(follower: Follower) -> None:
    """To close with bytes of it unread would reset the connection before it has read the answer."""
    image, transport = follower.make_image(), FakeTransport()
    image.connection_made(transport)

    receive(image, setup(stream_id=INGRESS_STREAM_ID).encode())
    receive(image, bytes(10_000))

    (frame,) = FrameParser().feed(transport.take_written())
    event = SessionEvent.decode(frame.payload)
    assert (frame.stream_id, event.correlation_id) == (EGRESS_STREAM_ID, WRONG_PORT_ID)
    assert has_facts(event.detail, "log port", "member 0", roster(0, 1).own_ingress)
    assert (transport.is_eof_written, transport.is_closed) == (True, False)
    assert follower.images == []


async def test_a_log_link_of_who_is_not_that_member_or_of_another_cluster_is_in_the_audit_trail(
    follower: Follower,
) -> None:
    """The refusal was logged; not who had shown what, nor how often."""
    for caller, cluster_id in (
        (Caller(CallerRole.MEMBER, "2", Proof.CERTIFICATE), CLUSTER_ID),
        (Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE), CLUSTER_ID),
        (Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE), CLUSTER_ID),
        (STRANGER, CLUSTER_ID + 1),
    ):
        accepted, transport = let_in(follower.gate, Purpose.LOG), FakeTransport()
        accepted.identify(caller)
        image = follower.subscription._make_image(accepted)
        image.connection_made(transport)
        receive(image, setup(7).model_copy(update={"member_id": ONE, "cluster_id": cluster_id}).encode())
        assert transport.is_aborted

    assert follower.audit.told("action", "role", "caller", "endpoint", "claimed_member_id") == [
        ("audit.action_refused", "member link", "member", "2", "log", ONE),
        ("audit.action_refused", "member link", "client", "app", "log", ONE),
        ("audit.action_refused", "member link", "stranger", "", "log", ONE),
    ]
    assert "another cluster" in follower.audit.lines[-1][1]["reason"]


async def test_frames_that_came_before_an_image_was_opened_are_taken_then(follower: Follower) -> None:
    """A catch-up replay begins at once."""
    image, _ = follower.connect()
    log = sent(20)
    receive(image, log[:1000])
    assert follower.log_buffer.append_position == 0

    follower.open()
    await asyncio.sleep(0)
    receive(image, log[1000:])

    assert b"".join(follower.log_buffer.chunks_from(0)) == log


async def test_image_tells_of_the_commit_once_what_came_with_it_is_recorded(follower: Follower) -> None:
    image, _ = follower.connect()
    follower.open(join_position=0)
    log = sent(20)

    receive(image, encode_commit_frame(5, 64) + log[:640] + encode_commit_frame(5, 128) + log[640:])

    assert b"".join(follower.log_buffer.chunks_from(0)) == log
    assert (follower.frame_count, follower.commits) == (1, [(5, 128)])


async def test_closing_drops_every_connection_also_one_that_is_just_being_made(follower: Follower) -> None:
    """A node that begins again in its process left them open, and the leader did not dial again: seed 19000059."""
    silent, late = FakeTransport(), FakeTransport()
    follower.make_image().connection_made(silent)
    _, superseded = follower.connect()
    follower.open()
    _, newer = follower.connect()
    image = follower.make_image()

    follower.subscription.close()
    image.connection_made(late)

    assert [transport.is_aborted for transport in (silent, superseded, newer, late)] == [True] * 4


async def test_image_that_waits_is_read_until_its_buffer_is_full(follower: Follower) -> None:
    """Source: STYLE 11."""
    image, transport = follower.connect()
    log = sent(8192)
    assert len(log) == 512 << 10
    receive(image, log)
    assert not transport.is_reading()

    follower.open()
    await asyncio.sleep(0)

    assert follower.log_buffer.append_position == len(log)
    assert transport.is_reading()


async def test_image_that_closed_while_it_waited_is_gone() -> None:
    """A link that is not read is not seen to close: then a dead leader's log was joined, which failed, and again."""
    follower = Follower()
    await follower.subscription.start(SOCKETS, Purpose.LOG, Endpoint("127.0.0.1", 0), gate=ConnectionGate())
    assert follower.subscription._listener is not None
    _, writer = await SOCKETS.dial_streams(Purpose.LOG, follower.subscription._listener.endpoint)
    writer.write(setup().encode())
    async with within(60):
        await until(lambda: follower.images)
        writer.close()
        await until(lambda: follower.subscription.image(7, sender_id=ONE) is None)
    follower.subscription.close()

    assert follower.closed == []


@pytest.mark.parametrize("step", [1, 31, 33, 1000, 1 << 20])
def test_frames_are_appended_however_they_are_cut(follower: Follower, step: int) -> None:
    image, _ = follower.connect()
    follower.open(join_position=0)
    log = sent(20) + b""

    for start in range(0, len(log), step):
        receive(image, log[start : start + step])

    assert b"".join(follower.log_buffer.chunks_from(0)) == log
    assert follower.frame_count > 0


def test_frame_longer_than_the_receive_buffer_is_taken(follower: Follower) -> None:
    """The padding at the end of a term may be as long as the term."""
    term_length = 4 << 20
    log_buffer = LogBuffer(position=0, retained_bytes=1 << 30)
    publisher = LogPublisher(
        log_buffer,
        log_session_id=7,
        initial_term_id=0,
        term_length_bytes=term_length,
        mtu_length_bytes=65504,
        checksums=True,
    )
    publisher.append_message(b"first")
    publisher._fill_term(term_length - 64)
    publisher.append_message(b"second")
    image, _ = follower.connect()
    receiver = LogReceiver(
        follower.log_buffer, log_rules(term_length_bytes=term_length, mtu_length_bytes=65504), roster(0, 1).history
    )
    follower.subscription.open(image, receiver, join_position=0)

    receive(image, b"".join(log_buffer.chunks_from(0)))

    assert follower.log_buffer.append_position == log_buffer.append_position
    assert [len(chunk) for chunk in follower.log_buffer.take_pending()][-1] == 64


def test_live_log_and_catchup_replay_merge_into_one_log(follower: Follower) -> None:
    """What both bring is taken once, from whichever brings it first."""
    log = sent(40)
    live, _ = follower.connect(7)
    follower.open(7)
    catchup, _ = follower.connect(8)
    catchup_receiver = LogReceiver(follower.log_buffer, log_rules(term_length_bytes=TERM_LENGTH), roster(0, 1).history)
    catchup.open(catchup_receiver, join_position=None)

    receive(catchup, log[: 64 * 10])
    receive(live, log[64 * 8 : 64 * 20 + 40])
    receive(catchup, log[64 * 10 : 64 * 25])
    receive(live, log[64 * 20 + 40 :])
    receive(catchup, log[64 * 25 : 64 * 30])

    assert b"".join(follower.log_buffer.chunks_from(0)) == log


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda log: log[64:], id="gap"),
        pytest.param(lambda log: log[:40] + b"X" + log[41:], id="checksum"),
        pytest.param(lambda log: bytes(32) + log, id="zeros"),
        pytest.param(lambda log: b"\xff" * 64, id="ones"),
        pytest.param(lambda log: log[:16] + b"\x6c" + log[17:], id="stream"),
        pytest.param(lambda log: log[:6] + b"\x05" + log[7:], id="frame type"),
        pytest.param(lambda log: b"\x00\x10\x00\x00" + log[4:] * 70, id="length beyond what is checked"),
    ],
)
def test_stream_that_does_not_continue_this_log_is_refused(follower: Follower, spoil: object) -> None:
    image, transport = follower.connect()
    follower.open(join_position=0)

    receive(image, spoil(sent(5)))  # type: ignore[operator]  # a function from bytes to bytes

    assert transport.is_aborted
    assert follower.log_buffer.append_position == 0
    image.connection_lost(None)
    assert [session_id for session_id, _ in follower.closed] == [7]


@pytest.mark.parametrize("bad", [200, 232], ids=["header", "payload"])
def test_nothing_from_a_bad_frame_on_is_taken(follower: Follower, bad: int) -> None:
    """What is taken ends at a frame that is valid; the rest comes again on the next link."""
    image, transport = follower.connect()
    follower.open(join_position=0)
    log = sent(5)

    receive(image, log[:128])
    receive(image, log[128:bad] + b"X" + log[bad + 1 :])

    assert transport.is_aborted
    assert b"".join(follower.log_buffer.chunks_from(0)) in (log[:128], log[:192])


def test_end_of_the_open_image_is_told_and_that_of_a_waiting_one_is_not(follower: Follower) -> None:
    waiting, _ = follower.connect(6)
    image, _ = follower.connect(7)
    follower.open(7, join_position=0)

    waiting.connection_lost(None)
    image.connection_lost(ConnectionResetError("reset by peer"))

    assert follower.closed == [(7, "ConnectionResetError: reset by peer")]
    assert follower.subscription.image(7, sender_id=ONE) is None


def test_end_that_this_side_asked_for_is_not_told(follower: Follower) -> None:
    image, transport = follower.connect()
    follower.open(join_position=0)

    follower.subscription.disconnect()
    image.connection_lost(None)

    assert transport.is_aborted
    assert follower.closed == []


def test_image_that_replaces_the_open_one_waits_and_the_open_ones_end_is_told(follower: Follower) -> None:
    """A leader dials again when it lost the link before this side did. The next election opens the new one."""
    first, first_transport = follower.connect(7)
    follower.open(7, join_position=0)

    second, second_transport = follower.connect(7)
    assert not first_transport.is_aborted
    assert second_transport.take_written() == b""
    first.connection_lost(None)

    assert follower.closed == [(7, "connection closed")]
    assert follower.subscription.image(7, sender_id=ONE) is second


def test_images_that_nobody_opens_are_few(follower: Follower) -> None:
    """Links of former leaders do not pile up. Source: STYLE 11."""
    _, opened = follower.connect(100)
    follower.open(100, join_position=0)

    transports = [follower.connect(session_id)[1] for session_id in range(10)]

    assert [transport.is_aborted for transport in transports] == [True] * 6 + [False] * 4
    assert not opened.is_aborted


def test_opening_another_image_drops_the_one_that_was_open(follower: Follower) -> None:
    """Or it would feed the log unseen, and its end would be nobody's news."""
    _, first = follower.connect(7)
    follower.open(7, join_position=0)
    follower.connect(8)

    follower.open(8, join_position=0)

    assert first.is_aborted
    assert follower.closed == []


@pytest.mark.parametrize(
    "data",
    [setup(stream_id=CONSENSUS_STREAM_ID).encode(), bytes(64), b"\xff" * 64, sent(1)],
    ids=["other stream", "zeros", "ones", "frames"],
)
def test_connection_that_begins_with_anything_but_its_setup_is_dropped(follower: Follower, data: bytes) -> None:
    image, transport = follower.make_image(), FakeTransport()
    image.connection_made(transport)

    receive(image, data)
    image.connection_lost(None)

    assert transport.is_aborted
    assert follower.images == []
    assert follower.closed == []


def test_leader_and_follower_understand_each_other(follower: Follower) -> None:
    """The frames of either end are what the other reads."""
    (status,) = FrameParser().feed(StatusFrame.at_position(TERM_LENGTH + 96, setup=setup()).encode())

    position = StatusFrame.decode(status.raw).position(initial_term_id=0, term_length_bytes=TERM_LENGTH)

    assert position == TERM_LENGTH + 96
