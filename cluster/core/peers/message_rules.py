"""What a member may say: the first look at every message of another member, before anything is made of it.

Any process that reaches the consensus endpoint can call itself a member and send any numbers. A message that no member
in its right mind would send is refused here, whatever phase this member is in: it changes nothing, reaches no file, and
is told of in one effect, `MessageRefused`. Seven rules:

1. *Terms do not leap* (`terms`): none is above what is believed. The sender is asked what it vouches for, so that an
   honest one is heard the next time it says so.
2. *Terms and positions are such*: a term is -1 or more, a position is in a log, and where a frame can begin or end.
3. *A leader's announcement fits together*, and fits what this member has marked and committed. Otherwise the member
   would find out half-way, and would have to stop rather than write the one or cut off the other.
4. *A follower has not recorded what the leader has not appended.*
5. *A term has one leader*: whom this member has followed in a term, or was itself, is the only one it hears in that.
6. *Only the leader ends a catch-up or a cluster*: such a message names no sender, so the link must be the leader's.
7. *Only a standby offers snapshots*: such a message names no sender, so the link must be a standby's.

What these rules let through can still be a lie; the protocol's own rules decide as ever. Each rule gives the fault as
facts, and the same message is sent again by an honest member, so nothing is lost where a rule was too early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ....service_api.types import NULL_POSITION, NULL_TERM_ID, MemberId, TermId
from ....service_api.wire.frame import FRAME_ALIGNMENT
from ....service_api.wire.message import Message
from ...messages.backup import StandbySnapshot
from ...messages.condition import ConditionQuery, MemberCondition
from ...messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationAck,
    TerminationPosition,
    Vote,
)
from ...messages.digests import ServiceDigest, StateFields
from ...messages.reads import LeadershipProbe, LeadershipProbeAck, ReadPosition, ReadPositionRequest
from ...messages.transfer import TransferLeadership
from ..context import ConsensusContext
from ..effects import MessageRefused
from ..events import LeaderSaid, StandbySaid
from ..vocabulary.configuration import MemberKind
from ..vocabulary.terms import TERM_LEAP_LIMIT

SENDER_FIELDS: Final[dict[type[Message], str | None]] = {
    CanvassPosition: "follower_member_id",
    RequestVote: "candidate_member_id",
    Vote: "follower_member_id",
    NewLeadershipTerm: "leader_member_id",
    AppendPosition: "follower_member_id",
    CommitPosition: "leader_member_id",
    CatchupPosition: "follower_member_id",
    StopCatchup: None,
    TerminationPosition: None,
    TerminationAck: "member_id",
    LeadershipProbe: "leader_member_id",
    LeadershipProbeAck: "follower_member_id",
    ReadPositionRequest: "follower_member_id",
    ReadPosition: "leader_member_id",
    ServiceDigest: "member_id",
    StateFields: "member_id",
    TransferLeadership: "leader_member_id",
    ConditionQuery: "member_id",
    MemberCondition: "member_id",
    StandbySnapshot: None,
}
"""Every message of another member, and the field that says who sent it.

A StopCatchup names only its receiver, a TerminationPosition only the term, a StandbySnapshot an archive.
"""

_LAST_POSITION: Final = 1 << 61
"""No log is longer: 2^31 terms of 1 GiB. Source: Aeron `LogBufferDescriptor`."""


def find_leader_fault(ctx: ConsensusContext, said: LeaderSaid) -> MessageRefused | None:
    """Return what is wrong with a message that only a leader sends; None if nothing is."""
    message: StopCatchup | TerminationPosition = said.message
    is_of_this_term = ctx.leader_member_id is not None and message.leadership_term_id == ctx.leadership_term_id
    if is_of_this_term and said.member_id != ctx.leader_member_id:
        fault = f"member_id={said.member_id} expected leader_member_id={ctx.leader_member_id}"
        return MessageRefused(said.member_id, type(message).__name__, fault)
    return find_fault(ctx, message)


def find_standby_fault(ctx: ConsensusContext, said: StandbySaid) -> MessageRefused | None:
    """Return what is wrong with an offer of a standby; None if nothing is.

    One that was a standby a moment ago, and was promoted, may have one more on the way.
    """
    sender = ctx.roster.current.find(said.member_id)
    if sender is None or sender.kind is not MemberKind.STANDBY:
        kind = "no member" if sender is None else f"a {sender.kind}"
        return MessageRefused(said.member_id, StandbySnapshot.__name__, f"member_id={said.member_id} is {kind}")
    return find_fault(ctx, said.message)


def find_fault(ctx: ConsensusContext, message: Message) -> MessageRefused | None:
    """Return what is wrong with a message of another member; None if nothing is."""
    kind = type(message)
    name = SENDER_FIELDS[kind]
    sender_id = None if name is None else getattr(message, name)
    if sender_id is not None and (sender_id == ctx.config.member_id or sender_id not in ctx.members):
        return MessageRefused(None, kind.__name__, f"{name}={sender_id} expected another member of {[*ctx.members]}")
    rule = _RULES.get(kind)
    fault = None if rule is None else rule(ctx, message)
    return None if fault is None else MessageRefused(sender_id, kind.__name__, fault)


def _term_fault(ctx: ConsensusContext, member_id: int, term_id: int, name: str = "leadership_term_id") -> str | None:
    """Look at a term: -1 or more, and no leap. A leap has the member asked what it vouches for."""
    if term_id < NULL_TERM_ID:
        return f"{name}={term_id} expected at least {NULL_TERM_ID}"
    believed = max(ctx.vouched_term_id + TERM_LEAP_LIMIT, ctx.candidate_term_id, ctx.leadership_term_id)
    if term_id <= believed:
        return None
    ctx.ask_condition(MemberId(member_id))
    return (
        f"the term leaps: {name}={term_id} expected at most {believed}: no member vouches for more than "
        f"{ctx.vouched_term_id}"
    )


def _leader_fault(ctx: ConsensusContext, member_id: int, term_id: int) -> str | None:
    """Look whether another member leads the term, as far as this one knows; two would each commit their own log."""
    if ctx.leader_of_term is None:
        return None
    known_term_id, leader_member_id = ctx.leader_of_term
    if term_id != known_term_id or member_id == leader_member_id:
        return None
    return f"leader_member_id={member_id} expected {leader_member_id}, which leads leadership_term_id={term_id}"


def _position_fault(position: int, name: str = "log_position") -> str | None:
    if 0 <= position <= _LAST_POSITION:
        return None
    return f"{name}={position} expected 0 to {_LAST_POSITION}"


def _frame_fault(position: int, name: str = "log_position") -> str | None:
    """Look at a position from which something is committed, recorded or cut: a frame begins or ends there."""
    if 0 <= position <= _LAST_POSITION and not position % FRAME_ALIGNMENT:
        return None
    return f"{name}={position} expected a multiple of {FRAME_ALIGNMENT} from 0 to {_LAST_POSITION}"


def _log_fault(ctx: ConsensusContext, member_id: int, message: CanvassPosition | RequestVote | Vote) -> str | None:
    """Look at where a member says that its log ends."""
    return _term_fault(ctx, member_id, message.log_leadership_term_id, "log_leadership_term_id") or _position_fault(
        message.log_position
    )


def _canvass(ctx: ConsensusContext, message: CanvassPosition) -> str | None:
    member_id = message.follower_member_id
    return _term_fault(ctx, member_id, message.leadership_term_id) or _log_fault(ctx, member_id, message)


def _request_vote(ctx: ConsensusContext, message: RequestVote) -> str | None:
    member_id = message.candidate_member_id
    fault = _term_fault(ctx, member_id, message.candidate_term_id, "candidate_term_id")
    return fault or _log_fault(ctx, member_id, message)


def _vote(ctx: ConsensusContext, message: Vote) -> str | None:
    member_id = message.follower_member_id
    fault = _term_fault(ctx, member_id, message.candidate_term_id, "candidate_term_id")
    return fault or _log_fault(ctx, member_id, message)


def _new_leadership_term(ctx: ConsensusContext, message: NewLeadershipTerm) -> str | None:
    term_id, base = message.leadership_term_id, message.term_base_log_position
    commit = 0 if message.commit_position is None else message.commit_position
    fault = (
        _term_fault(ctx, message.leader_member_id, term_id)
        or _leader_fault(ctx, message.leader_member_id, term_id)
        or _frame_fault(base, "term_base_log_position")
        or _frame_fault(message.log_position)
        or _frame_fault(commit, "commit_position")
    )
    if fault is not None:
        return fault
    if term_id < 0 or message.log_leadership_term_id < NULL_TERM_ID or message.leader_recording_id < 0:
        return (
            f"leadership_term_id={term_id} log_leadership_term_id={message.log_leadership_term_id} "
            f"leader_recording_id={message.leader_recording_id} expected at least 0, -1 and 0"
        )
    if not max(base, commit) <= message.log_position:
        return (
            f"log_position={message.log_position} expected at least term_base_log_position={base} and "
            f"commit_position={commit}"
        )
    if message.log_leadership_term_id != ctx.log_leadership_term_id:
        return None  # it speaks of another log than this one: it is answered, and nothing is made of it
    return _next_term_fault(message) or _own_log_fault(ctx, message)


def _next_term_fault(message: NewLeadershipTerm) -> str | None:
    """Look at the term that follows the member's last: one after it, up to the announced one, and closed if earlier."""
    next_id, base, end = message.next_leadership_term_id, message.next_term_base_log_position, message.next_log_position
    facts = f"next_leadership_term_id={next_id} next_term_base_log_position={base} next_log_position={end}"
    if next_id == NULL_TERM_ID:
        return None if base == end == NULL_POSITION else f"{facts} expected -1, -1 and -1"
    leadership_term_id, announced_base = message.leadership_term_id, message.term_base_log_position
    if not message.log_leadership_term_id <= next_id <= leadership_term_id:
        return (
            f"{facts} expected a term from log_leadership_term_id={message.log_leadership_term_id} to "
            f"leadership_term_id={leadership_term_id}"
        )
    if next_id == leadership_term_id:
        is_whole = base == announced_base and (end == NULL_POSITION or base <= end <= _LAST_POSITION)
    else:
        is_whole = 0 <= base <= end <= announced_base
    return None if is_whole else f"{facts} expected within term_base_log_position={announced_base}"


def _own_log_fault(ctx: ConsensusContext, message: NewLeadershipTerm) -> str | None:
    """Look whether this member can make its log fit: nothing committed is cut off, no mark of a term is moved."""
    term_id, base = message.leadership_term_id, message.term_base_log_position
    next_base = message.next_term_base_log_position
    if term_id < ctx.candidate_term_id or NULL_TERM_ID < message.next_leadership_term_id == ctx.log_leadership_term_id:
        return None  # it is not followed; or the last mark is taken back first
    if NULL_POSITION < next_base < ctx.append_position:
        if next_base >= ctx.commit_position:
            return None
        return (
            f"next_term_base_log_position={next_base} expected at least commit_position={ctx.commit_position}: what is "
            f"committed here is not in that leader's log"
        )
    entry, last = ctx.recording_log.term_entry(TermId(term_id)), ctx.recording_log.last_term()
    if entry is not None and entry.term_base_log_position != base:
        return f"term_base_log_position={base} expected {entry.term_base_log_position}, where this member marked it"
    if entry is None and last is not None and base < last.term_base_log_position:
        return (
            f"term_base_log_position={base} expected at least {last.term_base_log_position}, where "
            f"leadership_term_id={last.leadership_term_id} begins here"
        )
    return None


def _append_position(ctx: ConsensusContext, message: AppendPosition) -> str | None:
    position, term_id = message.log_position, message.leadership_term_id
    if term_id != ctx.leadership_term_id:
        return _term_fault(ctx, message.follower_member_id, term_id) or _position_fault(position)
    fault = _frame_fault(position)
    is_leader = ctx.leader_member_id == ctx.config.member_id
    if fault is None and is_leader and position > ctx.log_buffer.append_position:
        return f"log_position={position} expected at most {ctx.log_buffer.append_position}: this leader has no more"
    return fault


def _commit_position(ctx: ConsensusContext, message: CommitPosition) -> str | None:
    position, term_id = message.log_position, message.leadership_term_id
    if term_id != ctx.leadership_term_id:
        return _term_fault(ctx, message.leader_member_id, term_id) or _position_fault(position)
    return _leader_fault(ctx, message.leader_member_id, term_id) or _frame_fault(position)


def _catchup_position(ctx: ConsensusContext, message: CatchupPosition) -> str | None:
    fault = _term_fault(ctx, message.follower_member_id, message.leadership_term_id)
    return fault or _position_fault(message.log_position)


def _stop_catchup(ctx: ConsensusContext, message: StopCatchup) -> str | None:
    if message.leadership_term_id <= ctx.leadership_term_id:
        return None
    return f"leadership_term_id={message.leadership_term_id} expected {ctx.leadership_term_id}"


def _termination_position(ctx: ConsensusContext, message: TerminationPosition) -> str | None:
    if message.leadership_term_id > ctx.leadership_term_id:
        return f"leadership_term_id={message.leadership_term_id} expected {ctx.leadership_term_id}"
    fault, position = _frame_fault(message.log_position), message.log_position
    if fault is None and message.leadership_term_id == ctx.leadership_term_id:
        if position < ctx.commit_position:
            return f"log_position={position} expected at least commit_position={ctx.commit_position}"
        if position < ctx.term_base_log_position:
            return f"log_position={position} expected at least term_base_log_position={ctx.term_base_log_position}"
    return fault


def _termination_ack(ctx: ConsensusContext, message: TerminationAck) -> str | None:
    fault = _term_fault(ctx, message.member_id, message.leadership_term_id)
    return fault or _position_fault(message.log_position)


def _leadership_probe(ctx: ConsensusContext, message: LeadershipProbe) -> str | None:
    member_id, term_id = message.leader_member_id, message.leadership_term_id
    return _term_fault(ctx, member_id, term_id) or _leader_fault(ctx, member_id, term_id)


def _leadership_probe_ack(ctx: ConsensusContext, message: LeadershipProbeAck) -> str | None:
    return _term_fault(ctx, message.follower_member_id, message.leadership_term_id)


def _read_position_request(ctx: ConsensusContext, message: ReadPositionRequest) -> str | None:
    return _term_fault(ctx, message.follower_member_id, message.leadership_term_id)


def _read_position(ctx: ConsensusContext, message: ReadPosition) -> str | None:
    member_id, term_id = message.leader_member_id, message.leadership_term_id
    fault = _term_fault(ctx, member_id, term_id) or _leader_fault(ctx, member_id, term_id)
    return fault or _position_fault(message.log_position)


def _transfer_leadership(ctx: ConsensusContext, message: TransferLeadership) -> str | None:
    member_id, term_id = message.leader_member_id, message.leadership_term_id
    fault = _term_fault(ctx, member_id, term_id) or _leader_fault(ctx, member_id, term_id)
    return fault or _frame_fault(message.log_position)


def _standby_snapshot(ctx: ConsensusContext, message: StandbySnapshot) -> str | None:
    positions = [message.correlation_id, *(one.log_position for one in message.snapshots)]
    return next((fault for position in positions if (fault := _frame_fault(position)) is not None), None)


def _service_digest(ctx: ConsensusContext, message: ServiceDigest | StateFields) -> str | None:
    return _frame_fault(message.log_position)


_RULES: Final[dict[type, Callable[[ConsensusContext, Any], str | None]]] = {  # Any: each takes its own message
    CanvassPosition: _canvass,
    RequestVote: _request_vote,
    Vote: _vote,
    NewLeadershipTerm: _new_leadership_term,
    AppendPosition: _append_position,
    CommitPosition: _commit_position,
    CatchupPosition: _catchup_position,
    StopCatchup: _stop_catchup,
    TerminationPosition: _termination_position,
    TerminationAck: _termination_ack,
    LeadershipProbe: _leadership_probe,
    LeadershipProbeAck: _leadership_probe_ack,
    ReadPositionRequest: _read_position_request,
    ReadPosition: _read_position,
    ServiceDigest: _service_digest,
    StateFields: _service_digest,
    StandbySnapshot: _standby_snapshot,
    TransferLeadership: _transfer_leadership,
}
