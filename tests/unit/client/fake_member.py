"""A member as a client sees it, without a cluster behind it: real sockets on 127.0.0.1, ephemeral ports.

Several of them, told of each other, play a cluster: one is the leader, the others redirect. A test says who
leads, which answers come, and waits for what was received with `until`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from tests.waiting import within
from trimaran.service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.frame import TYPE_DATA, TYPE_SETUP, encode_message
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message, decode_message
from trimaran.service_api.wire.request import (
    REQUEST_BLOCK_LENGTH,
    REQUEST_HEADER,
    REQUEST_HEADER_LENGTH,
    REQUEST_MESSAGE,
    RequestCode,
)
from trimaran.service_api.wire.session import (
    SESSION_MESSAGE_HEADER,
    EventCode,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionMessageHeader,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

DEADLINE_S = 30.0
"""No condition of a test takes this long unless something is broken."""

MTU = 65504


def session_message(payload: bytes, *, term: int, session_id: int, timestamp: int = 0) -> bytes:
    """Build an application message as it leaves the leader."""
    header = SESSION_MESSAGE_HEADER.pack(24, 1, 111, 16, term, session_id, timestamp)
    return header + payload


def egress_frames(message: bytes, *, mtu_length: int = MTU) -> bytes:
    """Build the frames of a message from the member."""
    return encode_message(message, stream_id=EGRESS_STREAM_ID, mtu_length=mtu_length)


def session_event(
    code: EventCode,
    *,
    correlation_id: int = 0,
    session_id: int = 7,
    term: int = 0,
    leader: int = 0,
    detail: str = "",
    heartbeat_timeout_ns: int | None = 2_000_000_000,
) -> SessionEvent:
    """Build a session event with the values that a test does not care about filled in."""
    return SessionEvent(
        cluster_session_id=ClusterSessionId(session_id),
        correlation_id=CorrelationId(correlation_id),
        leadership_term_id=TermId(term),
        leader_member_id=MemberId(leader),
        code=code,
        version=0,
        leader_heartbeat_timeout_ns=heartbeat_timeout_ns,
        detail=detail,
    )


def new_leader_event(*, term: int, leader: int, endpoints: str, session_id: int = 7) -> NewLeaderEvent:
    """Build a new leader event."""
    return NewLeaderEvent(
        leadership_term_id=TermId(term),
        cluster_session_id=ClusterSessionId(session_id),
        leader_member_id=MemberId(leader),
        ingress_endpoints=endpoints,
    )


@dataclass
class FakeCluster:
    """What the fake members agree on."""

    leader: int = 0
    """-1 while there is no leader."""
    term: int = 0
    heartbeat_timeout_ns: int = 2_000_000_000
    next_session_id: int = 7
    members: list[FakeMember] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def endpoints(self) -> list[str]:
        return [member.endpoint for member in self.members]

    @property
    def endpoints_text(self) -> str:
        return ",".join(f"{member.member_id}={member.endpoint}" for member in self.members)

    @property
    def leader_member(self) -> FakeMember:
        return self.members[self.leader]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition about the members holds; a broken test fails at the deadline."""
        async with within(DEADLINE_S), self.changed:
            await self.changed.wait_for(condition)

    async def elect(self, leader: int) -> None:
        """Make a member leader of the next term; it tells the sessions that are bound to it."""
        self.leader = leader
        self.term += 1
        member = self.members[leader]
        for connection in list(member.connections):
            if connection.session_id is not None:
                connection.tell_new_leader()
        await self.notify()

    async def notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()


class FakeMember:
    """Listens, answers as the session protocol says, and remembers what came."""

    def __init__(self, cluster: FakeCluster, member_id: int) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.port = 0
        self.connections: list[FakeConnection] = []
        self.accepted_count = 0
        self.is_echoing = True
        self.is_answering = True
        self.is_reading = True
        self.connect_answer: SessionEvent | None = None
        """Instead of what would be right."""
        self.payloads: list[bytes] = []
        self.messages: list[Message] = []
        self._server: asyncio.Server | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def keep_alives(self) -> list[SessionKeepAlive]:
        return [message for message in self.messages if isinstance(message, SessionKeepAlive)]

    async def start(self) -> Self:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Die: the port closes, and so does every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.abort()
        await self.cluster.until(lambda: not self.connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = FakeConnection(self, writer)
        self.connections.append(connection)
        self.accepted_count += 1
        try:
            await connection.run(reader)
        except ConnectionError:
            pass
        finally:
            self.connections.remove(connection)
            connection.abort()
            await self.cluster.notify()


class FakeConnection:
    """One client's connection to one member."""

    def __init__(self, member: FakeMember, writer: asyncio.StreamWriter) -> None:
        self.member = member
        self.cluster = member.cluster
        self.setup: SetupFrame | None = None
        self.session_id: int | None = None
        self._writer = writer
        self._assembler = MessageAssembler()

    def send(self, message: Message | bytes) -> None:
        """Send a message of the session protocol."""
        encoded = message if isinstance(message, bytes) else message.encode()
        self.send_raw(egress_frames(encoded))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    @property
    def unsent_bytes(self) -> int:
        """What the client does not take."""
        return self._writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()

    def tell_new_leader(self) -> None:
        """Tell the session who leads."""
        assert self.session_id is not None
        self.send(
            new_leader_event(
                term=self.cluster.term,
                leader=self.cluster.leader,
                endpoints=self.cluster.endpoints_text,
                session_id=self.session_id,
            )
        )

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Receive until the client goes."""
        parser = FrameParser(MTU)
        while True:
            await self.cluster.until(lambda: self.member.is_reading)
            data = await reader.read(1 << 16)
            if not data:
                return
            for frame in parser.feed(data):
                if self.setup is None:
                    assert frame.type == TYPE_SETUP
                    self.setup = SetupFrame.decode(frame.raw + bytes(-len(frame.raw) & 31))
                    continue
                assert (frame.type, frame.stream_id) == (TYPE_DATA, INGRESS_STREAM_ID)
                message = self._assembler.append(frame)
                if message is not None:
                    self._receive(message)
            await self.cluster.notify()

    def _receive(self, encoded: bytes) -> None:
        message = decode_message(encoded)
        self.member.messages.append(message)
        is_request = int.from_bytes(encoded[:2], "little") == REQUEST_BLOCK_LENGTH
        if is_request and isinstance(message, SessionMessageHeader):
            self._on_request(encoded)
            return
        if not self.member.is_answering:
            return
        match message:
            case SessionConnectRequest():
                self._on_connect(message)
            case SessionKeepAlive():
                is_new = self.session_id is None
                self.session_id = message.cluster_session_id
                is_leader = self.cluster.leader == self.member.member_id
                if is_leader and (is_new or message.leadership_term_id < self.cluster.term):
                    self.tell_new_leader()
            case SessionCloseRequest():
                self.send(
                    session_event(EventCode.CLOSED, session_id=message.cluster_session_id, term=self.cluster.term)
                )
            case SessionMessageHeader():
                self.member.payloads.append(encoded[32:])
                if self.member.is_echoing:
                    self.echo(encoded[32:])

    def _on_request(self, encoded: bytes) -> None:
        """Answer with what was asked; a service without state needs no kept replies."""
        self.member.payloads.append(encoded[REQUEST_HEADER_LENGTH:])
        if self.member.is_answering:
            *_, sequence, _ = REQUEST_HEADER.unpack_from(encoded)
            ids = self.cluster.term, self.session_id or 0
            header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, *ids, 0, sequence, RequestCode.REPLY)
            self.send(header + encoded[REQUEST_HEADER_LENGTH:])

    def echo(self, payload: bytes) -> None:
        """Answer with a message of the service."""
        assert self.session_id is not None
        self.send(
            session_message(
                payload,
                term=self.cluster.term,
                session_id=self.session_id,
                timestamp=len(self.member.payloads),
            )
        )

    def _on_connect(self, request: SessionConnectRequest) -> None:
        cluster, member = self.cluster, self.member
        if member.connect_answer is not None:
            answer = member.connect_answer.model_copy(update={"correlation_id": request.correlation_id})
            self.send(answer)
            return
        is_leader = cluster.leader == member.member_id
        if is_leader:
            self.session_id = cluster.next_session_id
            cluster.next_session_id += 1
        self.send(
            session_event(
                EventCode.OK if is_leader else EventCode.REDIRECT,
                correlation_id=request.correlation_id,
                session_id=self.session_id if self.session_id is not None else -1,
                term=cluster.term,
                leader=cluster.leader,
                detail=cluster.endpoints_text,
                heartbeat_timeout_ns=cluster.heartbeat_timeout_ns,
            )
        )


@asynccontextmanager
async def fake_cluster(member_count: int = 3, *, leader: int = 0) -> AsyncIterator[FakeCluster]:
    """Run a few members; all are gone at the end."""
    cluster = FakeCluster(leader=leader)
    for member_id in range(member_count):
        cluster.members.append(await FakeMember(cluster, member_id).start())
    try:
        yield cluster
    finally:
        for member in cluster.members:
            await member.stop()
