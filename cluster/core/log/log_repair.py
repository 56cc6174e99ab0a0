"""Decides whose bytes may stand in the place of damaged ones.

A member that has lost a part of its log knows that it had something there, and not what. Any copy is right if it is of
the same history, and only then, so nothing is taken on trust:

- *Only what is committed.* A range ends at the own commit position and at the other member's. What is beyond may be
  replaced by a leader tomorrow; it is the election that decides about it, not a repair.
- *Only from the same term.* The own recording log, which is another file, says in which leadership term each position
  was written. The other member's has to say the same of the whole range: two logs that have a position in the same
  term are equal up to there (Raft paper §5.3, Log Matching).
- *The bytes say so themselves.* Each message of the log carries the leadership term that it was appended in, under its
  checksum. A member that mixed up its terms is found by that.

Where no other member qualifies, the reason says whether waiting helps: a member that does not answer, or has not
committed that far, may have it later.

Rejected: to count equal copies and take what most have. With three members one is damaged, and two that agree are the
majority that has committed it; with only one left, its commit position says the same.
Source: Alagappan et al., "Protocol-Aware Recovery for Consensus-Based Storage" (FAST 2018).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ....service_api.types import MemberId
from ....service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, unpack_header
from ....service_api.wire.log.fields import read_log_fields
from .log_copies import LogCopies


@dataclass(slots=True, frozen=True, order=True)
class Term:
    """A leadership term and where its entries begin."""

    term_base_log_position: int
    leadership_term_id: int


@dataclass(slots=True, frozen=True)
class OtherCopy:
    """What another member said about its log."""

    member_id: MemberId
    recording_id: int
    commit_position: int
    terms: tuple[Term, ...]
    """In order, as far as they are committed."""
    copies: LogCopies = field(default_factory=LogCopies)
    """Which ranges of it are copies."""


@dataclass(slots=True, frozen=True)
class RepairRange:
    """What may be taken from a member: the bytes of [position, stop_position)."""

    member_id: MemberId
    recording_id: int
    position: int
    stop_position: int
    copies: LogCopies = field(default_factory=LogCopies)
    """The members on whose disks the bytes of the log may have been before."""
    replaces: bool = False
    """True where they may take the place of frames that are valid by themselves: `log_comparison` has decided so."""


@dataclass(slots=True)
class RepairPlan:
    """Who may be asked, in order, and why the others are not."""

    ranges: list[RepairRange] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    may_wait: bool = False
    """Whether somebody may have it later."""


def plan_repair(
    position: int,
    *,
    commit_position: int | None,
    terms: Sequence[Term],
    copies: Iterable[OtherCopy],
    silent: Iterable[MemberId] = (),
) -> RepairPlan:
    """Decide who may give the bytes at `position` of the log, the member that reaches farthest first.

    `terms` are the own ones, in order. Without a commit position the member does not know yet what is committed, and
    goes by what the others know. `silent` are the members that did not answer.
    """
    plan = RepairPlan()
    own = term_at(terms, position)
    if own is None:
        plan.refusals.append(f"the recording log here does not say in which term position={position} was written")
        return plan
    if commit_position is not None and commit_position <= position:
        plan.refusals.append(f"position={position} is not committed, as far as is known: commit={commit_position}")
        plan.may_wait = True
        return plan
    for copy in copies:
        stop_position = copy.commit_position if commit_position is None else min(commit_position, copy.commit_position)
        if stop_position <= position:
            plan.refusals.append(f"member {copy.member_id} has committed up to {copy.commit_position} only")
            plan.may_wait = True
            continue
        theirs = term_at(copy.terms, position)
        if theirs != own:
            plan.refusals.append(
                f"member {copy.member_id} has leadership_term_id={_id(theirs)} at position={position}, expected="
                f"{own.leadership_term_id}"
            )
            continue
        stop_position = min(stop_position, _equal_up_to(terms, copy.terms, own))
        plan.ranges.append(RepairRange(copy.member_id, copy.recording_id, position, stop_position, copy.copies))
    plan.ranges.sort(key=lambda each: -each.stop_position)
    for member_id in silent:
        plan.refusals.append(f"member {member_id} does not answer")
        plan.may_wait = True
    return plan


def find_term_fault(frames: bytes, position: int, terms: Sequence[Term]) -> str | None:
    """Return which message among `frames`, valid ones that belong at `position`, is of another leadership term."""
    offset = 0
    while offset < len(frames):
        header = unpack_header(frames, offset)
        if header.type == TYPE_DATA and header.flags & FLAG_BEGIN:
            payload = frames[offset + HEADER_LENGTH : offset + header.frame_length]
            found, expected = read_log_fields(payload).leadership_term_id, term_at(terms, position + offset)
            if found is not None and (expected is None or found != expected.leadership_term_id):
                return (
                    f"the entry at position={position + offset} is of leadership_term_id={found}, expected="
                    f"{_id(expected)}"
                )
        offset += header.aligned_length
    return None


def term_at(terms: Sequence[Term], position: int) -> Term | None:
    """Find the term in which a position was written; None before the first. A term without entries has none."""
    return max((term for term in terms if term.term_base_log_position <= position), default=None)


def _equal_up_to(own: Sequence[Term], theirs: Sequence[Term], begin: Term) -> int:
    """Return where the terms from `begin` on, which both have, are not the same any more."""
    mine = [term for term in own if term > begin]
    others = [term for term in theirs if term > begin]
    for one, other in zip(mine, others, strict=False):
        if one != other:
            return min(one.term_base_log_position, other.term_base_log_position)
    longer = mine[len(others) :] or others[len(mine) :]
    return longer[0].term_base_log_position if longer else 1 << 63


def _id(term: Term | None) -> int | None:
    return None if term is None else term.leadership_term_id
