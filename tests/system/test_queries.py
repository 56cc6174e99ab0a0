"""Queries of real processes: a leader that stood still while another one led never tells what was before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.system.append_list import ANSWER, Answer
from tests.system.cluster_process import SystemCluster
from tests.waiting import patient, within
from trimaran.client import QueryRefusedError, QueryResult, SyncClusterClient
from trimaran.service_api.types import INGRESS_STREAM_ID, ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message, decode_message, registry_of
from trimaran.service_api.wire.queries import QueryCode, QueryRequest, QueryResponse
from trimaran.service_api.wire.session import NewLeaderEvent, SessionConnectRequest, SessionEvent, SessionLimits
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

pytestmark = pytest.mark.slow

_EGRESS = registry_of(SessionEvent, NewLeaderEvent, QueryResponse, SessionLimits)


class OneConnection:
    """A session on one member, by hand: it follows nobody and hears of no other leader than this member tells."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser, self._assembler = FrameParser(65504), MessageAssembler()
        self._messages: list[Message] = []
        self._session_id = ClusterSessionId(-1)
        self._correlation_id = 0

    async def open(self) -> None:
        """Open a session."""
        self._writer.write(SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID).encode())
        self._send(
            SessionConnectRequest(
                correlation_id=CorrelationId(1), response_stream_id=102, version=256, response_channel=""
            )
        )
        event = await self._receive(SessionEvent)
        assert isinstance(event, SessionEvent)
        self._session_id = event.cluster_session_id

    def send_query(self) -> None:
        """Ask the member, as leader, where its list ends."""
        self._correlation_id += 1
        self._send(
            QueryRequest(
                correlation_id=CorrelationId(self._correlation_id),
                cluster_session_id=self._session_id,
                leadership_term_id=TermId(0),
                service_id=0,
                max_staleness_ns=None,
                min_log_position=0,
                timeout_ns=10_000_000_000,
            )
        )

    async def response(self) -> QueryResponse:
        """Wait for what it says."""
        response = await self._receive(QueryResponse)
        assert isinstance(response, QueryResponse)
        return response

    def _send(self, message: Message) -> None:
        self._writer.write(encode_frame(message.encode(), stream_id=INGRESS_STREAM_ID))

    async def _receive(self, kind: type[Message]) -> Message:
        async with within(60):
            while True:
                while self._messages:
                    message = self._messages.pop(0)
                    if isinstance(message, kind):
                        return message
                data = await self._reader.read(1 << 16)
                assert data, "the member closed the connection"
                for frame in self._parser.feed(data):
                    encoded = self._assembler.append(frame)
                    if encoded is not None:
                        self._messages.append(decode_message(encoded, registry=_EGRESS))


@asynccontextmanager
async def one_connection(endpoint: str) -> AsyncIterator[OneConnection]:
    """Open a session on one member."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        made = OneConnection(reader, writer)
        await made.open()
        yield made
    finally:
        writer.close()


def place(result: QueryResult | QueryResponse) -> int:
    """How long the list was where the answer comes from."""
    return Answer(*ANSWER.unpack(result.payload)).place


async def test_a_leader_that_stood_still_never_answers_from_before(data_dir: Path) -> None:
    """SIGSTOP, another leader takes writes, SIGCONT: queries that waited in the socket, and those that come later."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        await requester.request(50)
        async with one_connection(cluster.endpoints[old.leader_member_id]) as connection:
            connection.send_query()
            before = await connection.response()

            cluster.members[old.leader_member_id].pause()
            new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
            await requester.request(50)
            for _ in range(20):
                connection.send_query()
            cluster.members[old.leader_member_id].resume()
            answers = [await connection.response() for _ in range(20)]
            for _ in range(20):
                connection.send_query()
                answers.append(await connection.response())

        fresh = await requester.client.query(b"", timeout_s=patient(60))
        followed = await requester.client.query(
            b"", max_staleness_s=0, read_from=old.leader_member_id, timeout_s=patient(60)
        )

        assert (before.code, place(before)) == (QueryCode.OK, 50)
        assert [place(answer) for answer in answers if answer.code is QueryCode.OK and place(answer) < 100] == []
        assert QueryCode.SERVICE_FAILED not in {answer.code for answer in answers}
        assert (fresh.member_id, place(fresh)) == (new.leader_member_id, 100)
        assert (followed.member_id, place(followed)) == (old.leader_member_id, 100)
    cluster.check_answers(requester)


async def test_every_member_answers_and_a_query_is_in_no_log(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(30)
        client = requester.client
        first = await client.query(b"", timeout_s=patient(60))
        results = [
            await client.query(
                b"", max_staleness_s=1, min_log_position=first.log_position, read_from=member_id, timeout_s=patient(60)
            )
            for member_id in cluster.members
            for _ in range(20)
        ]
        with pytest.raises(QueryRefusedError, match=r"query.*length=1"):
            await client.query(b"x", timeout_s=patient(60))

        def ask() -> QueryResult:
            with SyncClusterClient.connect(cluster.endpoints) as sync_client:
                return sync_client.query(b"", timeout_s=patient(60))

        from_a_script = await asyncio.to_thread(ask)

        assert {place(result) for result in (first, *results, from_a_script)} == {30}
        assert {result.log_position for result in results} == {first.log_position}
        assert {result.member_id for result in results} == set(cluster.members)
        assert all(0 <= result.staleness_s <= 1 for result in results)
    cluster.check_answers(requester)
