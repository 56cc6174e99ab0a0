"""The rules of changes of the members, checked on the committed log, on disks, and on whom members count.

The referee knows the members at each position by itself, from the log. What a member takes for the members is its
claim: it is held against the log once that is committed, and until then it may only be what follows next.

Source: Raft dissertation, chapter 4; `core/membership/configuration`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from .....service_api.types import MemberId, TermId
from ....core.vocabulary.configuration import Configuration, ConfigurationCause, find_configurations
from ..cluster import Member
from ..member_disks import MemberDisks
from ..world.expect import expect


class MembershipRules:
    """Who the members of one cluster were and are."""

    def __init__(self, disks: MemberDisks) -> None:
        self._disks = disks
        self._committed: list[Configuration] = []
        self._proposed: list[Configuration] = []
        """Configurations that a member has, or had, in its log, and nobody has called committed."""
        self._seen: dict[MemberId, Configuration] = {}
        """What each member took for the members when it was last looked at."""
        self.on_changed: Callable[[], None] = lambda: None
        """Told when other members are committed."""
        self._agreed: dict[MemberId, tuple[Configuration, Configuration]] = {}

    def __repr__(self) -> str:
        return f"<MembershipRules {self._committed[-1:]} proposed={self._proposed}>"

    def start(self, founding: Configuration) -> None:
        """The cluster begins with these members."""
        self._committed = [founding]

    @property
    def current(self) -> Configuration:
        """The newest configuration that any member has called committed."""
        return self._committed[-1]

    def is_removed(self, member_id: int) -> bool:
        """Whether a member was one, and is none any more."""
        return self.current.find(member_id) is None and any(each.find(member_id) for each in self._committed)

    def is_barred(self, member_id: int) -> bool:
        """Whether a member is none and can never be one: it was removed, or a higher id has come in before it."""
        return self.current.find(member_id) is None and member_id <= self.current.high_member_id

    def proposed_place(self, member_id: int) -> tuple[str, str, str, str, str] | None:
        """Where a member would be, were the newest change that has it elsewhere committed."""
        for each in reversed(self.possible()):
            found = each.find(member_id)
            if found is not None:
                return found.endpoints
        return None

    def possible(self) -> list[Configuration]:
        """The newest committed configuration, and those that may be it already, or come to be it."""
        current = self.current
        return [current, *(each for each in self._proposed if each.previous_log_position == current.log_position)]

    # --- what members do

    def look(self, member: Member) -> None:
        """Look at what a member takes for the members; cheap when that has not changed."""
        assert member.node is not None
        module = member.node.module
        ctx, claimed = module.ctx, module.ctx.roster.current
        if self._seen.get(member.member_id) is claimed:
            return
        self._seen[member.member_id] = claimed
        if claimed.log_position > self.current.log_position and claimed not in self._proposed:
            self._proposed.append(claimed)
        is_own = module.leader is not None and claimed.log_position > ctx.term_base_log_position
        if not is_own or claimed.cause is ConfigurationCause.FORM:
            return
        expect(
            claimed.previous_log_position <= ctx.commit_position,
            "a change of the members waits until the one before is committed",
            member=member.member_id,
            change=claimed,
            previous=claimed.previous_log_position,
            commit_position=ctx.commit_position,
        )
        expect(
            ctx.commit_position > ctx.term_base_log_position,
            "a change of the members waits until its leader has committed an entry of its own term",
            member=member.member_id,
            change=claimed,
            term_base=ctx.term_base_log_position,
            commit_position=ctx.commit_position,
        )

    def expect_majority(self, member: Member, since: int, data: bytes, holder_ids: Collection[MemberId]) -> None:
        """A member calls a part of the log committed, first of all: those that have it must be a majority of voters.

        Of the voters in force where the part ends; of those that come next, once they are in the log of its leader.
        """
        assert member.node is not None
        module, position = member.node.module, since + len(data)
        in_force = [self.current, *find_configurations(data, since)][-1]
        claimed = module.ctx.roster.current
        counted = [in_force]
        is_next = claimed.log_position > position and claimed.previous_log_position == in_force.log_position
        if is_next and len(claimed.voter_ids ^ in_force.voter_ids) <= 1:
            # One that has just been appended may have come before or after the count.
            is_settled = module.leader is not None and self._seen.get(member.member_id) is claimed
            counted = [claimed] if is_settled else [in_force, claimed]
        expect(
            any(_is_majority(holder_ids, each) for each in counted),  # the product's own count may have a bug
            "what is committed is durable on a majority",
            by=member.member_id,
            since=since,
            position=position,
            holders=sorted(holder_ids),
            members=[each.describe() for each in counted],
        )

    def on_committed(self, data: bytes, since: int) -> None:
        """A part of the log is committed: what it says of the members must follow from what was."""
        for found in find_configurations(data, since):
            before = self.current
            expect(
                found.previous_log_position == before.log_position and len(found.voter_ids ^ before.voter_ids) <= 1,
                "two configurations that follow each other differ in one voter",
                before=before,
                now=found,
                previous=found.previous_log_position,
            )
            for one in found.members:
                expect(
                    before.find(one.member_id) is not None
                    or (one.member_id > before.high_member_id and one.kind.is_promotable),
                    "a new member is a learner or a standby, with an id that no member had before",
                    member=one,
                    high_member_id=before.high_member_id,
                )
            expect(
                found.high_member_id == max(before.high_member_id, *(one.member_id for one in found.members)),
                "the highest id is remembered",
                before=before.high_member_id,
                now=found.high_member_id,
            )
            self._committed.append(found)
            self._proposed = [each for each in self._proposed if each.log_position > found.log_position]
            self.on_changed()

    def expect_known(self, member: Member, position: int) -> None:
        """A member has everything up to a position, and calls it committed: it must know the members there."""
        assert member.node is not None
        known = member.node.module.ctx.roster.history.committed(position)
        expected = next(each for each in reversed(self._committed) if each.log_position <= position)
        if known.log_position > position or not expected.log_position:
            return  # its log begins with a later one, or says nothing yet: then it is what settings or others say
        agreed = self._agreed.get(member.member_id)
        if agreed is not None and agreed[0] is known and agreed[1] is expected:
            return
        expect(
            known.log_position == expected.log_position and _told(known) == _told(expected),
            "all members know the same members at the same position",
            member=member.member_id,
            position=position,
            expected=expected,
            actual=known,
        )
        self._agreed[member.member_id] = known, expected

    # --- elections

    def expect_may_stand(self, member: Member, held_position: int) -> None:
        """A member asks for votes: its log must have it as a voter, or not say for sure that it is none any more."""
        assert member.node is not None
        ctx = member.node.module.ctx
        newest = self._expect_counted(member, held_position, ctx.append_position, "a member that stands is a voter")
        expect(
            newest.find(member.member_id) is not None or newest.log_position > ctx.commit_position,
            "a member that knows that it was removed does not stand",
            member=member.member_id,
            members=newest,
            commit_position=ctx.commit_position,
        )

    def expect_elected(
        self,
        member: Member,
        held_position: int,
        voted_for: Callable[[MemberId, TermId], MemberId | None],
    ) -> None:
        """A member leads: a voter by the log that it has won with, and with the votes of a majority of that."""
        assert member.node is not None
        ctx = member.node.module.ctx
        end = min(ctx.term_base_log_position, ctx.append_position)
        newest = self._expect_counted(member, held_position, end, "a leader is a voter")
        term_id = ctx.leadership_term_id
        votes = {one for one in newest.voter_ids if voted_for(one, term_id) == member.member_id}
        expect(
            _is_majority(votes | {member.member_id}, newest),
            "a leader has the votes of a majority of its members",
            member=member.member_id,
            term=term_id,
            votes=sorted(votes),
            members=newest.describe(),
        )

    def _expect_counted(self, member: Member, held_position: int, end: int, rule: str) -> Configuration:
        """Read the newest configuration up to a position of a member's log; the member must be a voter in it.

        Or in the one before, if the newest removes it: perhaps nobody else has that yet.
        """
        newest, before = self._newest_on_disk(member, held_position, end)
        mine = newest.find(member.member_id) or (None if before is None else before.find(member.member_id))
        expect(
            mine is not None and mine.kind.votes,
            rule,
            member=member.member_id,
            newest=newest,
            before=before,
            end=end,
        )
        return newest

    def _newest_on_disk(
        self, member: Member, held_position: int, end: int
    ) -> tuple[Configuration, Configuration | None]:
        begin = min(max(held_position, self._disks.kept_log(member).start_position), end)
        found = [each for each in self._committed if each.log_position <= begin]
        found += find_configurations(self._disks.durable_log(member, begin, end), begin)
        return found[-1], found[-2] if len(found) > 1 else None


def _is_majority(member_ids: Collection[MemberId], configuration: Configuration) -> bool:
    voter_ids = configuration.voter_ids
    return 2 * len(voter_ids & set(member_ids)) > len(voter_ids)


def _told(configuration: Configuration) -> list[tuple[object, ...]]:
    return [(one.member_id, one.kind, one.endpoints) for one in configuration.members]
