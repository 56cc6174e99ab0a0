"""Snapshots of standbys in the core: who takes them, what a member notes and when, and what the leader tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.cluster.core.rosters import configured
from tests.unit.cluster.core.solo import Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.log.retention import RetentionPolicy
from trimaran.cluster.core.vocabulary.configuration import Configuration, MemberKind
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.messages.backup import StandbySnapshot, StandbySnapshotRecording
from trimaran.service_api.types import CorrelationId, MemberId, RecordingId, TermId
from trimaran.service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT,
    ClusterAction,
    ClusterActionRequest,
)
from trimaran.service_api.wire.log.recording_log import EntryType

STANDBY = MemberId(3)
OTHER_STANDBY = MemberId(4)
END = 640
"""Where the log of a member ends that follows."""


def with_standbys(solo: Solo, *, me: MemberKind = MemberKind.VOTER) -> Solo:
    """Have the log say that members 3 and 4 are standbys, and the links to them be up."""
    members = (configured(0, me), *(configured(each) for each in (1, 2)))
    standbys = tuple(configured(each, MemberKind.STANDBY) for each in (STANDBY, OTHER_STANDBY))
    solo.ctx.roster.history.append(Configuration(members=(*members, *standbys), high_member_id=4, log_position=2))
    solo.ctx.roster.refresh()
    for member_id in (STANDBY, OTHER_STANDBY):
        solo.feed(ev.LinkChanged(member_id, is_up=True))
    solo.ctx.recording_log.take_writes()
    return solo


def follower() -> Solo:
    solo = with_standbys(Solo(terms=[(0, 0, END)], retention=RetentionPolicy()).follow())
    solo.ctx.commit_position = END
    return solo


def standby() -> Solo:
    return with_standbys(Solo(terms=[(0, 0, END)]).follow(), me=MemberKind.STANDBY)


def action(position: int) -> ClusterActionRequest:
    return ClusterActionRequest(
        leadership_term_id=TermId(0),
        log_position=position,
        timestamp=9,
        action=ClusterAction.SNAPSHOT,
        flags=CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT,
    )


def offer(
    position: int,
    *,
    sender: MemberId = STANDBY,
    timestamp: int = 9,
    term_base: int = 0,
    term_id: int = 0,
    service_ids: tuple[int, ...] = (0, -1),
) -> ev.StandbySaid:
    recordings = tuple(
        StandbySnapshotRecording(
            recording_id=RecordingId(7 + service_id),
            leadership_term_id=TermId(term_id),
            term_base_log_position=term_base,
            log_position=position,
            timestamp=timestamp,
            service_id=service_id,
            archive_endpoint="elsewhere:1",
        )
        for service_id in service_ids
    )
    message = StandbySnapshot(
        correlation_id=CorrelationId(position), version=0, response_stream_id=0, snapshots=recordings
    )
    return ev.StandbySaid(sender, message)


def deliver(solo: Solo, position: int) -> tuple[bool, list[fx.Effect]]:
    stands_still = solo.module.on_replay_cluster_action(action(position), position)
    return stands_still, solo.take()


def noted(solo: Solo, kind: EntryType = EntryType.STANDBY_SNAPSHOT) -> list[tuple[int, int, int]]:
    """Position, service and recording of the snapshots in the recording log."""
    entries = (each for each in solo.ctx.recording_log.entries if each.entry_type is kind)
    return [(each.log_position, each.service_id, each.recording_id) for each in entries]


# --- who takes it


def test_member_passes_over_the_action_and_a_standby_stands_still_for_it() -> None:
    """Source: Aeron ClusterTest.shouldNotSnapshotOnPrimaryClusterWhenStandbySnapshotIsRequested."""
    stands_still, effects = deliver(follower(), 320)
    assert (stands_still, of(effects, fx.TakeSnapshot)) == (False, [])

    solo = standby()
    stands_still, effects = deliver(solo, 320)

    assert stands_still
    assert [effect.log_position for effect in of(effects, fx.TakeSnapshot)] == [320]
    assert solo.module.actions.state is ModuleState.SNAPSHOT


def test_witness_takes_its_own_which_costs_nothing_so_that_it_can_let_old_log_go() -> None:
    solo = Solo(terms=[(0, 0, END)], service_count=0).follow()

    stands_still, effects = deliver(solo, 320)

    assert (stands_still, len(of(effects, fx.TakeSnapshot))) == (True, 1)


def test_standby_offers_its_snapshot_to_every_other_member_once_it_is_durable() -> None:
    solo = standby()
    deliver(solo, 320)

    effects = solo.feed(ev.SnapshotTaken(320, (4,), 5))

    persisted = effects.index(fx.PersistRecordingLog())
    sent = [index for index, effect in enumerate(effects) if isinstance(effect, fx.SendToMember)]
    assert persisted < min(sent)
    for member_id in (1, 2, OTHER_STANDBY):
        (said,) = messages(effects, StandbySnapshot, to=member_id)
        assert [(one.log_position, one.service_id, one.recording_id) for one in said.snapshots] == [
            (320, -1, 5),
            (320, 0, 4),
        ]
        assert {one.archive_endpoint for one in said.snapshots} == {"host0:9004"}


def test_standby_offers_it_again_to_a_member_that_comes_back_and_now_and_then() -> None:
    solo = standby()
    deliver(solo, 320)
    solo.feed(ev.SnapshotTaken(320, (4,), 5))

    solo.feed(ev.LinkChanged(MemberId(1), is_up=False))
    assert len(messages(solo.feed(ev.LinkChanged(MemberId(1), is_up=True)), StandbySnapshot, to=1)) == 1

    solo.now_ns += 6_000_000_000
    solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
    assert len(messages(solo.take(), StandbySnapshot, to=2)) == 1


def test_standby_says_that_it_could_not_take_one() -> None:
    solo = standby()
    deliver(solo, 320)

    (said,) = messages(solo.feed(ev.SnapshotFailed(320, "the service failed")), StandbySnapshot, to=1)

    assert (said.correlation_id, said.snapshots) == (320, ())


# --- what a member notes, and when


def test_member_notes_an_offer_durably_and_copies_it() -> None:
    """Source: Aeron ConsensusModuleAgentTest.shouldProcessPendingStandbySnapshotNotificationsAfterReachingCommit..."""
    solo = follower()
    deliver(solo, 320)

    effects = solo.feed(offer(320))

    assert noted(solo) == [(320, 0, 7), (320, -1, 6)]
    assert list(solo.ctx.recording_log.latest_standby_snapshots(1)) == ["host3:9004"]
    (fetch,) = of(effects, fx.FetchStandbySnapshot)
    assert effects.index(fx.PersistRecordingLog()) < effects.index(fetch)
    assert (fetch.member_id, [one.recording_id for one in fetch.snapshots]) == (STANDBY, [7, 6])


def test_offer_ahead_of_what_this_member_has_delivered_waits_until_it_has() -> None:
    """What was not delivered here may not be committed, and the log up to there may never come."""
    solo = follower()

    assert of(solo.feed(offer(320)), fx.FetchStandbySnapshot) == []
    assert noted(solo) == []

    effects = deliver(solo, 320)[1]
    assert len(of(effects, fx.FetchStandbySnapshot)) == 1
    assert noted(solo) == [(320, 0, 7), (320, -1, 6)]


def test_offer_ahead_of_the_commit_position_is_not_noted() -> None:
    solo = follower()
    solo.ctx.commit_position = 288
    deliver(solo, 320)

    assert of(solo.feed(offer(320)), fx.FetchStandbySnapshot) == []
    assert noted(solo) == []


@pytest.mark.parametrize(
    "wrong",
    [
        offer(352),
        offer(320, timestamp=10),
        offer(320, term_base=32),
        offer(320, term_id=1),
        offer(320, service_ids=(0,)),
        offer(320, service_ids=(0, 1, -1)),
        offer(320, service_ids=(0, 0, -1)),
    ],
    ids=["no action there", "another time", "another base", "another term", "no module", "too many", "twice"],
)
def test_offer_that_is_not_of_a_delivered_action_is_not_noted(wrong: ev.StandbySaid) -> None:
    solo = follower()
    deliver(solo, 320)

    assert of(solo.feed(wrong), fx.FetchStandbySnapshot) == []
    assert noted(solo) == []


def test_offer_of_a_member_that_is_no_standby_is_refused() -> None:
    solo = follower()
    deliver(solo, 320)

    (refused,) = of(solo.feed(offer(320, sender=MemberId(2))), fx.MessageRefused)

    assert refused == fx.MessageRefused(MemberId(2), "StandbySnapshot", "member_id=2 is a voter")
    assert noted(solo) == []


def test_copy_counts_as_a_snapshot_of_its_own_and_lets_old_ones_go() -> None:
    solo = follower()
    for position, ids in ((128, (20, 21)), (256, (22, 23)), (320, (24, 25))):
        deliver(solo, position)
        solo.feed(offer(position))
        effects = solo.feed(ev.StandbySnapshotFetched(position, ids[:1], ids[1]))
        assert effects[0] == fx.PersistRecordingLog()

    assert noted(solo, EntryType.SNAPSHOT) == [(256, 0, 22), (256, -1, 23), (320, 0, 24), (320, -1, 25)]
    assert of(solo.effects, fx.PurgeArchive) == [fx.PurgeArchive((21, 20), 0)]
    assert len(noted(solo)) == 2  # the newest offer takes the place of the one before


def test_copy_that_comes_after_a_newer_snapshot_of_its_own_is_removed() -> None:
    solo = follower()
    deliver(solo, 320)
    solo.feed(offer(320))
    own = ClusterActionRequest(
        leadership_term_id=TermId(0), log_position=352, timestamp=9, action=ClusterAction.SNAPSHOT, flags=0
    )
    assert solo.module.on_replay_cluster_action(own, 352)
    solo.feed(ev.SnapshotTaken(352, (30,), 31))

    effects = solo.feed(ev.StandbySnapshotFetched(320, (24,), 25))

    assert effects == [fx.PurgeArchive((25, 24), 0)]
    assert noted(solo, EntryType.SNAPSHOT) == [(352, 0, 30), (352, -1, 31)]


def test_copy_that_fails_is_had_from_another_standby_and_tried_again_later() -> None:
    """Source: Aeron StandbySnapshotReplicatorTest.shouldSwitchEndpointsOnMultipleReplicationException."""
    solo = follower()
    deliver(solo, 320)
    (first,) = of(solo.feed(offer(320), offer(320, sender=OTHER_STANDBY)), fx.FetchStandbySnapshot)

    (second,) = of(solo.feed(ev.StandbySnapshotFetchFailed("gone")), fx.FetchStandbySnapshot)
    assert (first.member_id, second.member_id) == (STANDBY, OTHER_STANDBY)

    assert of(solo.feed(ev.StandbySnapshotFetchFailed("gone, too")), fx.FetchStandbySnapshot) == []
    solo.ctx.time_of_last_leader_ns = solo.now_ns + 5_000_000_000
    assert [effect.member_id for effect in of(solo.wait(1_500_000_000), fx.FetchStandbySnapshot)] == [STANDBY]


def test_member_that_ended_after_it_noted_an_offer_copies_it_when_it_starts() -> None:
    before = follower()
    deliver(before, 320)
    before.feed(offer(320))
    solo = Solo(terms=[(0, 0, END)], is_started=False)
    solo.ctx.recording_log = before.ctx.recording_log
    solo.ctx.commit_position = END
    with_roster = before.ctx.roster.current
    solo.ctx.roster.history.append(replace(with_roster, log_position=3))
    solo.ctx.roster.refresh()

    solo.start()
    solo.wait(1)

    (fetch,) = of(solo.effects, fx.FetchStandbySnapshot)
    assert (fetch.member_id, fetch.snapshots[0].log_position) == (STANDBY, 320)


# --- the leader


def leader() -> Solo:
    """A leader in whose term standby 3 takes part."""
    solo = with_standbys(Solo().lead())
    standby_3 = solo.ctx.members[STANDBY]
    standby_3.append_leadership_term_id = solo.ctx.leadership_term_id
    standby_3.time_of_last_append_ns = solo.now_ns
    return solo


def ask(solo: Solo) -> list[tuple[ActionStep, str]]:
    solo.take()
    solo.effects.clear()
    solo.feed(ev.ActionRequested(7, ControlToggle.STANDBY_SNAPSHOT))
    return told(solo)


def told(solo: Solo) -> list[tuple[ActionStep, str]]:
    return [(each.step, each.detail) for each in of(solo.effects, fx.ActionProgressed)]


def test_leader_is_done_once_it_has_a_copy_and_other_actions_do_not_wait_for_it() -> None:
    solo = leader()
    assert [step for step, _ in ask(solo)] == [ActionStep.APPENDED]
    position = solo.ctx.log_buffer.append_position
    solo.ctx.commit_position = position
    event = replace_position(solo, position)
    solo.module.actions.on_commit(position)
    solo.module.on_replay_cluster_action(event, position)

    assert solo.module.actions.toggle is ControlToggle.NEUTRAL
    assert solo.module.actions.find_refusal(ControlToggle.SNAPSHOT) is None
    assert "a standby takes a snapshot already" in (
        solo.module.actions.find_refusal(ControlToggle.STANDBY_SNAPSHOT) or ""
    )
    base = solo.ctx.recording_log.entries[-1].term_base_log_position
    solo.feed(offer(position, timestamp=event.timestamp, term_base=base, term_id=event.leadership_term_id))
    solo.feed(ev.StandbySnapshotFetched(position, (24,), 25))

    assert [step for step, _ in told(solo)] == [ActionStep.APPENDED, ActionStep.COMMITTED, ActionStep.DONE]


def replace_position(solo: Solo, position: int) -> ClusterActionRequest:
    event = action(position)
    return event.model_copy(update={"leadership_term_id": solo.ctx.leadership_term_id})


def test_leader_tells_that_the_standby_could_not_take_it() -> None:
    solo = leader()
    ask(solo)
    position = solo.ctx.log_buffer.append_position
    solo.module.on_replay_cluster_action(replace_position(solo, position), position)

    solo.feed(offer(position, service_ids=()))

    assert told(solo)[-1] == (ActionStep.FAILED, "standby 3 took no snapshot: see its log")


def test_leader_refuses_where_no_standby_takes_part() -> None:
    solo = with_standbys(Solo().lead())

    ((step, detail),) = ask(solo)

    assert step is ActionStep.REFUSED
    assert "members [3, 4]" in detail


def test_leader_does_not_wait_for_a_standby_that_left() -> None:
    solo = leader()
    ask(solo)
    position = solo.ctx.log_buffer.append_position
    solo.module.on_replay_cluster_action(replace_position(solo, position), position)

    solo.feed(ev.LinkChanged(STANDBY, is_up=False))
    solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
    solo.take()

    assert told(solo)[-1][0] is ActionStep.FAILED
