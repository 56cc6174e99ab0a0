"""One member among others that say anything: what they say is chosen freely, and what must hold is checked each time.

The member is a real consensus module; what its agent does is done here at once: it stops and cuts its log, replays,
joins, and records. The others speak the protocol, in their own names: with any numbers, those that fit first of all,
and what they said before, again and in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.unit.cluster.core.checks import expect
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, of, said_by
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.peers.message_rules import SENDER_FIELDS
from trimaran.cluster.core.vocabulary.terms import TERM_LEAP_LIMIT
from trimaran.cluster.messages.consensus import RequestVote, Vote
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.fields import BlockField, MessageLayout
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.versioned import build

KINDS: Final = tuple(SENDER_FIELDS)
OTHERS: Final = (MemberId(1), MemberId(2))
TEXTS: Final = ("", "host1:9003", "host2:9003", "a", "[::]:99999999", "x" * 300)
_EXTREMES: Final = (-(1 << 63), -(1 << 63) + 1, -2, -1, 0, 1, 31, 32, 64, 640, 1 << 31, 1 << 61, 1 << 62, (1 << 63) - 1)
_EXTREMES_32: Final = (-(1 << 31), -1, 0, 1, 2, 3, 77, (1 << 31) - 1)

PHASES: Final[dict[str, Callable[[], Solo]]] = {
    "canvass": lambda: Solo(terms=[(0, 0, 640)]),
    "candidate": lambda: Solo(terms=[(0, 0, 320), (1, 320, 640)]).reach_candidate_ballot(),
    "winner": lambda: Solo(terms=[(0, 0, 640)]).reach_leader_log_replication(),
    "leader": lambda: Solo(terms=[(0, 0, 640)]).lead(),
    "follower": lambda: Solo(terms=[(0, 0, 640)]).follow(),
    "newcomer": Solo,
}
"""Where a member may stand when the others begin."""


class Victim:
    """The member, and what it may never do."""

    def __init__(self, phase: str) -> None:
        self.solo = PHASES[phase]()
        self.said: list[Message | ev.LeaderSaid | ev.StandbySaid] = []
        """What the others have said, for them to say again."""
        self.refused_count = 0
        self.is_terminated = False
        ctx = self.solo.ctx
        self._commit_position = ctx.commit_position
        self._terms = (ctx.leadership_term_id, ctx.candidate_term_id)
        self._persisted_term_id = -1
        self._votes: dict[int, int] = {}
        self._leaders: dict[int, int] = {}
        self.check(self.solo.effects)
        self.react()

    # --- the others

    def forge(self, kind: type[Message], sender: MemberId, choose: Callable[[int], int]) -> Message:
        """Make a message of a kind in a member's own name; `choose(n)` gives a number from 0 to n - 1."""
        numbers = self._numbers()
        values = _choose_values(kind.LAYOUT, numbers, choose)
        for group in kind.LAYOUT.groups:
            elements = (_choose_values(group.layout, numbers, choose) for _ in range(choose(3)))
            values[group.name] = tuple(build(group.element, chosen) for chosen in elements)
        name = SENDER_FIELDS[kind]
        if name is not None:
            values[name] = sender
        return build(kind, values)

    def _numbers(self) -> list[int]:
        """Give the numbers that mean something to the member now, and some that never do."""
        ctx = self.solo.ctx
        near = [
            ctx.commit_position,
            ctx.append_position,
            ctx.log_buffer.append_position,
            ctx.term_base_log_position,
            ctx.notified_commit_position,
            ctx.leadership_term_id,
            ctx.log_leadership_term_id,
            ctx.candidate_term_id,
            ctx.vouched_term_id + 16,
            ctx.now_ns,
        ]
        return [*near, *(number + step for number in near[:8] for step in (1, -1, 32, -32)), *_EXTREMES]

    def say(self, sender: MemberId, message: Message) -> None:
        """Have a member say something; its link would carry nothing in another's name."""
        said = said_by(sender, message)
        self.said.append(said)
        del self.said[:-64]
        self.feed(said)

    # --- the member's own surroundings

    def feed(self, event: object) -> None:
        """Hand the module an event, do what it asks for, and check it."""
        if self.is_terminated:
            return
        self.check(self.solo.feed(event))
        self.react()

    def wait(self, duration_ns: int) -> None:
        """Let time pass."""
        if not self.is_terminated:
            self.check(self.solo.wait(duration_ns))
            self.react()

    def record(self) -> None:
        """Let what was appended become durable."""
        if not self.is_terminated and self.solo.module.leader is not None:
            self.check(self.solo.record())
            self.react()

    def join(self) -> None:
        """Let the live log and the catch-up of the leader that is followed connect."""
        session_id = self.solo.ctx.log_session_id
        for event in (ev.CatchupImageAvailable(session_id), ev.LogJoined(session_id)):
            self.feed(event)

    def react(self) -> None:
        """Do what the agent does with effects, until nothing is asked for any more."""
        for _ in range(64):
            effects, self.solo.effects = self.solo.effects, []
            answers = [answer for effect in effects if (answer := self._answer_to(effect)) is not None]
            if not answers:
                return
            for answer in answers:
                if not self.is_terminated:
                    self.check(self.solo.feed(answer))
        raise AssertionError("the member and its agent never come to rest")

    def _answer_to(self, effect: fx.Effect) -> object | None:
        ctx = self.solo.ctx
        match effect:
            case fx.StopLog():
                return ev.LogStopped(ctx.log_buffer.append_position)
            case fx.TruncateLog(position):
                ctx.log_buffer.reset(position)
                return ev.LogTruncated(position)
            case fx.StartReplay(to_position):
                return ev.ReplayDone(to_position, 0)
            case fx.StartLogReplication(_, _, stop_position, _):
                if stop_position > 1 << 20:
                    return ev.ActivityFailed("the archive has no such range")
                ctx.log_buffer.reset(stop_position)
                return ev.ReplicationDone(stop_position)
            case fx.FetchSnapshot():
                return ev.SnapshotFetchFailed("no snapshot")
            case fx.AwaitDelivery(position) if position <= ctx.commit_position:
                return ev.DeliveredTo(position)
            case fx.MessageRefused():
                self.refused_count += 1
            case fx.Terminate():
                self.is_terminated = True
        return None

    # --- what must hold

    def check(self, effects: Sequence[fx.Effect]) -> None:
        """Check what the member did, in order, and where it stands."""
        ctx = self.solo.ctx
        for effect in effects:
            match effect:
                case fx.PersistCandidateTerm(term_id, _, _):
                    expect(term_id >= self._persisted_term_id, "the candidate term on disk never falls", effect=effect)
                    expect(term_id <= self._term_limit(), "no term is far from those that there are", effect=effect)
                    self._persisted_term_id = term_id
                case fx.TruncateLog(position):
                    expect(position >= ctx.commit_position, "nothing committed is cut off", effect=effect)
                case fx.CommitAdvanced(position):
                    expect(position >= self._commit_position, "the commit position never falls", effect=effect)
                case fx.SendToMember(_, message):
                    message.encode()
                    self._check_vote(message)
        expect(ctx.commit_position >= self._commit_position, "the commit position never falls", ctx=ctx.commit_position)
        expect(ctx.commit_position <= ctx.append_position, "what is committed is recorded", ctx=ctx.commit_position)
        terms = (ctx.leadership_term_id, ctx.candidate_term_id)
        expect(
            all(now >= before for now, before in zip(terms, self._terms, strict=True)),
            "terms never fall",
            now=terms,
            before=self._terms,
        )
        self._commit_position, self._terms = ctx.commit_position, terms
        self._check_leader()
        self._check_marks()

    def _check_vote(self, message: Message) -> None:
        """A member votes once in a term, and not before that is durable."""
        match message:
            case RequestVote():
                candidate_id, term_id = 0, message.candidate_term_id
            case Vote(vote=True):
                candidate_id, term_id = message.candidate_member_id, message.candidate_term_id
            case _:
                return
        voted = self._votes.setdefault(term_id, candidate_id)
        expect(voted == candidate_id, "one vote in a term", term_id=term_id, votes=(voted, candidate_id))
        ctx = self.solo.ctx
        durable = max(self._persisted_term_id, ctx.log_leadership_term_id)
        expect(term_id <= max(durable, ctx.candidate_term_id), "a vote is durable", term_id=term_id, durable=durable)

    def _check_leader(self) -> None:
        """A member knows one leader of a term, itself included, and stays with it."""
        ctx = self.solo.ctx
        if ctx.leader_member_id is not None:
            leader = self._leaders.setdefault(ctx.leadership_term_id, ctx.leader_member_id)
            expect(leader == ctx.leader_member_id, "one leader in a term", term=ctx.leadership_term_id, leader=leader)

    def _check_marks(self) -> None:
        """The marks of terms are in order, each where the log was at least so long."""
        terms = [entry for entry in self.solo.ctx.recording_log.entries if entry.is_valid_term]
        ids = [entry.leadership_term_id for entry in terms]
        bases = [entry.term_base_log_position for entry in terms]
        expect(ids == sorted(set(ids)) and bases == sorted(bases), "marks of terms ascend", ids=ids, bases=bases)
        ends = [entry.log_position for entry in terms]
        is_near = max(ids, default=0) <= self._term_limit() and max(bases + ends, default=0) <= 1 << 61
        expect(is_near, "no absurd number reaches the marks of terms", ids=ids, bases=bases, ends=ends)

    def _term_limit(self) -> int:
        """Give the highest term that strangers and some ballots of its own can take the member to."""
        return self.solo.ctx.vouched_term_id + TERM_LEAP_LIMIT + 64

    def refusals(self) -> int:
        """How many messages were refused and would have been logged."""
        return self.refused_count + len(of(self.solo.effects, fx.MessageRefused))


def _choose_values(layout: MessageLayout, numbers: list[int], choose: Callable[[int], int]) -> dict[str, object]:
    values: dict[str, object] = {field.name: _choose_value(field, numbers, choose) for field in layout.block}
    for var in layout.var_data:
        text = TEXTS[choose(len(TEXTS))]
        values[var.name] = text if var.is_text else text.encode()
    return values


def _choose_value(field: BlockField, numbers: Sequence[int], choose: Callable[[int], int]) -> object:
    if field.values is not None:
        values = [None, *(meaning for _, meaning in field.values)]
        return values[choose(len(values))]
    if field.format == "q":
        value = numbers[choose(len(numbers))]
        value = min(max(value, -(1 << 63)), (1 << 63) - 1)
    elif field.format == "i":
        value = _EXTREMES_32[choose(len(_EXTREMES_32))]
    else:
        value = (0, 1, 2, 3, 127)[choose(5)]
    return None if field.optional and value == field.null else value


WAITS_NS: Final = (0, 1 * MS, 15 * MS, 60 * MS, 300 * MS)
