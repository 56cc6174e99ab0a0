"""One session of ours as a dialect: the bytes of a client, made by the project's own codecs, without its client.

A connection begins with a setup frame and a connect request. Once the leader has said which session it is, each message
is the same bytes. An application has `ClusterClient` instead, which also finds the leader, checks the order of replies,
bounds what is in flight and survives the leader's death: what that costs is the difference between the two loads.
"""

from __future__ import annotations

from typing import Final

from ...client.protocol.egress_adapter import ClientSessionState
from ...client.protocol.ingress_publisher import IngressPublisher
from ...client.protocol.protocol import PROTOCOL_VERSION
from ...client.protocol.session_identity import close_request_of
from ...service_api.errors import ClusterError
from ...service_api.types import EGRESS_STREAM_ID, ClusterSessionId, CorrelationId, TermId
from ...service_api.wire.frame import align, iter_whole_messages
from ...service_api.wire.message import decode_message, registry_of
from ...service_api.wire.session import (
    SESSION_HEADER_LENGTH,
    EventCode,
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionLimits,
    SessionMessageHeader,
)
from ...service_api.wire.session_frame import PAYLOAD_OFFSET
from ...service_api.wire.session_token import token_channel

_MTU_LENGTH_BYTES: Final = 65_504
_FROM_LEADER: Final = registry_of(SessionMessageHeader, SessionEvent, NewLeaderEvent, SessionLimits)


class SessionDialect:
    """One session with the leader: messages of one payload, which the service echoes."""

    def __init__(self, payload: int, number: int) -> None:
        self._payload = b"x" * payload
        self._number = number
        self._publisher = IngressPublisher(_MTU_LENGTH_BYTES)
        self._session = ClientSessionState()
        self._is_closing = self._is_closed = False
        self._length = align(PAYLOAD_OFFSET + payload)
        self._head = (PAYLOAD_OFFSET + payload).to_bytes(4, "little")
        self._end = PAYLOAD_OFFSET + payload

    def greeting(self) -> bytes:
        """A setup frame, and a request for a session of its own."""
        request = SessionConnectRequest(
            correlation_id=CorrelationId(self._number),
            response_stream_id=EGRESS_STREAM_ID,
            version=PROTOCOL_VERSION,
            response_channel=token_channel(self._number.to_bytes(16, "little")),
            client_info="benchmark",
        )
        self._publisher.setup()
        self._publisher.publish(request.encode())
        return bytes(self._publisher.take())

    def is_greeted(self, data: bytearray) -> bool:
        """The session is open."""
        self.take_answers(data)
        return self._session.cluster_session_id >= 0

    def requests(self, first: int, count: int) -> bytes:
        """The same message again and again."""
        for _ in range(count):
            self._publisher.offer(self._payload)
        return bytes(self._publisher.take())

    def keep_alive(self) -> bytes:
        """The word that the session is alive."""
        session = self._session
        message = SessionKeepAlive(
            leadership_term_id=TermId(session.leadership_term_id),
            cluster_session_id=ClusterSessionId(session.cluster_session_id),
        )
        return self._frames(message.encode())

    def take_answers(self, data: bytearray) -> int:
        """Take whole frames; replies of the service are counted."""
        taken = count = 0
        for end, encoded in iter_whole_messages(bytes(data)):
            taken = end
            message = decode_message(encoded, registry=_FROM_LEADER)
            if isinstance(message, SessionMessageHeader):
                if encoded[SESSION_HEADER_LENGTH:] != self._payload:
                    raise ClusterError(f"trimaran echoed {encoded[SESSION_HEADER_LENGTH:]!r}")
                count += 1
            elif isinstance(message, SessionEvent):
                self._on_event(message)
            elif isinstance(message, NewLeaderEvent):
                raise ClusterError(f"the leader changed: leader_member_id={message.leader_member_id}")
        del data[:taken]
        return count

    def is_one_answer(self, data: bytes) -> bool:
        """A frame of an echo's length, with its payload."""
        return (
            len(data) == self._length and data[:4] == self._head and data[PAYLOAD_OFFSET : self._end] == self._payload
        )

    def farewell(self) -> bytes:
        """The wish that the session be closed."""
        session = self._session
        self._is_closing = True
        return self._frames(close_request_of(session.cluster_session_id, session.leadership_term_id))

    def is_over(self, data: bytearray) -> bool:
        """The leader has said that the session is closed."""
        self.take_answers(data)
        return self._is_closed

    def _on_event(self, event: SessionEvent) -> None:
        if event.code is EventCode.OK:
            self._session.cluster_session_id = event.cluster_session_id
            self._session.leadership_term_id = event.leadership_term_id
            self._publisher.bind(
                leadership_term_id=event.leadership_term_id, cluster_session_id=event.cluster_session_id
            )
        elif event.code is EventCode.CLOSED and self._is_closing:
            self._is_closed = True
        else:
            raise ClusterError(f"trimaran said: code={event.code} detail={event.detail!r}")

    def _frames(self, encoded: bytes) -> bytes:
        self._publisher.publish(encoded)
        return bytes(self._publisher.take())
