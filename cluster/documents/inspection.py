"""The inspection documents of a running member: members, open sessions, timers.

A question is a connection to a member's *consensus* endpoint on `INSPECTION_STREAM_ID` with one JSON document,
`InspectionRequest`; the answer is one JSON document, `MembersView`, `SessionsView` or `TimersView`. Nothing is changed
by asking. An answer holds at most as many rows as were asked for, `ROW_LIMIT` at most, and says how many there are.

The answer of another process is checked like any input: its length before it is stored, its text before it is shown.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import Field

from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.documents.document import (
    ClusterIdLine,
    Count,
    Document,
    DocumentPart,
    Id,
    Line,
    Position,
    Rate,
    RoleName,
    Seconds,
    read_document,
)
from ...service_api.errors import RemoteProtocolError
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.types import INSPECTION_STREAM_ID
from .query import Outcome, StatusQueryError, expect_cluster, query_document, read_answer

ROW_LIMIT: Final = 1000
ANSWER_LIMIT_BYTES: Final = 2 << 20
"""The longest frame that is taken for an answer; a row has less than 2,000 bytes."""

INT64_MIN: Final = -(1 << 63)

Int64 = Annotated[int, Field(ge=INT64_MIN, lt=1 << 63)]


class Topic(StrEnum):
    """What can be asked about."""

    MEMBERS = "members"
    SESSIONS = "sessions"
    TIMERS = "timers"


class SessionOrder(StrEnum):
    """How sessions can be ordered."""

    ID = "id"
    MESSAGES = "messages"
    """The one that sends the most messages a second comes first."""
    BYTES = "bytes"
    """The one that sends the most bytes a second comes first."""
    IDLE = "idle"
    """The one that has been silent for the longest comes first."""


class InspectionRequest(Document):
    """What somebody wants to see. The rows after the first `offset`, at most `limit` of them."""

    KIND: ClassVar[str] = "request"

    topic: Annotated[Topic, Field(strict=False)]
    offset: Count = 0
    limit: Annotated[int, Field(ge=1, le=ROW_LIMIT)] = 100
    order: Annotated[SessionOrder, Field(strict=False)] = SessionOrder.ID
    """The order of sessions; a member that does not know it orders by id."""


class _View(Document):
    """What every answer says of the member that gives it."""

    answered_by: Id
    cluster_id: ClusterIdLine | None = None
    """The cluster of that member; None while it does not know."""
    group: Line = ""
    """Which of the cluster's groups it is in, as `index/count`; empty: the cluster has no groups."""
    role: RoleName
    state: Line
    """As in `MemberStatus`; it says whether the member leads."""
    leadership_term_id: Id | None
    """The newest leadership term that it takes part in."""
    total_count: Count
    """How many rows there are, of which the answer holds those that were asked for."""


class InspectionRefusal(Document):
    """The answer to a request that cannot be one."""

    KIND: ClassVar[str] = "refusal"

    refused: Line


class MemberView(DocumentPart):
    """One member, as the member that answers sees it; positions are known to the leader, of itself to anyone."""

    member_id: Id
    kind: Line = "voter"
    """`voter`, `learner`, which is counted nowhere, or `witness`, which votes and runs no service."""
    is_leader: bool
    is_connected: bool
    """Whether the consensus link to it is up; always true of the member that answers."""
    append_position: Position | None
    """How far it has recorded the log in this term; None where that is not known here."""
    lag_bytes: Count | None
    """How far that is behind the member that answers."""
    silent_s: Seconds | None
    """How long ago it said so."""
    is_catching_up: bool
    has_log: bool | None = None
    """Whether the leader would make it a voter, if it is none; None where a member answers that does not lead."""
    feature_level: Count | None = None
    """The highest feature level that its services know; None where it has not said so, or is down."""
    limiting_service: Line | None = None
    """The services that know no higher one, with their ids; None where that is not known."""
    ingress: Line
    consensus: Line
    log: Line
    catchup: Line
    archive: Line


class MembersView(_View):
    """The members of the cluster, as one of them sees them."""

    KIND: ClassVar[str] = "list of members"
    TOPIC: ClassVar[Topic] = Topic.MEMBERS

    leader_member_id: Id | None
    candidate_term_id: Id | None
    """The highest term that the member that answers has voted or stood in."""
    commit_position: Position
    log_recording_id: Id
    """The recording in its archive that holds the log."""
    configuration_position: Position = 0
    """Where the log entry ends that says who the members are; 0 while settings say so."""
    high_member_id: int = Field(default=0, ge=0)
    """The highest id that a member has, or ever had: a new one gets a higher."""
    feature_level: Count = 0
    """What is in force at the delivered end of the log."""
    members: Annotated[list[MemberView], Field(max_length=ROW_LIMIT)]


class SessionView(DocumentPart):
    """One open session of a client."""

    cluster_session_id: Int64
    principal: Line
    """Who the client is, as the authenticator wrote it down; what cannot be shown is `?`."""
    state: Line
    opened_log_position: Position
    idle_s: Seconds | None
    """How long nothing came from the client; None where the member that answers does not lead: it does not watch."""
    is_connected: bool
    """Whether the client holds the session on a connection to the member that answers."""
    address: Line | None = None
    """Where that connection comes from, or the one on which it was opened here: an address of IPv4, or a network of 64
    bits of IPv6; None where the member that answers does not know."""
    client_info: Line | None = None
    """How the client calls itself; None where the member that answers did not open the session."""
    client_version: Line | None = None
    """The version of the client's protocol; None as with `client_info`."""
    messages_per_s: Rate | None = None
    """Messages from the client in a second, over the last 5 seconds; None if the member that answers does not lead."""
    bytes_per_s: Rate | None = None
    """The same as bytes of the log, so with frame headers and padding."""


class SessionsView(_View):
    """The sessions that are open at the delivered position, in the order that was asked for."""

    KIND: ClassVar[str] = "list of sessions"
    TOPIC: ClassVar[Topic] = Topic.SESSIONS

    delivered_position: Position
    sessions: Annotated[list[SessionView], Field(max_length=ROW_LIMIT)]


class TimerView(DocumentPart):
    """One timer of a service that is set."""

    correlation_id: Int64
    service_id: Id | None
    """None where every service is told, because they share their ids."""
    deadline: Int64
    """In cluster time."""
    due_in_s: Annotated[float, Field(allow_inf_nan=False)]
    """Negative once it is due and its event is not delivered yet."""


class TimersView(_View):
    """The timers that are set, the one that is due first in front."""

    KIND: ClassVar[str] = "list of timers"
    TOPIC: ClassVar[Topic] = Topic.TIMERS

    cluster_time: Int64
    """By the clock of the member that answers, in the cluster's time unit."""
    timers: Annotated[list[TimerView], Field(max_length=ROW_LIMIT)]


View = MembersView | SessionsView | TimersView
ViewT = TypeVar("ViewT", MembersView, SessionsView, TimersView)


async def inspect_member(
    endpoint: str,
    view: type[ViewT],
    timeout_s: float,
    *,
    offset: int = 0,
    limit: int = ROW_LIMIT,
    order: SessionOrder = SessionOrder.ID,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> ViewT:
    """Ask the member at a consensus endpoint (`host:port`); takes at most `timeout_s`.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: there was no answer to be had, or it is one of another cluster; the error says why.
    """
    request = InspectionRequest(topic=view.TOPIC, offset=offset, limit=limit, order=order).model_dump_json().encode()
    payload = await query_document(
        endpoint,
        INSPECTION_STREAM_ID,
        timeout_s,
        request=request,
        length_limit_bytes=ANSWER_LIMIT_BYTES,
        cluster_id=cluster_id,
        network=network,
    )
    try:
        answer = read_answer(view, payload)
    except StatusQueryError:
        refusal = _read_refusal(payload)
        if refusal is None:
            raise
        raise StatusQueryError(Outcome.INVALID, f"refused: {refusal.refused}") from None
    expect_cluster(answer.cluster_id, answer.group, endpoint=endpoint, expected=cluster_id)
    return answer


def _read_refusal(payload: bytes) -> InspectionRefusal | None:
    try:
        return read_document(InspectionRefusal, payload)
    except RemoteProtocolError:
        return None
