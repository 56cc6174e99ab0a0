"""The state that all connections of one archive server share: archive, limits, ids, running work."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field

import structlog

from ....service_api.access.audit import AuditTrail
from ....service_api.access.identity import Caller, CallerRole, Proof
from ....service_api.access.line_limiter import LineLimiter
from ....service_api.access.permissions import Permission, describe_refusal
from ....service_api.authenticator import AcceptAll, Authenticator
from ....service_api.authorisation import AuthorisationService
from ....service_api.documents.document import printable_line
from ....service_api.net.transport import SOCKETS, NetworkStack
from ....service_api.types import NULL_VALUE
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

_log = structlog.get_logger(__name__)


def _make_audit_trail() -> AuditTrail:
    return AuditTrail(
        info=_log.info,
        warn=_log.warning,
        monotonic_ns=lambda: int(asyncio.get_running_loop().time() * 1e9),
    )


@dataclass(slots=True)
class ServedArchive:
    """The archive that a server serves, to whom and within which limits, and what runs there.

    Handlers of requests need no more besides the session that sent the request.
    """

    archive: Archive
    _: KW_ONLY
    authorisation: AuthorisationService
    """Decides what a session may do, such as `ReadOnly`."""
    authenticator: Authenticator = field(default_factory=AcceptAll)
    """Decides who may have a session."""
    archive_id: int = NULL_VALUE
    replay_limit: int = 64
    recording_limit: int = 64
    replication_limit: int = 16
    replay_rate_limit_bytes_per_s: int | None = None
    """The most that each replay sends; None: as fast as it can."""
    idle_timeout_s: float = 10.0
    """How long a connection may take to say what it is."""
    preallocate: bool = False
    """True if the segments of recordings are written with zeros ahead."""
    network: NetworkStack = SOCKETS
    """The network stack that listens and dials."""
    audit: AuditTrail = field(default_factory=_make_audit_trail)
    """Has each change, and what was refused."""
    cluster_id: Callable[[], int] = lambda: 0
    """The cluster that the archive is of; 0 while that is not known. A session that means another one is refused."""
    whole_cluster_id: int = 0
    """The cluster of which that is a group, which a session may mean as well; 0: no group."""
    port_name: str = "the port of an archive"
    """The words for this port, for a client of a cluster that dials it."""
    find_ingress: Callable[[], str] = lambda: ""
    """The ingress of the member whose archive it is; empty where there is none."""
    counters: Mapping[int, ReplayLimit] = field(default_factory=dict)
    """Positions that replays may be bounded by besides those of recordings, by counter id."""

    ids: Iterator[int] = field(init=False, default_factory=lambda: itertools.count(1))
    """Ids of control sessions, replays, publications and replications: never the same twice in one server."""
    violations: LineLimiter[tuple[str, str]] = field(init=False, default_factory=LineLimiter)
    """Lines about connections that broke the protocol, by their address and what they did."""
    events: RecordingEvents = field(init=False, default_factory=RecordingEvents)
    recordings: dict[int, RecordingSession] = field(init=False, default_factory=dict)
    """What is being published here, by recording id."""
    replays: dict[int, ServedReplay] = field(init=False, default_factory=dict)
    """By replay session id."""
    replications: dict[int, ReplicationSession] = field(init=False, default_factory=dict)
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

    def still_admits(self, session: ControlSession) -> bool:
        """Return whether the authenticator would let a session in now; the audit trail tells of one that it would not.

        One that raises, or has no `still_admits`, changes nothing.
        """
        ask = getattr(self.authenticator, "still_admits", None)
        try:
            is_admitted = ask is None or bool(ask(session.principal, session.proof_id))
        except Exception:
            _log.exception("authenticator.failed", callback="still_admits", session_id=session.control_session_id)
            return True
        if not is_admitted:
            principal = printable_line(session.principal.decode(errors="replace"))
            self.audit.right_ended(
                [Permission.ARCHIVE_READING, Permission.ARCHIVE_WRITING],
                Caller(CallerRole.CLIENT, principal, Proof.PASSWORD),
                reason="the authenticator does not admit it any more",
                addresses=(session.accepted.address,),
            )
        return is_admitted

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
