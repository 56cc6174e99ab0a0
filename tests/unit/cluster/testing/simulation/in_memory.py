"""What a service sees of a member and of a client, in plain fields that a test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NoReturn
from uuid import UUID

from trimaran.cluster.service.service_logger import OnceLogger
from trimaran.service_api import (
    ClientSession,
    ClusterSessionId,
    LocalProtocolError,
    MemberId,
    Role,
    TimeUnit,
)
from trimaran.service_api.groups.group import ONLY_GROUP, Group

_ONLY_MEMBER = MemberId(0)


@dataclass(slots=True)
class InMemorySession:
    """A client session whose replies pile up in a list."""

    id: ClusterSessionId
    encoded_principal: bytes = b""
    is_closing: bool = False
    replies: list[bytes] = field(default_factory=list)

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Keep the reply; False once the session is closing."""
        if not self.is_closing:
            self.replies.append(bytes(payload))
        return not self.is_closing

    def close(self) -> None:
        """Take no more replies."""
        self.is_closing = True


@dataclass(slots=True)
class InMemoryCluster:
    """The only member of a cluster that is not there: its leader, always."""

    sessions: dict[ClusterSessionId, ClientSession] = field(default_factory=dict)
    member_id: MemberId = _ONLY_MEMBER
    service_id: int = 0
    role: Role = Role.LEADER
    is_replaying: bool = False
    time: int = 0
    time_unit: TimeUnit = TimeUnit.MILLIS
    log_position: int = 0
    group: Group = ONLY_GROUP
    feature_level: int = 0

    @property
    def payload_limit_bytes(self) -> int:
        """The longest payload."""
        return 1 << 20

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open sessions by id."""
        return self.sessions

    @property
    def logger(self) -> OnceLogger:
        """A logger that writes every line."""
        return OnceLogger(self, 0)

    @property
    def random(self) -> Random:
        """Refuse: the entries of a log seed what is drawn."""
        self._refuse_random()

    def uuid(self) -> UUID:
        """Refuse, as `random` does."""
        self._refuse_random()

    def _refuse_random(self) -> NoReturn:
        raise LocalProtocolError("no random numbers in a single-process run: the position of a log entry seeds them")

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Refuse: there is no clock here."""
        raise LocalProtocolError(f"no timers in a single-process run: correlation_id={correlation_id}")

    def cancel_timer(self, correlation_id: int) -> bool:
        """There is never one to cancel."""
        return False

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        """Close a session: it takes no more replies."""
        session = self.sessions.get(session_id)
        if session is None:
            return False
        session.close()
        return True

    def check_room(self, lengths: Sequence[int]) -> None:
        """Refuse, as `offer` does."""
        raise LocalProtocolError(f"no messages of services in a single-process run: messages={len(lengths)}")

    def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Refuse: where a message of a service comes in the order of the others, only a log can say."""
        raise LocalProtocolError(f"no messages of services in a single-process run: length={len(payload)}")
