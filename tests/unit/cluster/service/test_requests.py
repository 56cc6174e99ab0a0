"""Requests in the container: each runs once, and its reply is kept until its client has it."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import trimaran.cluster.service.replies as replies_module
from tests.unit.cluster.service.log_writer import SESSION, TERM, RecordingService, Rig
from tests.unit.cluster.service.test_client_session import FakeOutlet
from trimaran.cluster.messages.replies import KeptReply, SessionRequests
from trimaran.cluster.service.replies import RequestRunner, decode_replies
from trimaran.service_api import ClusteredService, ConfigurationError, RemoteProtocolError
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.message import Message, decode_message
from trimaran.service_api.wire.request import (
    KEPT_REPLY_LIMIT_BYTES,
    KEPT_REPLY_OVERHEAD_BYTES,
    REQUEST_HEADER,
    REQUEST_LIMIT,
    REQUEST_MESSAGE,
    RequestCode,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler


class Answering(RecordingService):
    """Answers a request with what `reply` makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[bytes] = []
        self.reply: Callable[[bytes], object] = lambda payload: b"re " + payload

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.ran.append(bytes(payload))
        return self.reply(bytes(payload))  # type: ignore[return-value]  # some tests return nonsense


class RequestRig(Rig):
    """A log with requests in it, their service, and a client that gets the replies."""

    def __init__(self, service: RecordingService | None = None) -> None:
        super().__init__(term_length_bytes=32 << 20)
        self.answering = Answering()
        self.service = self.answering if service is None else service
        self.agent.service = self.service
        self.agent.requests = RequestRunner(
            self.service, max_reply_length=1 << 21, on_service_error=self.agent.on_service_error
        )
        self.outlet = FakeOutlet()
        self.open()
        self.agent.connect_egress(SESSION, self.outlet, TERM)

    def request(self, sequence: int, payload: bytes = b"x", *, acknowledged: int = 0, session_id: int = SESSION) -> int:
        header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, session_id, 100 + sequence, sequence, acknowledged)
        return self.publisher.append_message(header + payload)

    def replies(self) -> list[tuple[int, int, bytes]]:
        """Deliver what is in the log; take sequence, code and payload of each reply."""
        self.deliver()
        data = b"".join(bytes(write) for write in self.outlet.writes)
        self.outlet.writes.clear()
        assembler, found = MessageAssembler(), []
        for frame in FrameParser().feed(data):
            encoded = assembler.append(frame)
            if encoded is not None:
                *message, term, session_id, _, sequence, code = REQUEST_HEADER.unpack_from(encoded)
                assert (tuple(message), term, session_id) == (REQUEST_MESSAGE, TERM, SESSION)
                found.append((sequence, code, encoded[48:]))
        return found


@pytest.fixture
def rig() -> RequestRig:
    return RequestRig()


def test_requests_run_in_order_and_are_answered(rig: RequestRig) -> None:
    rig.request(1, b"one")
    rig.request(2, b"two")
    rig.request(3, b"t" * 5000)

    assert rig.replies() == [(1, 0, b"re one"), (2, 0, b"re two"), (3, 0, b"re " + b"t" * 5000)]
    assert rig.answering.ran == [b"one", b"two", b"t" * 5000]


def test_a_chunk_of_requests_and_messages_is_delivered_in_order(rig: RequestRig) -> None:
    """Runs of both kinds alternate, in lengths of their own."""
    order: list[bytes] = []

    def keep(payload: bytes) -> bytes:
        order.append(payload)
        return b""

    rig.answering.reply = keep
    rig.service.on_message = lambda session, payload: order.append(payload)
    for number in range(1, 5):
        rig.request(2 * number - 1, b"r" * number)
        rig.request(2 * number, b"r" * number)
        rig.message(b"m" * number)
        rig.message(b"m" * 16)
    rig.one_chunk()

    replies = rig.replies()

    assert order == [payload for n in range(1, 5) for payload in (b"r" * n, b"r" * n, b"m" * n, b"m" * 16)]
    assert [sequence for sequence, _, _ in replies] == [*range(1, 9)]
    assert rig.agent.log_position == rig.log_buffer.append_position


def test_a_request_that_comes_again_gets_the_same_reply_and_does_not_run(rig: RequestRig) -> None:
    counter = iter(range(100))
    rig.answering.reply = lambda payload: b"%d" % next(counter)
    rig.request(1)
    rig.request(2)
    rig.request(1)
    rig.request(2)
    rig.request(3)

    assert rig.replies() == [(1, 0, b"0"), (2, 0, b"1"), (1, 0, b"0"), (2, 0, b"1"), (3, 0, b"2")]
    assert len(rig.answering.ran) == 3


def test_acknowledged_replies_are_dropped(rig: RequestRig) -> None:
    rig.request(1)
    rig.request(2)
    rig.request(3, acknowledged=1)
    rig.request(2)
    rig.request(1)

    assert rig.replies()[3:] == [(2, 0, b"re x"), (1, RequestCode.NOT_KEPT, b"")]
    assert repr(rig.agent.requests.sessions[SESSION]) == "<SessionReplies first=2 kept=2 bytes=8>"


def test_an_acknowledgement_of_what_never_ran_drops_no_more_than_there_is(rig: RequestRig) -> None:
    rig.request(1, acknowledged=1 << 60)
    rig.request(2, acknowledged=1 << 60)
    rig.request(3, acknowledged=-5)

    assert [code for _, code, _ in rig.replies()] == [0, 0, 0]
    assert rig.agent.requests.sessions[SESSION].next_sequence == 4


@pytest.mark.parametrize("sequence", [0, -1, -(1 << 63)])
def test_a_sequence_that_never_was_is_not_kept(rig: RequestRig, sequence: int) -> None:
    rig.request(sequence)

    assert rig.replies() == [(sequence, RequestCode.NOT_KEPT, b"")]
    assert rig.answering.ran == []


def test_a_request_behind_a_gap_does_not_run_until_the_one_before_it_has_come(rig: RequestRig) -> None:
    rig.request(2, b"two")
    rig.request(1, b"one")
    rig.request(2, b"two")

    assert rig.replies() == [(2, RequestCode.OUT_OF_ORDER, b""), (1, 0, b"re one"), (2, 0, b"re two")]
    assert rig.answering.ran == [b"one", b"two"]


def test_no_more_requests_run_than_replies_may_be_kept(rig: RequestRig) -> None:
    for sequence in range(1, REQUEST_LIMIT + 2):
        rig.request(sequence)
    refused = rig.replies()[-1]
    rig.request(REQUEST_LIMIT + 1, acknowledged=1)

    assert refused == (REQUEST_LIMIT + 1, RequestCode.WINDOW_EXCEEDED, b"")
    assert rig.replies() == [(REQUEST_LIMIT + 1, 0, b"re x")]
    assert len(rig.answering.ran) == REQUEST_LIMIT + 1


def test_no_more_bytes_of_replies_are_kept_than_allowed_and_one_reply(rig: RequestRig) -> None:
    rig.answering.reply = lambda payload: bytes(1 << 20)
    count = KEPT_REPLY_LIMIT_BYTES >> 20
    for sequence in range(1, count + 2):
        rig.request(sequence)
    refused = rig.replies()[-1]
    rig.request(count + 1, acknowledged=count)

    assert refused == (count + 1, RequestCode.WINDOW_EXCEEDED, b"")
    assert rig.replies()[0][:2] == (count + 1, 0)
    assert rig.agent.requests.sessions[SESSION].kept_bytes == 1 << 20


def test_replies_of_all_sessions_together_are_bounded_and_every_session_goes_on(
    rig: RequestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound a session runs one request at a time; one that acknowledges nothing stops no other."""
    monkeypatch.setattr(replies_module, "KEPT_REPLIES_LIMIT_BYTES", 4 * (1_000 + KEPT_REPLY_OVERHEAD_BYTES))
    rig.answering.reply = lambda payload: bytes(1_000)
    rig.open(SESSION + 1)
    for sequence in range(1, 6):  # its client is alive, and never acknowledges anything
        rig.request(sequence, b"other", session_id=SESSION + 1)
    for sequence in (1, 2):
        rig.request(sequence)
    refused = rig.replies()
    ran = len(rig.answering.ran)
    for sequence in (2, 3):
        rig.request(sequence, acknowledged=1)
    went_on = rig.replies()

    assert ran == 4 + 1
    assert refused == [(1, 0, bytes(1_000)), (2, RequestCode.WINDOW_EXCEEDED, b"")]
    assert went_on == [(2, 0, bytes(1_000)), (3, RequestCode.WINDOW_EXCEEDED, b"")]
    assert rig.agent.requests.kept_bytes == 5 * (1_000 + KEPT_REPLY_OVERHEAD_BYTES)


def test_what_is_kept_of_all_sessions_is_known_after_closes_and_in_snapshots(rig: RequestRig) -> None:
    """Members that start from a snapshot decide like those that did not."""
    rig.open(SESSION + 1)
    for sequence in range(1, 4):
        rig.request(sequence, b"x" * sequence, acknowledged=sequence // 3)
        rig.request(sequence, session_id=SESSION + 1)
    rig.deliver()
    requests = rig.agent.requests
    other = RequestRunner(rig.service, max_reply_length=1 << 21, on_service_error=rig.agent.on_service_error)
    other.restore(decode_replies(requests.snapshot_messages()))
    before = requests.kept_bytes
    rig.close()
    rig.deliver()

    assert other.kept_bytes == before == len(b"re xx" + b"re xxx" + 3 * b"re x") + 5 * KEPT_REPLY_OVERHEAD_BYTES
    assert requests.kept_bytes == len(3 * b"re x") + 3 * KEPT_REPLY_OVERHEAD_BYTES


def test_a_service_that_raises_is_an_answer_and_is_kept(rig: RequestRig) -> None:
    def fail(payload: bytes) -> bytes:
        raise ValueError("no such account")

    rig.answering.reply = fail
    rig.request(1)
    rig.request(1)

    assert rig.replies() == [(1, RequestCode.FAILED, b"ValueError: no such account")] * 2
    assert len(rig.answering.ran) == rig.agent.error_count == 1


@pytest.mark.parametrize("reply", [None, 7, "text", [1]])
def test_a_reply_that_is_no_bytes_is_the_failure_of_the_service(rig: RequestRig, reply: object) -> None:
    rig.answering.reply = lambda payload: reply
    rig.request(1)

    ((_, code, text),) = rig.replies()
    assert code == RequestCode.FAILED
    assert text.startswith(b"TypeError: on_request gave ")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_reply_of_any_kind_of_bytes_is_copied(rig: RequestRig, kind: type) -> None:
    made = bytearray(b"abc")
    rig.answering.reply = lambda payload: kind(made)
    rig.request(1)
    first = rig.replies()
    made[:] = b"xyz"
    rig.request(1)

    assert first == rig.replies() == [(1, 0, b"abc")]


def test_a_reply_that_is_too_long_is_the_failure_of_the_service(rig: RequestRig) -> None:
    rig.answering.reply = lambda payload: bytes((1 << 21) + 1)
    rig.request(1)

    ((_, code, text),) = rig.replies()
    assert code == RequestCode.FAILED
    assert text == b"LocalProtocolError: reply too long: length=2097153 limit=2097152"


def test_an_error_that_cannot_be_told_has_its_name_told(rig: RequestRig) -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

        __repr__ = __str__

    def fail(payload: bytes) -> bytes:
        raise UnspeakableError

    rig.answering.reply = fail
    rig.agent.requests = RequestRunner(rig.service, max_reply_length=100, on_service_error=lambda error: None)
    rig.request(1)

    assert rig.replies() == [(1, RequestCode.FAILED, b"UnspeakableError")]


def test_a_service_without_on_request_takes_none_and_says_so() -> None:
    rig = RequestRig(RecordingService())
    rig.request(1)
    rig.request(1)
    rig.request(2)

    assert rig.replies() == [
        (1, RequestCode.NO_REQUESTS, b""),
        (1, RequestCode.NO_REQUESTS, b""),
        (2, RequestCode.NO_REQUESTS, b""),
    ]
    assert rig.agent.error_count == 0


def test_on_request_must_be_a_plain_function() -> None:
    with pytest.raises(ConfigurationError, match="callback=on_request expected=def"):

        class Wrong(ClusteredService):
            def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None: ...

            async def on_request(  # type: ignore[override]  # it is wrong
                self, session: ClientSession, timestamp: int, payload: memoryview
            ) -> bytes:
                return b""


def test_a_service_that_closes_the_session_still_answers_the_request(rig: RequestRig) -> None:
    def close(payload: bytes) -> bytes:
        rig.agent.sessions[SESSION].close()
        return b"bye"

    rig.answering.reply = close
    rig.request(1)

    assert rig.replies() == [(1, 0, b"bye")]


def test_requests_of_a_closed_or_unknown_session_do_not_run(rig: RequestRig) -> None:
    rig.request(1)
    rig.close()
    rig.request(2)
    rig.request(1, session_id=999)

    assert [sequence for sequence, _, _ in rig.replies()] == [1]
    assert rig.answering.ran == [b"x"]
    assert rig.agent.requests.sessions == {}


def test_a_follower_keeps_the_replies_it_does_not_send(rig: RequestRig) -> None:
    rig.agent.disconnect_egress(None)
    rig.request(1)
    rig.request(2)
    unheard = rig.replies()
    rig.agent.connect_egress(SESSION, rig.outlet, TERM)
    rig.request(1)
    rig.request(2)

    assert unheard == []
    assert rig.replies() == [(1, 0, b"re x"), (2, 0, b"re x")]
    assert len(rig.answering.ran) == 2


class TestSnapshot:
    def test_replies_come_back_from_a_snapshot(self, rig: RequestRig) -> None:
        rig.open(SESSION + 1)
        rig.request(1, b"one")
        rig.request(2, b"two")
        rig.request(3, b"three", acknowledged=1)
        rig.request(1, b"other", session_id=SESSION + 1)
        rig.deliver()
        messages = self.through_bytes(rig)
        other = RequestRig()
        other.deliver()

        other.agent.requests.restore(decode_replies(messages))
        for sequence in (1, 2, 3, 4):
            other.request(sequence, b"again")

        kinds = [type(message) for message in messages]
        assert kinds == [SessionRequests, KeptReply, KeptReply, SessionRequests, KeptReply]
        assert other.replies() == [
            (1, RequestCode.NOT_KEPT, b""),
            (2, 0, b"re two"),
            (3, 0, b"re three"),
            (4, 0, b"re again"),
        ]
        assert other.answering.ran == [b"again"]

    def test_a_session_without_kept_replies_still_knows_how_far_it_came(self, rig: RequestRig) -> None:
        rig.answering.reply = lambda payload: b""
        rig.request(1)
        rig.request(3, acknowledged=1)
        rig.deliver()
        other = RequestRig()
        other.deliver()

        other.agent.requests.restore(decode_replies(self.through_bytes(rig)))
        other.request(1)
        other.request(2)

        assert other.replies() == [(1, RequestCode.NOT_KEPT, b""), (2, 0, b"re x")]

    def test_its_bytes_are_of_aeron_s_schema_with_template_ids_that_aeron_passes_over(self, rig: RequestRig) -> None:
        """Source: Aeron `ServiceSnapshotLoader`: another schema id ends the container, another template id does not."""
        rig.request(1, b"one")
        rig.request(2, b"two", acknowledged=1)
        rig.deliver()

        encoded = [message.encode() for message in rig.agent.requests.snapshot_messages()]

        session = struct.pack("<HHHHqqi", 20, 8110, 111, 16, SESSION, 2, 1)
        assert encoded == [session, struct.pack("<HHHHiI", 4, 8111, 111, 16, 0, 6) + b"re two"]

    def test_members_write_the_same(self, rig: RequestRig) -> None:
        follower = RequestRig()
        follower.agent.disconnect_egress(None)
        for each in (rig, follower):
            each.request(1)
            each.request(2, acknowledged=1)
            each.deliver()

        assert self.through_bytes(rig) == self.through_bytes(follower)

    @pytest.mark.parametrize(
        "messages",
        [
            [KeptReply(code=0)],
            [SessionRequests(cluster_session_id=ClusterSessionId(1), first_sequence=1, reply_count=1)],
            [
                SessionRequests(cluster_session_id=ClusterSessionId(1), first_sequence=1, reply_count=0),
                KeptReply(code=0),
            ],
            [SessionRequests(cluster_session_id=ClusterSessionId(1), first_sequence=1, reply_count=1)] * 2,
        ],
    )
    def test_what_does_not_add_up_is_refused(self, messages: list[Message]) -> None:
        with pytest.raises(RemoteProtocolError, match="replies: missing="):
            decode_replies(messages)

    def through_bytes(self, rig: RequestRig) -> list[Message]:
        return [decode_message(message.encode()) for message in rig.agent.requests.snapshot_messages()]
