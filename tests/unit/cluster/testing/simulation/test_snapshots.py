"""Snapshots of a real cluster on simulated machines: taken, survived, refused, and never half there.

The referee watches every one of these: a service that loads a snapshot must be what every service was at its position,
and what is delivered after it must lead to the same state as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, Counter, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.runtime.answering.status import describe_status
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.repair.at_start import WAIT_S
from trimaran.cluster.runtime.snapshots.snapshot_taker import SMALL_STATE_BYTES
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member
from trimaran.cluster.testing.simulation.kept_log import complete_snapshot_positions
from trimaran.service_api import ClientSession, Cluster, ClusterError, SnapshotImage, SnapshotPublication
from trimaran.service_api.wire.log.recording_log import RecordingLogEntry

CLUSTER_DIRECTORY = DIRECTORY / "cluster"


class Keeper(Counter):
    """Keeps what it is given, sets a timer with each message, and has all of it in its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[str] = []
        self.fired: list[int] = []
        self.can_take = True
        self.cluster: Cluster

    def state_hash(self) -> bytes:
        return json.dumps([self.payloads, self.fired]).encode()

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            data = b"".join([message async for message in snapshot])
            self.payloads, self.fired = json.loads(data)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.payloads.append(bytes(payload).decode())
        self.cluster.schedule_timer(len(self.payloads), timestamp + 3_000)
        session.offer(bytes(payload))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.fired.append(correlation_id)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        data = self.state_hash()
        for begin in range(0, len(data), 1_000):
            await snapshot.offer(data[begin : begin + 1_000])
        if not self.can_take:
            raise ValueError("as expected")


class Yielder(Keeper):
    """Yields its state, more than is set aside without a copy, so that delivery goes on meanwhile."""

    def snapshot_messages(self) -> Iterator[bytes]:
        yield self.state_hash()
        for number in range(SMALL_STATE_BYTES // 5_000 + 50):
            yield bytes([number % 251]) * 5_000

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            messages = [message async for message in snapshot]
            self.payloads, self.fired = json.loads(messages[0])


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with small_cluster(make_service=Keeper) as made:
        made.start()
        made.send(20)
        yield made


def ask(small: SmallCluster) -> None:
    """Ask the leader for a snapshot."""
    leader = small.leader
    assert leader.node is not None
    assert leader.machine.loop is not None
    leader.machine.loop.call_soon(leader.node.agent.post, ev.ActionRequested(0, ControlToggle.SNAPSHOT))


def take(small: SmallCluster) -> int:
    """Let every member take a snapshot; give its position."""
    before = {member.member_id: newest(member) for member in small.cluster.running()}
    ask(small)
    small.wait(lambda: all(newest(member) != before[member.member_id] for member in small.cluster.running()))
    small.wait(small.is_at_rest)
    return newest_position(small.leader)


@contextmanager
def cluster_with_snapshot(*, message_count: int) -> Iterator[SmallCluster]:
    """Make a cluster of three that has a log of some segments, and a snapshot at its end."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(message_count, length=400)
        take(small)
        small.send(5)
        yield small


def newest(member: Member) -> RecordingLogEntry | None:
    """The entry of the newest complete snapshot, by what is durable."""
    data = member.machine.disk.durable_read(CLUSTER_DIRECTORY / "recording.log", 1 << 20, 0)
    found = RecordingLog.parse(data).latest_snapshots(1)
    return found[0] if found else None


def newest_position(member: Member) -> int:
    """The position of the newest complete snapshot; -1 if there is none."""
    entry = newest(member)
    return -1 if entry is None else entry.log_position


def restart(small: SmallCluster, *members: Member) -> None:
    """Kill members and start them again; wait until everybody has everything."""
    for member in members:
        small.cluster.kill(member.member_id)
    for member in members:
        small.cluster.start(member.member_id)
    small.wait(lambda: small.cluster.leader() is not None and small.is_at_rest())


def recordings(member: Member) -> set[int]:
    """Recordings that have files."""
    names = member.machine.disk.list_directory(DIRECTORY / "archive")
    return {int(name.split("-")[0]) for name in names if name.endswith(".rec")}


def damage(member: Member, recording_id: int, position: int) -> None:
    """Flip a bit of a recording."""
    path = DIRECTORY / "archive" / f"{recording_id}-0.rec"
    (byte,) = member.machine.disk.durable_read(path, 1, position)
    member.machine.disk.damage(path, position, bytes([byte ^ 4]))


def invalidate(member: Member) -> None:
    """Do what `trimaran snapshot invalidate` does."""
    file = RecordingLogFile.open(CLUSTER_DIRECTORY, file_system=member.machine.disk)
    assert file.recording_log.invalidate_latest_snapshot()
    file.persist()
    file.close()


def test_cluster_that_starts_again_goes_on_from_its_snapshots(small: SmallCluster) -> None:
    position = take(small)
    small.send(7)

    restart(small, *small.cluster.members.values())
    small.send(3)

    assert small.referee.counts.loaded_snapshots == 3
    assert len(small.answers) == 30
    for member in small.cluster.members.values():
        assert member.node is not None
        assert newest_position(member) == position
        assert len(member.node.module.sessions.sessions) == 0


def test_timers_of_a_snapshot_fire_once(small: SmallCluster) -> None:
    take(small)
    restart(small, *small.cluster.members.values())

    small.cluster.run_for(5 * SECOND)

    assert small.referee.counts.by_kind["timer"] == 20
    for member in small.cluster.members.values():
        assert service_of(member).fired == [*range(1, 21)]


def take_while_clients_send(small: SmallCluster) -> set[int]:
    """Have a snapshot taken between messages; return the members that delivered some while they wrote theirs."""
    small.start()
    small.send(20)
    small.cluster.add_client("held", lambda: small._client("held", 300, 8))
    small.wait(lambda: len(small.answers) > 30)
    went_on: set[int] = set()

    def look() -> bool:
        for member in small.cluster.members.values():
            assert member.node is not None
            snapshots = member.node.module.snapshots
            if snapshots.is_taking and member.node.service_agent.log_position > snapshots.taking_position:
                went_on.add(member.member_id)
        return len(small.answers) == 320 and all(newest(each) for each in small.cluster.running())

    ask(small)
    small.wait(look)
    small.wait(small.is_at_rest)
    return went_on


def test_what_is_delivered_while_a_state_is_written_that_was_set_aside_is_not_in_the_snapshot() -> None:
    """The referee compares what is loaded with the state at the snapshot's position."""
    with small_cluster(make_service=Yielder) as small:
        went_on = take_while_clients_send(small)
        restart(small, *small.cluster.members.values())

        assert went_on == {0, 1, 2}
        assert small.referee.counts.loaded_snapshots == 3
        assert {len(service_of(member).payloads) for member in small.cluster.members.values()} == {320}


def test_a_member_that_may_not_copy_its_process_delivers_nothing_while_it_writes_a_large_state() -> None:
    """`snapshot_copies_process`: the same cluster and service as above, and one member has it off."""
    with small_cluster(make_service=Yielder) as small:
        member = small.member(1)
        member.config = member.config.model_copy(update={"snapshot_copies_process": False})

        assert take_while_clients_send(small) == {0, 2}


def service_of(member: Member) -> Keeper:
    assert member.node is not None
    service = member.node.service_agent.service
    keeper = getattr(service, "service", service)
    assert isinstance(keeper, Keeper)
    return keeper


def test_newest_of_several_snapshots_is_loaded_also_across_terms(small: SmallCluster) -> None:
    """The recording log has terms before and after; the term that is voted in does not go back."""
    take(small)
    restart(small, *small.cluster.members.values())
    small.send(5)
    second = take(small)
    small.send(5)
    follower = small.follower
    assert follower.node is not None
    term_id = follower.node.module.ctx.candidate_term_id

    restart(small, follower)

    assert follower.node is not None
    assert newest_position(follower) == second
    assert follower.node.module.ctx.candidate_term_id >= term_id
    restart(small, *small.cluster.members.values())
    small.send(2)
    assert small.referee.counts.loaded_snapshots == 7


def test_service_that_fails_costs_its_member_the_snapshot_and_nothing_else(small: SmallCluster) -> None:
    """Source: aeron.md §3.10, failure to take."""
    follower = small.follower
    service_of(follower).can_take = False
    others = [member for member in small.cluster.members.values() if member is not follower]

    ask(small)
    small.wait(lambda: all(newest(member) is not None for member in others))
    small.send(5)

    assert newest(follower) is None
    assert recordings(follower) == {0}
    assert follower.refusal is None
    restart(small, follower)


def test_service_that_writes_no_snapshots_has_none_and_loses_nothing() -> None:
    """Were its snapshot an empty one, the next start would begin with nothing."""
    with small_cluster() as small:  # with a service that has state and no on_take_snapshot
        small.start()
        small.send(5)
        ask(small)
        small.cluster.run_for(SECOND)
        small.send(5)

        assert [newest(member) for member in small.cluster.members.values()] == [None, None, None]
        restart(small, *small.cluster.members.values())
        small.send(1)
        assert small.referee.counts.loaded_snapshots == 0


SCHEDULED = replace(QUICK, snapshot_log_bytes=8_000, keep_all=False, keep_snapshots=2, segment_length_bytes=64 << 10)


def test_untended_cluster_keeps_its_log_short_and_starts_from_a_snapshot() -> None:
    """Nobody asks for a snapshot. The load goes on while a leader is killed; each member keeps two sets."""
    with small_cluster(settings=SCHEDULED, make_service=Keeper) as small:
        small.start()
        for _ in range(7):
            small.send(40, length=500)
            small.cluster.run_for(12 * SECOND)  # what a snapshot took, nine times, is the rest between two
        leader = small.leader
        restart(small, leader)
        for _ in range(3):
            small.send(40, length=500)
            small.cluster.run_for(12 * SECOND)

        for member in small.cluster.members.values():
            assert member.node is not None
            assert member.node.module.snapshots.log_after_newest_bytes < 40_000
            assert len(complete_snapshot_positions(member.machine.disk)) == 2
            assert member.node.log_start_position > 0
        restart(small, *small.cluster.members.values())
        assert small.referee.counts.loaded_snapshots >= 3


def test_service_that_writes_no_snapshots_is_not_asked_for_any() -> None:
    with small_cluster(settings=SCHEDULED) as small:
        small.start()
        small.send(80, length=500)
        small.cluster.run_for(60 * SECOND)

        for member in small.cluster.members.values():
            assert member.node is not None
            assert member.node.parts.answers.vitals.counts.snapshots.failed == 0
            assert describe_status(member.node.parts.answers.vitals).snapshotless_services == ["ObservedService"]


@pytest.mark.parametrize("recording_id", [1, 2], ids=["service", "module"])
@pytest.mark.parametrize("position", [45, 150, 400])
def test_snapshot_damaged_everywhere_is_refused_and_the_one_before_it_works(
    small: SmallCluster, recording_id: int, position: int
) -> None:
    first = take(small)
    small.send(5)
    second = take(small)
    follower = small.follower
    small.cluster.kill(follower.member_id)
    for member in small.cluster.members.values():
        damage(member, recording_id + 2, position)

    before = small.referee.counts.loaded_snapshots
    start_refused(small, follower)
    assert small.referee.counts.loaded_snapshots == before
    invalidate(follower)
    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.node is not None and follower.node.module.follower is not None)
    small.wait(small.is_at_rest)
    assert small.referee.counts.loaded_snapshots == before + 1
    # The replay takes the newer one again, in its place.
    small.wait(lambda: newest_position(follower) == second)
    assert second > first


def test_snapshot_whose_recording_is_gone_everywhere_is_refused_and_the_one_before_it_works(
    small: SmallCluster,
) -> None:
    """ClusterTest.shouldInvalidateSnapshotsThatHaveBeenRemoved; here an operator does that, not the member."""
    take(small)
    small.send(5)
    second = take(small)
    follower = small.follower
    small.cluster.kill(follower.member_id)
    for member in small.cluster.members.values():
        member.machine.disk.remove(DIRECTORY / "archive" / "3-0.rec")

    start_refused(small, follower)
    invalidate(follower)
    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.node is not None and follower.node.module.follower is not None)
    small.wait(lambda: newest_position(follower) == second)


def start_refused(small: SmallCluster, member: Member) -> None:
    """Start a member that cannot load its snapshot, nor have it mended; it says in a line what to do."""
    small.cluster.start(member.member_id)
    small.wait(lambda: member.refusal is not None, limit_ns=2 * int(WAIT_S * SECOND))

    assert isinstance(member.refusal, ClusterError)
    assert "not mended" in str(member.refusal)
    assert "run `trimaran snapshot invalidate /trimaran`" in str(member.refusal)
    assert len(str(member.refusal).splitlines()) == 1


@pytest.mark.parametrize("recording_id", [1, 2], ids=["service", "module"])
@pytest.mark.parametrize("position", [45, 150, 400, None], ids=["45", "150", "400", "gone"])
def test_snapshot_that_others_have_is_mended_and_loaded(
    small: SmallCluster, recording_id: int, position: int | None
) -> None:
    take(small)
    small.send(5)
    second = take(small)
    follower = small.follower
    path = DIRECTORY / "archive" / f"{recording_id + 2}-0.rec"
    whole = follower.machine.disk.durable_read(path, 1 << 16, 0)
    small.cluster.kill(follower.member_id)
    if position is None:
        follower.machine.disk.remove(path)
    else:
        damage(follower, recording_id + 2, position)

    before = small.referee.counts.loaded_snapshots
    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.node is not None and follower.node.module.follower is not None)
    small.wait(small.is_at_rest)

    assert follower.refusal is None
    assert small.referee.counts.loaded_snapshots == before + 1
    assert newest_position(follower) == second
    assert follower.machine.disk.durable_read(path, 1 << 16, 0) == whole


EVERY_THIRD = [range(first, 1_000, 3) for first in range(3)]


@pytest.mark.parametrize(
    ("is_power", "numbers"),
    sampled(
        product([False, True], EVERY_THIRD), {*product([False, True], EVERY_THIRD)} - {*enumerate(EVERY_THIRD[:2])}
    ),
)
def test_crash_at_any_operation_of_the_disk_leaves_a_whole_snapshot_or_none(*, is_power: bool, numbers: range) -> None:
    last = next(number for number in numbers if not crash_at(number, is_power=is_power))

    assert last > 20


def crash_at(number: int, *, is_power: bool) -> bool:
    """Let a follower crash at one operation of its disk while it takes a snapshot; False when there are no more."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(3)
        follower = small.follower
        remaining = number

        def stop(name: str, path: object, length: int) -> None:
            nonlocal remaining
            if isinstance(path, Path) and path.name.startswith("0-"):
                return
            remaining -= 1
            if remaining == -1:
                if is_power:
                    small.cluster.lose_power(follower.member_id, lambda: number % 2 == 0)
                else:
                    small.cluster.kill(follower.member_id)
            if remaining < 0:
                raise OSError(5, "the process has ended")

        follower.machine.on_disk_operation = stop
        ask(small)
        small.cluster.run_for(SECOND // 5)
        follower.machine.on_disk_operation = lambda name, path, length: None
        has_crashed = not follower.is_running
        if has_crashed:
            small.cluster.start(follower.member_id)
            small.wait(lambda: follower.node is not None and small.is_at_rest())
        small.send(2)
        # If it was not there, it was taken in the replay.
        small.wait(lambda: newest_position(follower) == newest_position(small.leader) > 0)
        restart(small, follower)
        assert len(recordings(follower)) == 3, recordings(follower)
        return has_crashed


def test_member_with_no_snapshot_replays_and_takes_the_snapshots_on_its_way(small: SmallCluster) -> None:
    position = take(small)
    follower = small.follower
    small.cluster.kill(follower.member_id)
    small.cluster.wipe(follower.member_id)
    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.node is not None and small.is_at_rest())

    small.wait(lambda: newest_position(follower) == position)


def test_log_that_ends_before_the_snapshot_is_refused_while_the_others_are_no_majority(small: SmallCluster) -> None:
    """A snapshot is never the excuse for a log that was lost."""
    take(small)
    follower = small.follower
    for member in small.cluster.running():
        small.cluster.kill(member.member_id)
    lose_log(follower.machine.disk)
    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.refusal is not None, limit_ns=60 * SECOND)

    assert "the newest snapshot" in str(follower.refusal)


def lose_log(disk: MemoryFileSystem) -> None:
    path = DIRECTORY / "archive" / "0-0.rec"
    length = len(disk.durable_read(path, 1 << 20, 0))
    disk.damage(path, 1_024, bytes(length - 1_024))


def test_take_snapshot_of_the_node_gives_the_position_when_it_is_durable(small: SmallCluster) -> None:
    taken: list[object] = []

    async def ask_node(member: Member) -> None:
        assert member.node is not None
        try:
            taken.append(await member.node.take_snapshot())
        except ClusterError as error:
            taken.append(str(error))

    def start_asking(member: Member) -> None:
        assert member.machine.loop is not None
        member.machine.loop.create_task(ask_node(member))

    for member in (small.leader, small.follower):
        loop = member.machine.loop
        assert loop is not None
        loop.call_soon(start_asking, member)
        small.wait(lambda: bool(taken))
        result = taken.pop()
        if member is small.leader:
            entry = newest(member)
            assert entry is not None
            assert result == entry.log_position
        else:
            assert str(result).startswith(f"not the leader: leader_member_id={small.leader.member_id}")
