"""Changes of the members: what the leader takes and refuses, what counts when, and who stops.

Source: Raft dissertation, chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.facts import has_facts
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.roles.test_actions import appended, commit, details, steps
from tests.unit.cluster.core.rosters import configured, roster
from tests.unit.cluster.core.solo import Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.membership.membership_control import has_log
from trimaran.cluster.core.vocabulary.configuration import (
    Configuration,
    ConfigurationCause,
    ConfigurationHistory,
    MemberKind,
    decode_text,
)
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.messages.consensus import CommitPosition, RequestVote
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.log.messages import MembershipChangeEvent

A, C = ActionStep, MemberChangeKind
ADD = MemberChange(C.ADD, None, configured(3).endpoints)


def new(**settings: object) -> Solo:
    """A member whose frames are long enough for configurations."""
    return Solo(mtu_length_bytes=1408, **settings)  # type: ignore[arg-type]


def lead() -> Solo:
    """A leader whose first entry is committed."""
    solo = new().lead()
    commit(solo)
    return solo


def change(solo: Solo, wanted: MemberChange) -> list[fx.Effect]:
    return solo.feed(ev.ActionRequested(1, ControlToggle.CHANGE_MEMBERS, change=wanted))


def settle(solo: Solo, *others: int) -> list[fx.Effect]:
    """Let everything that is appended be recorded here, and by these others."""
    position = solo.ctx.log_buffer.append_position
    return solo.record() + solo.feed(*(solo.append_position(each, position) for each in others))


def test_until_a_move_is_committed_the_member_may_be_where_it_was() -> None:
    solo = lead()
    settle(solo, 1, 2)
    before = solo.ctx.roster.current.find(MemberId(1))
    elsewhere = configured(7).endpoints
    assert before is not None

    change(solo, MemberChange(C.MOVE, 1, elsewhere))

    assert solo.ctx.roster.address_of(MemberId(1)).endpoints == elsewhere
    assert solo.ctx.roster.former_address_of(MemberId(1)) == before
    assert solo.ctx.roster.former_address_of(MemberId(2)) is None
    settle(solo, 2)
    assert solo.ctx.roster.former_address_of(MemberId(1)) is None


def test_members_of_a_restored_cluster_are_not_looked_for_where_the_old_ones_were() -> None:
    """The old cluster may run there: three restored members heard of its id, and found no leader."""
    solo = lead()
    moved = tuple(
        replace(one, endpoints=configured(7 + one.member_id).endpoints) for one in solo.ctx.roster.current.members
    )
    made = replace(solo.ctx.roster.current, members=moved, cause=ConfigurationCause.RECOVER, log_position=640)

    solo.ctx.roster.history.append(made)
    solo.ctx.roster.refresh()

    assert solo.ctx.roster.former_address_of(MemberId(1)) is None


def with_learner() -> Solo:
    """A leader of three voters and of member 3, a learner that has the log."""
    solo = lead()
    change(solo, ADD)
    settle(solo, 1)
    solo.feed(ev.LinkChanged(MemberId(3), is_up=True))
    settle(solo, 3)
    solo.feed(ev.LiveJoined(MemberId(3), solo.ctx.log_buffer.append_position))
    return solo


def newer(solo: Solo, *ids: int) -> Configuration:
    """A configuration after all that this member knows."""
    members = tuple(configured(each) for each in ids)
    position = solo.ctx.log_buffer.append_position + 320
    return Configuration(members=members, high_member_id=max(*ids, 3), log_position=position)


def test_change_is_an_entry_and_counts_from_then_on() -> None:
    solo = lead()

    effects = change(solo, ADD)

    (event,) = appended(solo)
    assert isinstance(event, MembershipChangeEvent)
    position = solo.ctx.log_buffer.append_position
    assert (event.log_position, event.cluster_size, event.member_id) == (position, 4, 3)
    assert decode_text(event.cluster_members, position) == solo.ctx.roster.current
    assert steps(effects) == [(A.APPENDED, position, False)]
    assert details(effects) == ["members 0, 1, 2 become 0, 1, 2, 3 (learner)"]
    assert of(effects, fx.RosterChanged)
    assert [*solo.ctx.members] == [0, 1, 2, 3]
    assert solo.ctx.roster.current.voter_ids == {0, 1, 2}

    done = settle(solo, 1)

    assert steps(done) == [(A.COMMITTED, position, False), (A.DONE, position, True)]
    assert [each.configuration for each in of(done, fx.ConfigurationCommitted)] == [solo.ctx.roster.current]


def test_cluster_that_forms_writes_down_who_it_is_of() -> None:
    solo = new(is_started=False)
    solo.ctx.roster.history.start_from(roster(0, 3, is_formed=False).current)
    solo.start()

    solo.lead()

    _, event = appended(solo)
    assert isinstance(event, MembershipChangeEvent)
    formed = solo.ctx.roster.current
    assert (formed.cause, formed.describe(), formed.log_position) == (
        ConfigurationCause.FORM,
        "0, 1, 2",
        solo.ctx.log_buffer.append_position,
    )
    assert all(member.is_as_formed for member in formed.members)


def test_no_change_before_an_entry_of_the_own_term_is_committed() -> None:
    """Ongaro, raft-dev 2015: a change that an older leader left may come back, and then two majorities have no member
    in common.
    """
    solo = new(terms=[(0, 0, 64)]).lead()
    assert solo.ctx.commit_position == 64

    refused = change(solo, ADD)

    assert steps(refused) == [(A.REFUSED, None, True)]
    assert "committed nothing" in details(refused)[0]
    commit(solo)
    assert steps(change(solo, ADD))[0][0] is A.APPENDED


def test_no_change_while_one_is_not_committed() -> None:
    """Also not one that an earlier leader appended."""
    solo = lead()
    change(solo, ADD)

    assert steps(change(solo, MemberChange(C.REMOVE, 2))) == [(A.REFUSED, None, True)]

    other = lead()
    position = other.ctx.log_buffer.append_position
    other.ctx.roster.history.append(replace(newer(other, 0, 1, 2, 3), log_position=position + 32))
    refused = change(other, MemberChange(C.REMOVE, 2))
    assert "not committed yet" in details(refused)[0]


def test_learner_counts_nowhere() -> None:
    solo = with_learner()
    before = solo.ctx.commit_position
    solo.module.membership.request(MemberChange(C.MOVE, 2, configured(5).endpoints))

    settle(solo, 3)
    assert solo.ctx.commit_position == before
    settle(solo, 1)
    assert solo.ctx.commit_position > before


def test_promoted_learner_counts_from_its_entry_on() -> None:
    """Three of four from then on: the leader, one old member and the new one, or two old ones."""
    solo = with_learner()
    before = solo.ctx.commit_position

    effects = change(solo, MemberChange(C.PROMOTE, 3))
    assert steps(effects)[0][0] is A.APPENDED
    settle(solo, 1)
    assert solo.ctx.commit_position == before
    settle(solo, 1, 3)

    assert solo.ctx.commit_position == solo.ctx.log_buffer.append_position
    assert solo.ctx.roster.current.voter_ids == {0, 1, 2, 3}


def test_learner_that_is_near_and_has_not_joined_the_live_log_is_not_promoted() -> None:
    """It says where it is before it says that it catches up: with a short log that is near."""
    solo = lead()
    change(solo, ADD)
    settle(solo, 1)
    solo.feed(ev.LinkChanged(MemberId(3), is_up=True))
    settle(solo, 3)
    learner = solo.ctx.members[MemberId(3)]
    assert not has_log(solo.ctx, learner)

    refused = change(solo, MemberChange(C.PROMOTE, 3))

    assert "member_id=3 " in details(refused)[0]
    solo.feed(ev.LiveJoined(MemberId(3), solo.ctx.log_buffer.append_position))
    assert has_log(solo.ctx, learner)


def test_what_would_leave_no_majority_is_refused() -> None:
    """Of three, one is down: without another one, the two that are left would need both."""
    solo = lead()
    solo.wait(solo.ctx.config.leader_heartbeat_timeout_ns // 2)
    solo.feed(solo.append_position(1, solo.ctx.append_position))
    solo.wait(solo.ctx.config.leader_heartbeat_timeout_ns // 2 + 30 * MS)

    refused = change(solo, MemberChange(C.REMOVE, 1))
    assert "members [2]" in details(refused)[0]
    assert steps(change(solo, MemberChange(C.REMOVE, 2)))[0][0] is A.APPENDED


def test_move_that_the_others_cannot_commit_without_the_moved_is_refused() -> None:
    """From the entry on it is dialled elsewhere, and nobody listens there yet: of two, the other would be alone."""
    solo = lead()
    settle(solo, 1, 2)
    refused = change(solo, MemberChange(C.MOVE, 0, configured(7).endpoints))
    assert "member_id=0 leads" in details(refused)[0]
    change(solo, MemberChange(C.REMOVE, 2))
    settle(solo, 1)

    refused = change(solo, MemberChange(C.MOVE, 1, configured(7).endpoints))

    assert has_facts(details(refused)[0], "voters [0, 1]", "members [1]", "replace it")


def test_removed_member_counts_no_more_and_hears_that_it_is_committed() -> None:
    solo = with_learner()
    change(solo, MemberChange(C.REMOVE, 2))
    assert 2 in solo.ctx.members
    assert solo.ctx.roster.current.voter_ids == {0, 1}

    settle(solo, 2)
    assert solo.ctx.commit_position < solo.ctx.roster.current.log_position
    settle(solo, 1)
    assert solo.ctx.commit_position == solo.ctx.roster.current.log_position
    told = solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)
    assert solo.ctx.commit_position in [m.log_position for m in messages(told, CommitPosition, to=2)]

    solo.feed(ev.LinkChanged(MemberId(2), is_up=False))
    solo.wait(solo.ctx.config.leader_heartbeat_interval_ns)
    assert 2 not in solo.ctx.members


def test_follower_that_is_removed_stops_when_that_is_committed() -> None:
    solo = Solo(terms=[(0, 0, 64)]).follow()
    solo.ctx.roster.history.append(replace(newer(solo, 1, 2), log_position=96))

    solo.feed(ev.Recorded(96))
    early = solo.feed(solo.commit(1, 64))
    late = solo.feed(solo.commit(1, 96))

    assert of(early, fx.Terminate) == []
    assert len(of(late, fx.MemberRemoved)) == len(of(late, fx.Terminate)) == 1


def test_leader_that_removes_itself_counts_nowhere_and_stops_in_the_end() -> None:
    solo = lead()
    settle(solo, 1, 2)
    change(solo, MemberChange(C.REMOVE, 0))
    before = solo.ctx.commit_position

    settle(solo, 1)
    assert solo.ctx.commit_position == before
    early = settle(solo, 1, 2)
    assert solo.ctx.commit_position == solo.ctx.roster.current.log_position
    assert of(early, fx.Terminate) == []

    late: list[fx.Effect] = []
    for _ in range(30):
        late += solo.wait(20 * MS)
        late += solo.feed(*(solo.append_position(each, solo.ctx.append_position) for each in (1, 2)))
    assert len(of(late, fx.Terminate)) == 1


def test_leader_that_has_removed_itself_and_loses_its_term_stops_and_does_not_stand() -> None:
    """It knows that the removal is committed: nobody needs to tell it."""
    solo = lead()
    settle(solo, 1, 2)
    change(solo, MemberChange(C.REMOVE, 0))
    settle(solo, 1, 2)
    candidate_term_id = solo.ctx.candidate_term_id

    effects = solo.wait(solo.ctx.config.leader_heartbeat_timeout_ns + 30 * MS)  # nobody answers any more
    effects += solo.wait(10 * solo.ctx.config.leader_heartbeat_timeout_ns)

    assert len(of(effects, fx.Terminate)) == 1
    assert messages(effects, RequestVote) == []
    assert solo.ctx.candidate_term_id == candidate_term_id


@pytest.mark.parametrize("removed_id", [0, 2])
def test_farewell_of_one_change_does_not_end_the_next_one_before_it_is_committed(removed_id: int) -> None:
    """The leader stopped, or spoke no more to the member, by a removal that perhaps nobody else had."""
    solo = with_learner()
    before = solo.ctx.log_buffer.append_position
    solo.feed(solo.append_position(2, before))
    assert steps(change(solo, MemberChange(C.REMOVE, removed_id)))[0][0] is A.APPENDED

    effects: list[fx.Effect] = []
    for _ in range(30):
        effects += solo.wait(20 * MS)
        effects += solo.feed(*(solo.append_position(each, before) for each in (1, 2, 3)))

    assert solo.ctx.commit_position == before
    assert of(effects, fx.Terminate) == []
    assert removed_id in solo.ctx.members


def test_uncommitted_change_is_undone_with_its_entry() -> None:
    """Raft dissertation 4.1: a member goes back to the configuration before."""
    solo = Solo(terms=[(0, 0, 64)]).follow()
    solo.ctx.roster.history.append(replace(newer(solo, 0, 1, 2, 3), log_position=96))
    solo.feed(ev.Recorded(96))
    assert solo.ctx.roster.current.voter_ids == {0, 1, 2, 3}

    solo.ctx.roster.history.truncate(64)
    solo.feed(solo.commit(1, 64))

    assert solo.ctx.roster.current.voter_ids == {0, 1, 2}
    assert [*solo.ctx.members] == [0, 1, 2]


def test_learner_never_stands() -> None:
    solo = Solo(terms=[(0, 0, 64)], is_started=False)
    members = (*(configured(each) for each in (1, 2)), replace(configured(0), kind=MemberKind.LEARNER))
    solo.ctx.roster.history.start_from(
        Configuration(members=tuple(sorted(members, key=lambda m: m.member_id)), high_member_id=2, log_position=64)
    )
    solo.start()

    effects = solo.feed(solo.canvass(1, 0, 32), solo.canvass(2, 0, 32)) + solo.wait(10_000 * MS)

    assert messages(effects, RequestVote) == []
    assert solo.ctx.candidate_term_id == 0


@pytest.mark.parametrize("member_count", [1, 3])
def test_member_whose_log_cannot_be_searched_counts_no_quorum(member_count: int) -> None:
    """It may go by members of long ago: also one that was alone then would lead by itself."""
    solo = Solo(member_count=member_count, terms=[(0, 0, 96)], is_started=False)
    solo.ctx.roster.history.note_unread(32, 96)
    solo.start()

    effects = solo.wait(10 * solo.ctx.config.startup_canvass_timeout_ns)

    assert solo.is_in(ElectionState.CANVASS)
    assert of(effects, fx.PersistCandidateTerm) == []
    assert messages(effects, RequestVote) == []
    assert "members_unknown" in [refused.reason.name for refused in of(solo.effects, fx.NominationRefused)]


@pytest.mark.parametrize(
    ("mend", "is_complete"),
    [
        (lambda history: history.note_delivered(95), False),
        (lambda history: history.note_delivered(96), True),
        (lambda history: history.truncate(64), False),
        (lambda history: (history.truncate(64), history.note_delivered(64)), True),
        (lambda history: history.truncate(32), True),
        (lambda history: history.append(replace(history.current, log_position=96)), False),
        (lambda history: history.append(replace(history.current, log_position=416)), True),
    ],
)
def test_members_are_known_again_once_the_log_is(
    mend: Callable[[ConfigurationHistory], object], is_complete: bool
) -> None:
    """By delivery to the old end, by a newer configuration after it, or when the part is cut off."""
    history = roster(0, 3).history
    history.note_unread(32, 96)

    mend(history)

    assert history.is_complete == is_complete


def test_member_whose_removal_is_not_committed_may_stand() -> None:
    """Raft dissertation 4.2.2: perhaps it alone has the entry, and the others cannot win without it."""
    solo = Solo(terms=[(0, 0, 64)], is_started=False)
    solo.ctx.roster.history.append(replace(newer(solo, 1, 2), log_position=64))
    solo.start()

    solo.feed(solo.canvass(1, 0, 32), solo.canvass(2, 0, 32))
    asked = solo.wait(solo.ctx.config.election_timeout_ns)

    assert messages(asked, RequestVote)


def test_newer_members_are_dialled_and_heard_and_do_not_count() -> None:
    solo = Solo(terms=[(0, 0, 64)])
    heard = newer(solo, 0, 1, 2, 3)

    effects = solo.feed(ev.MembersHeard(heard, is_trusted=True))

    assert of(effects, fx.RosterChanged)
    assert [*solo.ctx.members] == [0, 1, 2, 3]
    assert solo.ctx.roster.current.voter_ids == {0, 1, 2}
    assert solo.ctx.roster.ingress_endpoints.endswith(",3=host3:9000")


@pytest.mark.parametrize("is_trusted", [True, False])
def test_member_that_hears_that_it_is_none_stops_only_if_a_member_says_so(is_trusted: bool) -> None:
    solo = Solo(terms=[(0, 0, 64)])

    effects = solo.feed(ev.MembersHeard(newer(solo, 1, 2), is_trusted=is_trusted))

    assert len(of(effects, fx.Terminate)) == is_trusted


def test_member_that_has_just_come_in_does_not_stop_for_members_of_its_log_that_are_old() -> None:
    """Its log ends long before it was added, and so does what a member says that is slow to learn."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.ctx.roster.history.append(replace(newer(solo, 1, 2), log_position=64))
    solo.ctx.roster.hear(replace(newer(solo, 0, 1, 2), log_position=640))

    old = replace(newer(solo, 1, 2), log_position=64)
    assert of(solo.feed(ev.MembersHeard(old, is_trusted=True)), fx.Terminate) == []
