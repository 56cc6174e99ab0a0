"""The state that all connections of one archive server share: archive, limits, ids, running work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ....service_api.access.audit import AuditTrail
from ....service_api.access.line_limiter import LineLimiter
from ....service_api.access.permissions import Permission, describe_refusal
from ....service_api.authenticator import Authenticator
from ....service_api.authorisation import AuthorisationService
from ....service_api.net.transport import NetworkStack
from ....service_api.wire.link_frames import StatusFrame
from ....service_api.wire.message import Message
from ...errors import ArchiveError, ArchiveErrorCode
from ...store.conductor import Archive
from ...store.replay import ReplayLimit
from .control_session import ControlSession
from .recording_events import RecordingEvents
from .recording_session import RecordingSession
from .replication_session import ReplicationSession
from .served_replay import ServedReplay


@dataclass(slots=True, kw_only=True)
class ServerState:
    """What handlers of requests need besides the session that sent the request."""

    archive: Archive
    authenticator: Authenticator
    authorisation: AuthorisationService
    archive_id: int
    replay_limit: int
    recording_limit: int
    replication_limit: int
    replay_rate_limit_bytes_per_s: int | None
    idle_timeout_s: float
    preallocate: bool
    network: NetworkStack
    audit: AuditTrail
    cluster_id: Callable[[], int]
    """The cluster that the archive is of; 0 while that is not known."""
    whole_cluster_id: int
    """The cluster of which that is a group; 0: of none."""
    counters: Mapping[int, ReplayLimit] = field(default_factory=dict)
    """Positions that replays may be bounded by besides those of recordings, by counter id."""
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Ids of control sessions, replays, publications and replications: never the same twice in one server."""
    violations: LineLimiter[tuple[str, str]] = field(default_factory=LineLimiter)
    """Lines about connections that broke the protocol, by their address and what they did."""
    events: RecordingEvents = field(default_factory=RecordingEvents)
    recordings: dict[int, RecordingSession] = field(default_factory=dict)
    """What is being published here, by recording id."""
    replays: dict[int, ServedReplay] = field(default_factory=dict)
    """By replay session id."""
    replications: dict[int, ReplicationSession] = field(default_factory=dict)
    """What this archive is copying from others, by replication id."""

    def expect_allowed(
        self, session: ControlSession, request: type[Message], permission: Permission, recording_id: int | None = None
    ) -> None:
        """Refuse what `refusal_of` has a reason to; the audit trail tells it.

        Raises:
            ArchiveError: UNAUTHORISED_ACTION.
        """
        reason = self.refusal_of(session, request, permission)
        if reason is not None:
            facts = session.describe_asked(request)
            self.audit.refused(permission, session.accepted, reason, recording_id=recording_id, **facts)
            raise ArchiveError(reason, code=ArchiveErrorCode.UNAUTHORISED_ACTION, recording_id=recording_id)

    def refusal_of(self, session: ControlSession, request: type[Message], permission: Permission) -> str | None:
        """Return why the table of permissions, or the authorisation, does not let a session have something.

        `request` is what is asked for, or what comes nearest to what is had without a request. An archive that knows no
        cluster cannot tell roles: there the authenticator decides who comes in, and the authorisation what they may do.
        """
        if self.network.cluster_id and not session.accepted.may(permission):
            return describe_refusal(permission, session.accepted.caller)
        if not self.authorisation.is_authorised(request.SCHEMA_ID, request.TEMPLATE_ID, None, session.principal):
            return f"not allowed on this archive: request={request.__name__}"
        return None

    def find_live(self, status: StatusFrame) -> RecordingSession:
        """Find the publication that a status frame names.

        Raises:
            ArchiveError: UNKNOWN_SUBSCRIPTION, nobody publishes it here just now.
        """
        for recording in self.recordings.values():
            descriptor = recording.descriptor
            if (descriptor.session_id, descriptor.stream_id) == (status.session_id, status.stream_id):
                return recording
        raise ArchiveError(
            f"no such live stream: session_id={status.session_id} stream_id={status.stream_id}",
            code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
        )
