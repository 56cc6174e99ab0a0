"""What must always hold in a cluster, checked while it runs: a referee that sees every member and forgets nothing.

The rules are Raft's (paper §5, figure 3) in the words of this project, and those of DESIGN "Safer than the original".
A broken one raises `RuleBroken` at the very step that breaks it.
"""

from __future__ import annotations

from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.messages.consensus import AppendPosition, RequestVote, Vote
from trimaran.service_api.wire.message import Message


class RuleBroken(AssertionError):
    """A safety rule does not hold; the message says which, and in the referee's words why."""


def expect(condition: bool, rule: str, **facts: object) -> None:
    """Stop the run unless a rule holds."""
    if not condition:
        raise RuleBroken(f"{rule}: {facts}")


class Referee:
    """Knows the one history that every member has to share."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """By leadership term: the member that led it."""
        self.votes: dict[tuple[int, int], int] = {}
        """By voter and candidate term: the candidate that got the vote. A restart does not clear it."""
        self.committed = bytearray()
        """Every byte that any member ever called committed."""
        self.delivered: dict[int, tuple[object, ...]] = {}
        """By log position: what a service was given there."""
        self.newest_time = 0
        self.newest_position = 0

    def on_leader(self, member_id: int, leadership_term_id: int) -> None:
        """A member takes itself for the leader of a term."""
        leader = self.leaders.setdefault(leadership_term_id, member_id)
        expect(leader == member_id, "one leader per term", term=leadership_term_id, leaders=(leader, member_id))

    def on_send(
        self, member_id: int, message: Message, *, candidate_term_id: int, terms: RecordingLog, log_length: int
    ) -> None:
        """A message leaves a member. `candidate_term_id`, `terms` and `log_length` are what its disk holds by now."""
        match message:
            case RequestVote():
                self._on_vote(member_id, message.candidate_term_id, member_id, candidate_term_id)
            case Vote(vote=True):
                self._on_vote(member_id, message.candidate_term_id, message.candidate_member_id, candidate_term_id)
            case AppendPosition():
                term_id = message.leadership_term_id
                expect(
                    term_id < 0 or terms.term_entry(term_id) is not None,
                    "a term is marked, durably, before a position in it is reported",
                    member_id=member_id,
                    message=message,
                )
                expect(
                    message.log_position <= log_length,
                    "a position is durable before it is reported",
                    member_id=member_id,
                    message=message,
                    log_length=log_length,
                )

    def _on_vote(self, voter_id: int, term_id: int, candidate_id: int, durable_term_id: int) -> None:
        expect(
            durable_term_id >= term_id,
            "a vote is durable before it is sent",
            voter_id=voter_id,
            term_id=term_id,
            durable_term_id=durable_term_id,
        )
        voted = self.votes.setdefault((voter_id, term_id), candidate_id)
        expect(voted == candidate_id, "one vote per term", voter_id=voter_id, votes=(voted, candidate_id), term=term_id)

    def on_commit(self, member_id: int, since: int, position: int, log: bytes | bytearray) -> None:
        """A member calls its log committed up to a position, after `since`; `log` is its disk's."""
        expect(position <= len(log), "what is committed is durable here", member_id=member_id, position=position)
        common = min(position, len(self.committed))
        expect(
            log[since:common] == self.committed[since:common],
            "committed bytes are the same everywhere",
            member_id=member_id,
            position=position,
            committed=len(self.committed),
        )
        self.committed += log[common:position]

    def on_truncate(self, member_id: int, position: int, commit_position: int) -> None:
        """A member cuts its log back."""
        expect(
            position >= commit_position,
            "nothing below the own commit position is truncated",
            member_id=member_id,
            position=position,
            commit_position=commit_position,
        )

    def on_delivered(self, member_id: int, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """A member's service was given an entry that ends at `position`."""
        expect(position <= len(self.committed), "only what is committed is delivered", member_id=member_id, what=what)
        first = self.delivered.setdefault(position, what)
        expect(first == what, "every service is given the same", member_id=member_id, expected=first, actual=what)
        if position >= self.newest_position:
            expect(
                timestamp >= self.newest_time,
                "log time never goes backwards",
                member_id=member_id,
                position=position,
                timestamp=timestamp,
                before=self.newest_time,
            )
            self.newest_position, self.newest_time = position, timestamp
