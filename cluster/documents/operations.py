"""The operations documents: an operator's request to a cluster, and the steps that its leader reports.

The request is a connection to the *consensus* endpoint of the leader, or of the member that is to stop, on
`OPERATION_STREAM_ID` with one JSON document, `OperationRequest`; the answer is one `OperationProgress` for each step,
the last one marked final. Operators and members may ask (`trimaran.service_api.access.permissions`): at a control
socket, or with a certificate. With TLS a member that does not lead passes the request on to the leader. A client that
disconnects before the end knows only the last step it received.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from ...service_api import ClusterError, RemoteProtocolError
from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ...service_api.documents.document import (
    ClusterIdLine,
    Document,
    DocumentPart,
    Id,
    Line,
    Position,
    read_document,
)
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.types import OPERATION_STREAM_ID
from ..core.vocabulary.control_toggle import ActionStep
from ..core.vocabulary.feature_levels import FEATURE_LEVEL_LIMIT
from ..core.vocabulary.member_change import MemberChangeKind
from .query import Outcome, StatusQueryError, query_documents

_NOT_BEGUN: Final = frozenset({Outcome.REFUSED, Outcome.UNREACHABLE, Outcome.NOT_ALLOWED})
"""What comes of asking that surely did nothing."""


FeatureLevel = Annotated[int, Field(ge=0, le=FEATURE_LEVEL_LIMIT)]


class ActionRefusedError(ClusterError):
    """The cluster will not do what it was asked for, as things are; nothing was done."""


class Operation(StrEnum):
    """What a cluster can be asked to do."""

    SUSPEND = "suspend"
    """Take no input until it is resumed; clients wait."""
    RESUME = "resume"
    """End a suspension."""
    SNAPSHOT = "snapshot"
    """Every member takes a snapshot at one log position."""
    SHUTDOWN = "shutdown"
    """Every member takes a snapshot at one log position, and stops there."""
    ABORT = "abort"
    """Every member stops at one log position, without a snapshot."""
    SKIP_ENTRY = "skip-entry"
    """No service is given one entry of the log, which the leader and a majority cannot deliver."""
    CHANGE_MEMBERS = "change-members"
    """A member is added, promoted, removed or moved."""
    TRANSFER = "transfer"
    """The leader hands its term over to another member."""
    STOP_MEMBER = "stop-member"
    """The member that is asked stops alone; where it leads, it hands over first."""
    SCRUB = "scrub"
    """The member that is asked reads everything it has recorded, to find damage."""
    TRUST_LOG = "trust-log"
    """The member that is asked takes one member's log for the valid one, where the logs of members differ."""
    RAISE_FEATURE_LEVEL = "raise-feature-level"
    """Services behave by another feature level from one log position on."""
    STANDBY_SNAPSHOT = "standby-snapshot"
    """The standbys take a snapshot, for the other members too. Refused where there is no standby."""
    LOG_LEVEL = "log-level"
    """The process of the member that is asked logs from another level on, until it ends."""
    CLOSE_SESSIONS = "close-sessions"
    """Sessions of clients end: one, or all of a principal or an address."""


class MemberChangeRequest(DocumentPart):
    """How the members are to change."""

    kind: MemberChangeKind
    member_id: Id | None = None
    """Whom; None for a new member that gets the next free id."""
    endpoints: Annotated[tuple[Line, ...], Field(max_length=5)] = ()
    """Of `add`, `add-witness`, `add-standby` and `move`: ingress, consensus, log, catch-up, archive, each
    `host:port`."""


class SessionsRequest(DocumentPart):
    """The sessions that are to end; exactly one of the three says which."""

    cluster_session_id: Id | None = None
    principal: Annotated[Line, Field(min_length=1)] | None = None
    address: Annotated[Line, Field(min_length=1)] | None = None
    """An address of IPv4 or IPv6, or a network of 64 bits of IPv6."""


class OperationRequest(Document):
    """What somebody wants."""

    KIND: ClassVar[str] = "request"

    operation: Operation
    log_position: Position | None = None
    """Of `skip-entry`: where the entry ends."""
    change: MemberChangeRequest | None = None
    """Of `change-members`."""
    target_member_id: Id | None = None
    """For `transfer` the member that is to lead, None: the best. For `trust-log` the member with the valid log."""
    feature_level: FeatureLevel | None = None
    """Of `raise-feature-level`: to which; None: the highest that every member can."""
    log_level: Line | None = None
    """For `log-level`: the lowest level that is logged."""
    sessions: SessionsRequest | None = None
    """For `close-sessions`."""
    cluster_id: ClusterIdLine | None = None
    """The cluster that is meant; None: whichever answers. A member of another one refuses."""
    passed_on_for: Line | None = None
    """For whom a member asks that was asked itself and does not lead; None: who asks, asks for itself."""


class OperationProgress(Document):
    """One step of an operation."""

    KIND: ClassVar[str] = "step of an operation"

    operation: Operation
    step: ActionStep
    cluster_id: ClusterIdLine | None = None
    """The cluster of the leader that answers; None while it does not know."""
    member_id: Id
    """Whom the step is about: the leader, which answers, or the follower that has acknowledged."""
    log_position: Position | None
    """Where in the log the operation is, once it is there."""
    detail: Line
    """Why it was refused or failed; otherwise what was done or is known."""
    is_final: bool
    """Whether this is the last step of the answer."""


async def run_operation(
    endpoint: str,
    operation: Operation,
    timeout_s: float,
    *,
    log_position: int | None = None,
    change: MemberChangeRequest | None = None,
    target_member_id: int | None = None,
    feature_level: int | None = None,
    log_level: str | None = None,
    sessions: SessionsRequest | None = None,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    passed_on_for: str | None = None,
    network: NetworkStack = SOCKETS,
) -> AsyncGenerator[OperationProgress, None]:
    """Ask a member, at its consensus endpoint (`host:port`), and give each step; ends with the final one.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: nobody answers there.
        ClusterError: the answer stopped before its final step: it may or may not take effect.
    """
    wanted = OperationRequest(
        operation=operation,
        log_position=log_position,
        change=change,
        target_member_id=target_member_id,
        feature_level=feature_level,
        log_level=log_level,
        sessions=sessions,
        cluster_id=format_cluster_id(cluster_id),
        passed_on_for=passed_on_for,
    )
    request = wanted.model_dump_json().encode()
    has_begun = False
    try:
        asking = query_documents(
            endpoint, OPERATION_STREAM_ID, timeout_s, request=request, cluster_id=cluster_id, network=network
        )
        async with aclosing(asking) as documents:
            async for document in documents:
                progress = read_document(OperationProgress, document)
                has_begun = True
                yield progress
                if progress.is_final:
                    return
    except StatusQueryError as error:
        if error.outcome in _NOT_BEGUN and not has_begun:
            raise
        raise ClusterError(f"no answer about the {operation}: {error}; it may or may not take effect") from error
    except RemoteProtocolError as error:
        raise ClusterError(f"no answer about the {operation}: {error}; it may or may not take effect") from error
    raise ClusterError(f"the answer about the {operation} ended early: it may or may not take effect")
