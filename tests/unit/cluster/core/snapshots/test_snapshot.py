"""Snapshots in the core: who asks for one, what is in it, how it is recorded, and what comes of a loaded one."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.sessions.test_sessions import connect, lose_leadership
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.log.recording_log import RecordedSnapshot
from trimaran.cluster.core.snapshots.snapshot import decode_module_snapshot
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.messages import snapshot as wire
from trimaran.service_api import CloseReason, RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, TermId, TimeUnit
from trimaran.service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT,
    ClusterAction,
    ClusterActionRequest,
    SessionOpenEvent,
)
from trimaran.service_api.wire.log.recording_log import EntryType
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker

MIN_SERVICE_SESSION_ID = -(1 << 63)


def open_event(session_id: int, *, principal: bytes = b"") -> SessionOpenEvent:
    return SessionOpenEvent(
        leadership_term_id=TermId(0),
        correlation_id=CorrelationId(70 + session_id),
        cluster_session_id=ClusterSessionId(session_id),
        timestamp=5,
        response_stream_id=102,
        response_channel=f"client-{session_id}",
        encoded_principal=principal,
    )


def action(
    position: int, *, flags: int | None = 0, kind: ClusterAction = ClusterAction.SNAPSHOT
) -> ClusterActionRequest:
    return ClusterActionRequest(
        leadership_term_id=TermId(0), log_position=position, timestamp=9, action=kind, flags=flags
    )


def deliver_action(solo: Solo, event: ClusterActionRequest) -> tuple[bool, list[fx.Effect]]:
    stands_still = solo.module.on_replay_cluster_action(event, event.log_position)
    return stands_still, solo.take()


def take_snapshot(solo: Solo, position: int) -> fx.TakeSnapshot:
    stands_still, effects = deliver_action(solo, action(position))
    assert stands_still
    (effect,) = of(effects, fx.TakeSnapshot)
    return effect


def test_snapshot_holds_what_was_delivered_in_the_order_of_aeron() -> None:
    """Source: aeron.md §1.8, §3.10 step 4."""
    solo = Solo().lead()
    for session_id, end in ((2, 128), (1, 256)):
        solo.module.on_replay_session_open(open_event(session_id, principal=b"p"), end)
    solo.module.timers.schedule(31, 900)
    solo.module.timers.schedule(30, 800)
    solo.module.sessions.on_service_close(ClusterSessionId(2))

    effect = take_snapshot(solo, 512)

    assert effect.service_messages == (
        marker(2, SnapshotMark.BEGIN),
        *(client_session(session_id) for session_id in (1, 2)),
        marker(2, SnapshotMark.END),
    )
    assert effect.module_messages == (
        marker(1, SnapshotMark.BEGIN),
        module_state(next_session_id=3),
        wire.ClusterMembers(
            member_id=MemberId(-1),
            high_member_id=MemberId(2),
            cluster_members=solo.ctx.roster.current.encode_text(is_placed=True),
        ),
        cluster_session(1, 256, None),
        cluster_session(2, 128, CloseReason.SERVICE_ACTION),
        wire.Timer(correlation_id=CorrelationId(30), deadline=800),
        wire.Timer(correlation_id=CorrelationId(31), deadline=900),
        tracker(),
        marker(1, SnapshotMark.END),
    )


def test_snapshot_holds_nothing_that_the_leader_has_appended_and_not_delivered() -> None:
    """Only then is it the same on every member. Source: aeron.md §3.12; #1739."""
    leader, follower = Solo().lead(), Solo(terms=[(0, 0, 64)]).follow()
    for solo in (leader, follower):
        solo.module.on_replay_session_open(open_event(1), 32)
        solo.module.timers.schedule(30, 0)
    position = leader.ctx.log_buffer.append_position
    leader.feed(connect())
    assert leader.module.leader is not None
    session = leader.module.sessions.sessions[ClusterSessionId(1)]
    leader.module.sessions.close(session, CloseReason.TIMEOUT, leader.module.leader.publisher, "TIMEOUT")
    leader.module.timers.expired(10, limit=5)

    taken = [take_snapshot(solo, position) for solo in (leader, follower)]
    assert taken[0].module_messages == taken[1].module_messages
    assert taken[0].service_messages == taken[1].service_messages


def test_recording_log_has_the_module_last_and_is_durable_before_delivery_goes_on() -> None:
    """Source: aeron.md §3.10 step 5."""
    solo = Solo().lead()
    position = 512
    take_snapshot(solo, position)
    solo.ctx.recording_log.take_writes()

    effects = solo.feed(ev.SnapshotTaken(position, (4,), 5))

    assert effects[:2] == [fx.PersistRecordingLog(), fx.ResumeDelivery()]
    entries = [entry for entry in solo.ctx.recording_log.entries if entry.entry_type is EntryType.SNAPSHOT]
    by_place = sorted(entries, key=lambda entry: entry.entry_index)
    assert [(entry.service_id, entry.recording_id) for entry in by_place] == [(0, 4), (-1, 5)]
    assert {(entry.log_position, entry.leadership_term_id, entry.timestamp) for entry in entries} == {(position, 0, 9)}


def test_snapshot_that_failed_is_in_no_recording_log_and_the_log_goes_on() -> None:
    """Source: aeron.md §3.10, failure to take."""
    solo = Solo().lead()
    take_snapshot(solo, 512)

    effects = solo.feed(ev.SnapshotFailed(512, "a reason"))

    assert effects == [
        fx.ResumeDelivery(),
        fx.ModuleStateChanged(ModuleState.SNAPSHOT, ModuleState.ACTIVE, "a reason", 0),
    ]
    assert solo.ctx.recording_log.latest_snapshots(1) == ()


def test_snapshot_that_ends_in_an_election_is_recorded_all_the_same() -> None:
    solo = Solo().lead()
    take_snapshot(solo, 512)
    lose_leadership(solo)

    effects = solo.feed(ev.SnapshotTaken(512, (4,), 5))

    assert effects[:2] == [fx.PersistRecordingLog(), fx.ResumeDelivery()]
    assert solo.ctx.recording_log.latest_snapshots(1)[0].log_position == 512


def test_delivery_goes_on_once_while_a_captured_snapshot_is_recorded() -> None:
    solo = Solo().lead()
    take_snapshot(solo, 512)
    solo.ctx.recording_log.take_writes()

    captured = solo.feed(ev.SnapshotCaptured(512))
    taken = solo.feed(ev.SnapshotTaken(512, (4,), 5))

    assert captured == [fx.ResumeDelivery()]
    assert (taken[0], of(taken, fx.ResumeDelivery)) == (fx.PersistRecordingLog(), [])
    assert solo.ctx.recording_log.latest_snapshots(1)[0].log_position == 512


def test_second_snapshot_waits_at_its_position_until_the_first_one_is_recorded() -> None:
    solo = Solo().lead()
    take_snapshot(solo, 512)
    solo.feed(ev.SnapshotCaptured(512))
    solo.module.timers.schedule(30, 800)

    stands_still, effects = deliver_action(solo, action(1024))
    after_first = solo.feed(ev.SnapshotTaken(512, (4,), 5))
    (second,) = of(after_first, fx.TakeSnapshot)
    after_second = solo.feed(ev.SnapshotFailed(1024, "a reason"))

    assert (stands_still, of(effects, fx.TakeSnapshot)) == (True, [])
    assert second.log_position == 1024
    assert wire.Timer(correlation_id=CorrelationId(30), deadline=800) in second.module_messages
    assert of(after_first, fx.ResumeDelivery) == []
    assert of(after_second, fx.ResumeDelivery) == [fx.ResumeDelivery()]


def test_member_that_records_a_snapshot_is_suspended_and_stays_so_when_it_is_recorded() -> None:
    """Only another leader's SUSPEND can come meanwhile: this one appends none before its snapshot is there."""
    solo = Solo(terms=[(0, 0, 64)]).follow()
    take_snapshot(solo, 512)
    solo.feed(ev.SnapshotCaptured(512))

    deliver_action(solo, action(1024, kind=ClusterAction.SUSPEND))
    suspended = solo.module.actions.state
    solo.feed(ev.SnapshotTaken(512, (4,), 5))

    assert (suspended, solo.module.actions.state) == (ModuleState.SUSPENDED, ModuleState.SUSPENDED)


@pytest.mark.parametrize(
    "event",
    [action(512, flags=CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT), action(512, kind=ClusterAction.SUSPEND)],
    ids=["standby", "suspend"],
)
def test_actions_that_ask_a_member_for_no_snapshot_are_passed_by(event: ClusterActionRequest) -> None:
    stands_still, effects = deliver_action(Solo().lead(), event)

    assert (stands_still, of(effects, fx.TakeSnapshot)) == (False, [])


def test_replay_past_a_snapshot_that_is_there_takes_it_no_second_time() -> None:
    solo = Solo().lead()
    take_snapshot(solo, 512)
    solo.feed(ev.SnapshotTaken(512, (4,), 5))

    assert deliver_action(solo, action(512)) == (False, [])


def test_snapshot_of_a_leader_says_what_the_service_closed_though_the_client_closed_it_too() -> None:
    """Seed 44: the leader's snapshot differed from the followers', and a healthy leader was taken for a wrong one."""
    taken = []
    for is_closed_by_client in (False, True):
        solo = Solo().lead()
        solo.module.on_replay_session_open(open_event(2, principal=b"p"), 256)
        session = solo.module.sessions.sessions[ClusterSessionId(2)]
        solo.module.sessions.on_service_close(ClusterSessionId(2))
        if is_closed_by_client:
            leader = solo.module.leader
            assert leader is not None
            solo.module.sessions.close(session, CloseReason.CLIENT_ACTION, leader.publisher, "client")
        taken.append(take_snapshot(solo, 512).module_messages)

    assert taken[0] == taken[1]


def test_restored_module_is_the_one_that_was_recorded() -> None:
    """A member that starts from a snapshot takes the same next one, and has committed what it holds."""
    solo = Solo().lead()
    for session_id, end in ((1, 128), (2, 256)):
        solo.module.on_replay_session_open(open_event(session_id, principal=b"p"), end)
    solo.module.sessions.on_service_close(ClusterSessionId(2))
    solo.module.timers.schedule(30, 800)
    first = take_snapshot(solo, 512)
    clients = [message for message in first.service_messages if isinstance(message, wire.ClientSessionSnapshot)]

    other = Solo(terms=[(0, 0, 1024)], is_started=False)
    other.module.snapshots.restore(decode_module_snapshot(first.module_messages), clients, timestamp=9)
    other.start()

    assert (other.ctx.commit_position, other.ctx.cluster_clock.newest_time) == (512, 9)
    assert other.ctx.candidate_term_id == 0
    second = take_snapshot(other, 512)
    assert (second.service_messages, second.module_messages) == (first.service_messages, first.module_messages)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_module_snapshot_without_a_marker_or_its_state_is_none(missing: int) -> None:
    messages = [*take_snapshot(Solo().lead(), 512).module_messages]
    del messages[missing]

    with pytest.raises(RemoteProtocolError, match=r"marker missing|expected=1"):
        decode_module_snapshot(messages)


def test_recordings_of_an_invalid_set_go_when_it_is_taken_again() -> None:
    """The revived entries name the new recordings, and nothing would name the old ones. Source: aeron.md §5.2."""
    solo = Solo().lead()
    take_snapshot(solo, 512)
    solo.feed(ev.SnapshotTaken(512, (4,), 5))
    solo.ctx.recording_log.invalidate_latest_snapshot()
    take_snapshot(solo, 512)

    effects = solo.feed(ev.SnapshotTaken(512, (6,), 7))

    assert effects[:3] == [fx.PersistRecordingLog(), fx.PurgeArchive((4, 5), 0), fx.ResumeDelivery()]
    assert [entry.recording_id for entry in solo.ctx.recording_log.latest_snapshots(1)] == [7, 6]
    assert len([entry for entry in solo.ctx.recording_log.entries if entry.entry_type is EntryType.SNAPSHOT]) == 2


def test_incomplete_sets_are_taken_out_of_the_recording_log() -> None:
    solo = Solo().lead()
    log = solo.ctx.recording_log
    take_snapshot(solo, 512)
    solo.feed(ev.SnapshotTaken(512, (4,), 5))
    log.append_snapshot(
        RecordedSnapshot(
            recording_id=6,
            leadership_term_id=0,
            term_base_log_position=0,
            log_position=1024,
            timestamp=9,
            service_id=0,
        )
    )

    assert log.remove_incomplete_snapshots(1)
    assert not log.remove_incomplete_snapshots(1)
    assert {entry.recording_id for entry in log.entries if entry.entry_type is EntryType.SNAPSHOT} == {4, 5}


# --- what is expected


def marker(type_id: int, mark: SnapshotMark) -> SnapshotMarker:
    return SnapshotMarker(
        type_id=type_id,
        log_position=512,
        leadership_term_id=TermId(0),
        index=0,
        mark=mark,
        time_unit=TimeUnit.MILLIS,
        app_version=1,
    )


def client_session(session_id: int) -> wire.ClientSessionSnapshot:
    return wire.ClientSessionSnapshot(
        cluster_session_id=ClusterSessionId(session_id),
        response_stream_id=102,
        response_channel=f"client-{session_id}",
        encoded_principal=b"p",
    )


def cluster_session(session_id: int, opened: int, close_reason: CloseReason | None) -> wire.ClusterSessionSnapshot:
    return wire.ClusterSessionSnapshot(
        cluster_session_id=ClusterSessionId(session_id),
        correlation_id=CorrelationId(70 + session_id),
        opened_log_position=opened,
        time_of_last_activity=-1,
        close_reason=close_reason,
        response_stream_id=102,
        response_channel=f"client-{session_id}",
    )


def module_state(next_session_id: int) -> wire.ConsensusModuleSnapshot:
    return wire.ConsensusModuleSnapshot(
        next_session_id=next_session_id,
        next_service_session_id=MIN_SERVICE_SESSION_ID + 1,
        log_service_session_id=MIN_SERVICE_SESSION_ID,
        pending_message_capacity=0,
    )


def tracker() -> wire.PendingMessageTracker:
    return wire.PendingMessageTracker(
        next_service_session_id=MIN_SERVICE_SESSION_ID + 1,
        log_service_session_id=MIN_SERVICE_SESSION_ID,
        pending_message_capacity=0,
        service_id=0,
    )


def test_a_state_that_cannot_be_encoded_is_a_failed_snapshot_and_the_log_goes_on() -> None:
    """A deadline of half a millisecond ended every member at the next snapshot, and again at each start."""
    solo = Solo().lead()
    solo.module.timers.schedule(1, 1000.5)  # type: ignore[arg-type]  # what the service API refuses today

    stands_still, effects = deliver_action(solo, action(512))

    assert not stands_still
    assert of(effects, fx.TakeSnapshot) == []
    assert solo.module.actions.state is ModuleState.ACTIVE
    solo.module.timers.schedule(1, 1000)
    assert take_snapshot(solo, 1024).log_position == 1024
