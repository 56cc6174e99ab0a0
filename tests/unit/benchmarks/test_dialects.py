"""The bytes that are exchanged with other systems, and with ours by the raw load, against servers that a test makes."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from trimaran.benchmarks.peers.etcd import Etcd, EtcdTransactions
from trimaran.benchmarks.peers.many_sessions import run_connections
from trimaran.benchmarks.peers.peer import SessionsLoad
from trimaran.benchmarks.peers.pipeline import JetStreamDialect, PipelineParameters, ZooKeeperDialect, run_pipeline
from trimaran.benchmarks.peers.session_dialect import SessionDialect
from trimaran.client.protocol.ingress_publisher import IngressPublisher
from trimaran.cluster.runtime.links.ingress_messages import HANDLERS
from trimaran.service_api import ClusterError
from trimaran.service_api.errors import first_leaf
from trimaran.service_api.types import EGRESS_STREAM_ID, ClusterSessionId, CorrelationId, MemberId, TermId
from trimaran.service_api.wire.frame import encode_frame, iter_headers, iter_whole_messages
from trimaran.service_api.wire.message import decode_message, registry_of
from trimaran.service_api.wire.session import (
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
    return [decode_message(message, registry=registry_of(*HANDLERS)) for _, message in iter_whole_messages(frames)]


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


def test_zookeeper_answers_are_counted_whole_and_refusals_are_errors() -> None:
    """The layout as a real server sent it: length, xid, zxid, error, 68 bytes of what it knows of the znode."""
    dialect = ZooKeeperDialect(32)
    answer = struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68)
    data = bytearray(answer * 3 + answer[:50])

    assert dialect.take_answers(data) == 3
    assert data == answer[:50]
    assert len(dialect.requests(0, 5)) == 5 * len(dialect.requests(5, 1))
    assert struct.unpack_from(">iii", dialect.requests(7, 1)) == (len(dialect.requests(7, 1)) - 4, 8, 5)
    ping = struct.pack(">iiqi", 16, -2, 3, 0)
    data = bytearray(ping + answer + ping + answer + answer[:40])
    assert dialect.take_answers(data) == 2
    assert data == answer[:40]
    assert dialect.keep_alive() == struct.pack(">iii", 8, -2, 11)
    with pytest.raises(ClusterError, match="error=-101"):
        dialect.take_answers(bytearray(struct.pack(">iiqi", 16, 1, 3, -101)))


def test_jetstream_acknowledgements_are_counted_whole_and_refusals_are_errors() -> None:
    dialect = JetStreamDialect(32)
    body = b'{"stream":"TRIMARAN", "seq":1}'
    answer = b"MSG _INBOX.trimaran 1  %d\r\n%b\r\n" % (len(body), body)
    data = bytearray(answer + b"PING\r\n" + answer + answer[:30])

    assert dialect.take_answers(data) == 2
    assert data == answer[:30]
    refusal = b'{"error":{"code":503}}'
    with pytest.raises(ClusterError, match="503"):
        dialect.take_answers(bytearray(b"MSG _INBOX.trimaran 1 %d\r\n%b\r\n" % (len(refusal), refusal)))
    with pytest.raises(ClusterError, match="Permissions"):
        dialect.take_answers(bytearray(b"-ERR 'Permissions Violation'\r\n"))


def test_etcd_requests_are_protocol_buffers() -> None:
    """Key is field 1 of a put and value field 2; a transaction holds each put in field 2 of a field 2."""
    body, per_request = Etcd()._request(32, 1024)
    several, in_one = EtcdTransactions()._request(200, 1024)

    assert (body, per_request) == (b"\x0a\x12trimaran-benchmark\x12\x20" + b"x" * 32, 1)
    assert in_one == 128
    put = b"\x0a\x14trimaran-benchmark-0\x12\xc8\x01" + b"x" * 200
    assert several.startswith(b"\x12\xe4\x01\x12\xe1\x01" + put)


async def test_a_pipeline_keeps_so_many_in_flight_and_counts_every_answer() -> None:
    """Against a server that answers as ZooKeeper does."""
    waiting: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(struct.pack(">i", 0))
        request = len(ZooKeeperDialect(32).requests(0, 1))
        buffered = b""
        while data := await reader.read(1 << 16):
            buffered += data
            count, rest = divmod(len(buffered), request)
            waiting.append(count)
            buffered = buffered[len(buffered) - rest :]
            writer.write((struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68)) * count)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parameters = PipelineParameters(
        dialect="zookeeper", host="127.0.0.1", port=port, inflight=8, messages=100, payload=32
    )
    measured = await asyncio.to_thread(run_pipeline, parameters)
    server.close()

    assert sum(waiting) == 100
    assert max(waiting) <= 8
    assert measured.messages_per_s > 0
    assert measured.p50_us is not None
    assert measured.p99_us is not None
    assert measured.p50_us <= measured.p99_us


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


async def test_a_connection_that_the_peer_closes_ends_the_load(tmp_path: Path) -> None:
    async with zookeeper(answers_before_end=3) as (port, _):
        with pytest.raises(BaseExceptionGroup) as raised:
            await asyncio.to_thread(run_connections, "zookeeper", port, load(5.0), servers=[], directory=tmp_path)

    said = str(first_leaf(raised.value))
    assert "zookeeper-connections-" in said
    assert "answered=" in said.splitlines()[0]
