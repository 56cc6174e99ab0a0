"""One connection to an archive, on the archive's side: its requests in order, and its one stream.

Requests are answered in the order in which they came; a refusal is an answer. What breaks the protocol is said, and
ends the connection. A client that is silent for the idle timeout, replay or not, counts as dead: clients keep alive.
Each request, a keep-alive, too, asks the authenticator whether the client may still be here.
Bounds: one control frame of 64 KiB; of a publication what one window allows; of answers see `control_session`.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import describe_other_cluster, is_other_cluster
from ....service_api.documents.document import printable_line
from ....service_api.errors import RemoteProtocolError
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import NULL_VALUE
from ....service_api.wire.client_end import WRONG_PORT_ID, encode_client_end, find_wrong_port
from ....service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, TYPE_STATUS
from ....service_api.wire.link_frames import SetupFrame, StatusFrame
from ....service_api.wire.message import Message, decode_message, registry_of
from ....service_api.wire.stream import StreamFrame
from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ..control import (
    CONTROL_STREAM_ID,
    EVENTS_STREAM_ID,
    PROTOCOL_VERSION,
    RESPONSE_STREAM_ID,
    control_frames,
    is_control_frame_next,
    major_version,
)
from .admission import Admission
from .control_session import READ_LENGTH_BYTES, SEND_TIMEOUT_S, ControlSession
from .requests import REQUESTS, RequestRow
from .served_archive import ServedArchive

_MESSAGES: Final = registry_of(*messages.CONTROL_REQUESTS.values())
_log = structlog.get_logger(__name__)


async def serve_connection(
    server: ServedArchive, accepted: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve requests until the peer closes, falls silent or breaks the protocol.

    The connection is admitted once it has a control session.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            session = ControlSession(writer, tasks, accepted)
            try:
                await ControlAdapter(server, session, reader).run()
            except RemoteProtocolError as error:
                now_ns = int(asyncio.get_running_loop().time() * 1e9)
                count = server.violations.count((accepted.address, str(error)), now_ns)
                if count is not None:
                    _log.warning(
                        "archive_session.protocol_violated", session=repr(session), reason=str(error), count=count
                    )
                session.refuse(ArchiveError(str(error)), NULL_VALUE)
                await session.drain()
            finally:
                session.is_closed = True
                if session.stream is not None:
                    await session.stream.aclose()
    except* (ConnectionError, TimeoutError) as group:
        _log.debug("archive_session.connection_lost", session=repr(session), reason=str(group.exceptions[0]))
    await _close(writer)


class ControlAdapter:
    """Decodes what one peer sends: lets it in, and has its requests served one after the other."""

    def __init__(self, server: ServedArchive, session: ControlSession, reader: asyncio.StreamReader) -> None:
        self._server = server
        self._session = session
        self._reader = reader
        self._buffer = bytearray()
        self._control_frames = control_frames(self._buffer)
        self._admission: Admission | None = None

    def __repr__(self) -> str:
        return f"<ControlAdapter {self._session!r} buffered={len(self._buffer)}>"

    async def run(self) -> None:
        """Serve requests until the peer closes or falls silent.

        Raises:
            RemoteProtocolError: the peer broke the protocol.
            TimeoutError: the peer fell silent.
        """
        session, is_set_up = self._session, False
        while not session.is_closed:
            async with asyncio.timeout(self._server.idle_timeout_s):
                data = await self._reader.read(READ_LENGTH_BYTES)
            if not data:
                return
            self._buffer += data
            while not session.is_closed:
                if session.stream is not None and session.stream.take(self._buffer):
                    continue
                frame = self._take_frame()
                if frame is None:
                    break
                if not is_set_up:
                    is_set_up = True
                    self._check_setup(frame)
                else:
                    await self._on_frame(frame)
            if session.stream is None:
                await session.drain()
            else:
                await session.stream.wait_for_room()

    def _check_setup(self, frame: StreamFrame) -> None:
        """Refuse a connection that was not meant for an archive, or for another cluster's; tell a client of a cluster.

        Raises:
            RemoteProtocolError: it is refused.
        """
        server, setup = self._server, SetupFrame.decode(frame.raw)
        wrong_port = find_wrong_port(setup, server.port_name, server.find_ingress())
        if wrong_port is not None:
            self._session.write(encode_client_end(wrong_port, correlation_id=WRONG_PORT_ID))
            self._session.is_closed = True
            self._session.accepted.log_ended("archive_session.refused", wrong_port)
            return
        if setup.stream_id != CONTROL_STREAM_ID:
            raise RemoteProtocolError(f"setup: stream_id={setup.stream_id} expected={CONTROL_STREAM_ID}")
        if is_other_cluster(setup.cluster_id, server.cluster_id(), whole=server.whole_cluster_id):
            raise RemoteProtocolError(describe_other_cluster(server.cluster_id(), expected=setup.cluster_id))

    def _take_frame(self) -> StreamFrame | None:
        """Take a control frame; what is of the stream is left to that."""
        buffer = self._buffer
        if self._session.stream is not None and (len(buffer) < HEADER_LENGTH or not is_control_frame_next(buffer)):
            return None
        return self._control_frames.take()

    async def _on_frame(self, frame: StreamFrame) -> None:
        session = self._session
        if frame.type == TYPE_STATUS and session.is_connected:
            self._on_status(StatusFrame.decode(frame.raw))
            return
        if frame.type != TYPE_DATA or frame.stream_id != CONTROL_STREAM_ID:
            raise RemoteProtocolError(
                f"unexpected frame: type={frame.type} stream_id={frame.stream_id} expected={CONTROL_STREAM_ID}"
            )
        request = decode_message(frame.payload, registry=_MESSAGES)
        if isinstance(request, messages.AuthConnectRequest):
            await self._on_connect(request)
            return
        control_session_id = getattr(request, "control_session_id", NULL_VALUE)
        if self._admission is not None and isinstance(request, messages.ArchiveChallengeResponse):
            self._admission.answer(request.encoded_credentials)
            await self._decide(self._admission)
            return
        if not session.is_connected or control_session_id != session.control_session_id:
            raise RemoteProtocolError(
                f"unknown control session: control_session_id={control_session_id} "
                f"expected={session.control_session_id if session.is_connected else None}"
            )
        await self._on_request(request, getattr(request, "correlation_id", NULL_VALUE))

    async def _on_request(self, request: Message, correlation_id: int) -> None:
        session = self._session
        if isinstance(request, messages.CloseSessionRequest):
            session.is_closed = True
            return
        if not self._server.still_admits(session):
            rejected = ArchiveError("credentials do not count any more", code=ArchiveErrorCode.AUTHENTICATION_REJECTED)
            session.refuse(rejected, correlation_id)
            session.is_closed = True
            return
        if isinstance(request, messages.KeepAliveRequest):
            if session.stream is not None:
                session.stream.on_keep_alive()
            session.respond(correlation_id, NULL_VALUE)
            return
        try:
            row = REQUESTS.get(type(request))
            if row is None:
                raise ArchiveError(f"unsupported request: {type(request).__name__}")
            permission = Permission.ARCHIVE_READING if row.is_reading else Permission.ARCHIVE_WRITING
            self._server.expect_allowed(session, type(request), permission, getattr(request, "recording_id", None))
            if row.is_reading:
                await row.handle(self._server, session, request)
            else:
                await self._change(row, request)
        except ArchiveError as error:
            session.refuse(error, correlation_id)

    async def _change(self, row: RequestRow, request: Message) -> None:
        """Serve a request that changes something; the audit trail has its begin, and how it was answered."""
        server, accepted = self._server, self._session.accepted
        facts = {**self._session.describe_asked(type(request)), **_describe_parameters(request)}
        server.audit.begun(Permission.ARCHIVE_WRITING, accepted, **facts)
        outcome, detail = "unknown", "the connection was lost"
        try:
            await row.handle(server, self._session, request)
            outcome, detail = "done", ""
        except ArchiveError as error:
            outcome, detail = "failed", printable_line(str(error))
            raise
        finally:
            server.audit.ended(Permission.ARCHIVE_WRITING, accepted, outcome, **facts, detail=detail)

    def _on_status(self, status: StatusFrame) -> None:
        session = self._session
        if session.stream is not None:
            session.stream.on_status(status)
            return
        try:
            # What is published is what a replay of it gives.
            self._server.expect_allowed(session, messages.ReplayRequest, Permission.ARCHIVE_READING)
            session.stream = self._server.find_live(status).join(session)
        except ArchiveError as error:
            session.refuse(error, NULL_VALUE)

    async def _on_connect(self, request: messages.AuthConnectRequest) -> None:
        session = self._session
        if session.is_connected or self._admission is not None:
            raise RemoteProtocolError(
                f"connected already: control_session_id={session.control_session_id if session.is_connected else None}"
            )
        if major_version(request.version) != major_version(PROTOCOL_VERSION):
            raise RemoteProtocolError(
                f"protocol version: major={major_version(request.version)} expected={major_version(PROTOCOL_VERSION)}"
            )
        if request.response_stream_id not in (RESPONSE_STREAM_ID, EVENTS_STREAM_ID):
            raise RemoteProtocolError(f"response_stream_id={request.response_stream_id} expected={RESPONSE_STREAM_ID}")
        self._admission = Admission(
            self._server.authenticator, request, next(self._server.ids), session.accepted.address
        )
        await self._decide(self._admission)

    async def _decide(self, admission: Admission) -> None:
        """Ask until there is a decision: to let the peer in, to turn it away, or to ask it for more."""
        session = self._session
        async with asyncio.timeout(self._server.idle_timeout_s):
            await admission.decide()
        if admission.challenge_bytes is not None:
            session.send(
                messages.ArchiveChallenge(
                    control_session_id=admission.session_id,
                    correlation_id=admission.correlation_id,
                    version=PROTOCOL_VERSION,
                    encoded_challenge=admission.challenge_bytes,
                )
            )
            return
        self._admission = None
        if admission.principal is None:
            rejected = ArchiveError("credentials rejected", code=ArchiveErrorCode.AUTHENTICATION_REJECTED)
            session.refuse(rejected, admission.correlation_id)
            session.is_closed = True
            return
        session.principal, session.proof_id = admission.principal, admission.proof_id
        if admission.wants_events and not self._may_have_events(admission):
            session.is_closed = True
            return
        session.control_session_id = admission.session_id
        session.accepted.admit()
        session.respond(admission.correlation_id, admission.session_id)
        if admission.wants_events:
            session.stream = self._server.events.join(session)

    def _may_have_events(self, admission: Admission) -> bool:
        """Whether the peer may know of recordings, as a list of them tells; it is told if not."""
        try:
            self._server.expect_allowed(self._session, messages.ListRecordingsRequest, Permission.ARCHIVE_READING)
        except ArchiveError as error:
            self._session.refuse(error, admission.correlation_id)
            return False
        return True


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection once the peer has what was written, or does not want it."""
    writer.close()
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await writer.wait_closed()
    except (ConnectionError, TimeoutError):
        pass


def _describe_parameters(request: Message) -> dict[str, object]:
    """Return the numbers and names of a request: no bytes, which may be credentials, and no ids of its own."""
    fields = request.model_dump(exclude={"control_session_id", "correlation_id"}).items()
    named = {name: printable_line(value) for name, value in fields if isinstance(value, str)}
    return {**named, **{name: int(value) for name, value in fields if isinstance(value, int)}}
