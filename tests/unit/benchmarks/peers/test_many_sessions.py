"""Many sessions: the bytes of ours, the load process against servers that a test makes, and what is refused."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trimaran.benchmarks.peers.many_sessions import UsageReading, _most_in_flight, run_connections
from trimaran.benchmarks.peers.peer import SessionsLoad
from trimaran.benchmarks.peers.pipeline import JetStreamDialect, ZooKeeperDialect
from trimaran.benchmarks.peers.session_dialect import SessionDialect
from trimaran.benchmarks.statistics.histogram import Histogram
from trimaran.client.ingress_publisher import IngressPublisher
from trimaran.service_api import ClusterError
from trimaran.service_api.errors import first_leaf
from trimaran.service_api.types import EGRESS_STREAM_ID, ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.frame import encode_frame, iter_headers, iter_whole_messages
from trimaran.service_api.wire.message import decode_message
from trimaran.service_api.wire.session import (
    INGRESS_MESSAGES,
    EventCode,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)

_TERM, _SESSION = TermId(3), ClusterSessionId(7)
_ANSWER = struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68)


def said(message: bytes) -> bytes:
    return encode_frame(message, stream_id=EGRESS_STREAM_ID)


def event(code: EventCode, detail: str = "") -> bytes:
    return said(
        SessionEvent(
            cluster_session_id=_SESSION,
            correlation_id=CorrelationId(5),
            leadership_term_id=_TERM,
            leader_member_id=MemberId(0),
            code=code,
            detail=detail,
        ).encode()
    )


def echo(payload: bytes) -> bytes:
    header = SessionMessageHeader(leadership_term_id=_TERM, cluster_session_id=_SESSION, timestamp=9)
    return said(header.encode() + payload)


def opened(payload: int = 32) -> SessionDialect:
    dialect = SessionDialect(payload, 5)
    assert dialect.is_greeted(bytearray(event(EventCode.OK)))
    return dialect


def decoded(frames: bytes) -> list[object]:
    return [decode_message(message, registry=INGRESS_MESSAGES) for _, message in iter_whole_messages(frames)]


def test_a_session_of_ours_says_what_the_client_says() -> None:
    dialect = SessionDialect(32, 5)

    setup, connect = [header for _, header in iter_headers(dialect.greeting())]
    assert setup.type != connect.type
    (request,) = decoded(dialect.greeting()[setup.aligned_length :])
    assert isinstance(request, SessionConnectRequest)
    assert request.correlation_id == 5
    data = bytearray(event(EventCode.OK)[:40])
    assert not dialect.is_greeted(data)
    data += event(EventCode.OK)[40:]
    assert dialect.is_greeted(data)
    assert data == b""
    publisher = IngressPublisher(65_504)
    publisher.bind(leadership_term_id=_TERM, cluster_session_id=_SESSION)
    publisher.offer(b"x" * 32)
    assert dialect.requests(0, 1) == bytes(publisher.take())
    assert [type(message) for message in decoded(dialect.keep_alive())] == [SessionKeepAlive]
    assert [type(message) for message in decoded(dialect.farewell())] == [SessionCloseRequest]
    assert not dialect.is_over(bytearray())
    assert dialect.is_over(bytearray(event(EventCode.CLOSED)))


def test_an_echo_is_one_answer_only_when_it_is_whole_and_of_the_payload() -> None:
    dialect = opened()
    answer = echo(b"x" * 32)

    assert dialect.is_one_answer(answer)
    assert not dialect.is_one_answer(answer[:-32])
    assert not dialect.is_one_answer(answer + answer)
    assert not dialect.is_one_answer(echo(b"y" * 32))
    data = bytearray(event(EventCode.OK) + answer + answer[:50])
    assert dialect.take_answers(data) == 1
    assert data == answer[:50]


def test_another_leader_a_closed_session_and_another_payload_are_errors() -> None:
    new_leader = NewLeaderEvent(leadership_term_id=_TERM, cluster_session_id=_SESSION, leader_member_id=MemberId(2))

    with pytest.raises(ClusterError, match="leader_member_id=2"):
        opened().take_answers(bytearray(said(new_leader.encode())))
    with pytest.raises(ClusterError, match="timed out"):
        opened().take_answers(bytearray(event(EventCode.CLOSED, "timed out")))
    with pytest.raises(ClusterError, match="yyyy"):
        opened().take_answers(bytearray(echo(b"y" * 32)))


def test_one_answer_of_others_is_no_refusal_and_no_part() -> None:
    zookeeper, jetstream = ZooKeeperDialect(32), JetStreamDialect(32, inbox=b"_INBOX.one")
    body = b'{"stream":"TRIMARAN", "seq":1}'
    answer = b"MSG _INBOX.one 1 %d\r\n%b\r\n" % (len(body), body)

    assert zookeeper.is_one_answer(_ANSWER)
    assert not zookeeper.is_one_answer(_ANSWER[:-1])
    assert not zookeeper.is_one_answer(struct.pack(">iiqi", 84, 1, 3, -101) + bytes(68))
    assert jetstream.is_one_answer(answer)
    assert not jetstream.is_one_answer(answer[:-1])
    assert not jetstream.is_one_answer(b"PING\r\n" + answer)
    assert not jetstream.is_one_answer(answer.replace(b"stream", b"error"))
    assert b"_INBOX.one" in jetstream.greeting()
    assert b"_INBOX.one" in jetstream.requests(0, 1)


def test_requests_in_flight_are_counted_at_the_moments_of_a_look() -> None:
    rows = [(0, 10), (5, 10), (20, 10)]

    assert _most_in_flight(rows, range(1, 30, 6)) == 2
    assert _most_in_flight(rows, range(21, 30, 6)) == 1
    assert _most_in_flight([], range(3)) == 0


def test_nothing_answered_is_an_error() -> None:
    with pytest.raises(ClusterError, match="no request was answered"):
        UsageReading.take([], []).measured_until(UsageReading.take([], []), Histogram())


@asynccontextmanager
async def zookeeper(*, answers_before_end: int | None = None) -> AsyncIterator[tuple[int, list[int]]]:
    """Serve what answers each write on a connection at once; gives its port, and how many each connection wrote.

    A connection is closed after so many answers, or after the farewell.
    """
    written: list[int] = []
    length, ping = len(ZooKeeperDialect(32).requests(0, 1)), ZooKeeperDialect(32).keep_alive()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(written)
        written.append(0)
        for _ in range(2):
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(struct.pack(">i", 0))
        while written[number] != answers_before_end:
            head = await reader.readexactly(len(ping))
            if head == ZooKeeperDialect(32).farewell():
                break
            if head == ping:
                continue
            await reader.readexactly(length - len(ping))
            written[number] += 1
            writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], written
    finally:
        server.close()


def load(measure_s: float) -> SessionsLoad:
    return SessionsLoad(sessions=5, payload=32, processes=2, warmup_s=0.0, measure_s=measure_s)


async def test_every_connection_has_one_request_in_flight_until_the_time_is_over(tmp_path: Path) -> None:
    async with zookeeper() as (port, written):
        measured = await asyncio.to_thread(
            run_connections, "zookeeper", port, load(0.3), servers=[], directory=tmp_path
        )

    assert len(written) == 5
    assert min(written) > 1
    assert 0 < measured.messages_per_s * 0.3 <= sum(written)
    assert measured.p50_us is not None
    assert measured.p99_us is not None
    assert measured.p50_us <= measured.p99_us
    assert measured.client_cpu_us is not None


async def test_a_server_that_is_silent_is_reminded_by_one_connection_alone(tmp_path: Path) -> None:
    """A word of every session, while the server is busy, is a load of its own: with ten thousand it ended leaders."""
    reminded: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(struct.pack(">i", 0))
        await reader.readexactly(len(ZooKeeperDialect(32).requests(0, 1)))
        if await reader.read(12) == ZooKeeperDialect(32).keep_alive():
            reminded.append(writer.get_extra_info("peername")[1])
            writer.write(_ANSWER)
            await reader.readuntil(ZooKeeperDialect(32).farewell())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.to_thread(
        run_connections,
        "zookeeper",
        port,
        SessionsLoad(sessions=4, payload=32, processes=1, warmup_s=0.0, measure_s=0.5),
        servers=[],
        directory=tmp_path,
    )
    server.close()

    assert len(reminded) == 1


async def test_a_connection_that_the_peer_closes_ends_the_load(tmp_path: Path) -> None:
    async with zookeeper(answers_before_end=3) as (port, _):
        with pytest.raises(BaseExceptionGroup) as raised:
            await asyncio.to_thread(run_connections, "zookeeper", port, load(5.0), servers=[], directory=tmp_path)

    said = str(first_leaf(raised.value))
    assert "zookeeper-connections-" in said
    assert "the peer closed a connection: answered=" in said.splitlines()[0]
