"""What a member does with its log: on a real archive in memory, on real loopback sockets where two ends are needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.archive.served import serving
from tests.unit.archive.streams import failing, read_all
from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.runtime.fake_transport import receive
from tests.unit.cluster.runtime.log_member import ONE, SESSION, TERM_LENGTH, Member, at, member
from tests.waiting import until, within
from trimaran.archive import ArchiveError
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.store.cold_segments import ColdStanding
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.turns import log_replication
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import STATUS_STREAM_ID, MemberId, RecordingId, TermId
from trimaran.service_api.wire.link_frames import SetupFrame


@asynccontextmanager
async def served_log(
    member_id: int = 1, *, start_position: int = 0, damaged_at: int | None = None
) -> AsyncIterator[tuple[bytes, ConfiguredMember]]:
    """The log of a leader, 400 messages from `start_position` on, and where its archive gives it out."""
    async with member(start_position=start_position) as leader:
        log = leader.append(400)
        leader.control.flush()
        if damaged_at is not None:
            leader.disk.damage(leader.archive.directory / "0-0.rec", damaged_at, b"?")
        async with serving(leader.archive, authorisation=ReadOnly()) as server:
            yield log, at(server.endpoint, member_id)


async def copy_up_to(me: Member, position: int) -> None:
    """Copy the log from the leader's archive, and return when the core was told that it is done."""
    me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), position, ONE))
    await until(lambda: me.posted[-1:] == [ev.ReplicationDone(position)])


# --- writing


async def test_flush_records_what_was_appended_and_tells_how_far() -> None:
    async with member() as me:
        log = me.append(10)

        me.control.flush()
        me.control.flush()

        assert me.recorded == [len(log)]
        assert read_all(me.archive) == log


async def test_disk_that_refuses_a_write_is_told_with_its_reason() -> None:
    """Source: peers.md C4 classes 3, 4 and 33."""
    async with member() as me:
        me.append(1)
        me.disk.on_operation = failing(OSError(28, "No space left on device"), "pwrite")

        with pytest.raises(ArchiveError, match="No space left"):
            me.control.flush()

        assert [str(error) for error in me.failures] == [str(me.failures[0])]
        assert "No space left" in str(me.failures[0])
        assert me.recorded == []


async def test_disk_that_refuses_a_sync_is_told_and_nothing_counts_as_recorded() -> None:
    """A failed sync is never retried: the kernel may have dropped the pages. Source: peers.md C4 class 4."""
    async with member() as me:
        me.append(1)
        me.disk.on_operation = failing(OSError(5, "Input/output error"), "sync")

        me.control.flush()
        me.disk.on_operation = None
        me.append(1)
        with pytest.raises(ArchiveError, match="Input/output error"):
            me.control.flush()

        assert len(me.failures) == 1
        assert me.recorded == []


async def test_candidate_term_is_on_the_disk_when_persisting_returns() -> None:
    """Source: aeron.md §2.8."""
    async with member() as me:
        await me.control.persist_candidate_term(fx.PersistCandidateTerm(5, 0, 0))

        me.disk.crash()
        assert NodeStateFile.open(Path("/cluster"), file_system=me.disk).candidate_term_id == 5


async def test_recording_log_is_on_the_disk_when_persisting_returns() -> None:
    async with member() as me:
        me.ctx.begin_log_term(TermId(0), 0)

        await me.control.persist_recording_log()

        me.disk.crash()
        reopened = RecordingLogFile.open(Path("/cluster"), file_system=me.disk)
        assert reopened.recording_log.term_entry(0) is not None


# --- stopping and cutting


async def test_stop_records_what_was_not_flushed_and_gives_where_the_log_ends() -> None:
    async with member() as me:
        log = me.append(3)

        position = await me.control.stop()

        assert position == len(log)
        assert me.recorded[-1:] == [len(log)]
        assert read_all(me.archive) == log


async def test_truncated_log_goes_on_where_it_was_cut() -> None:
    async with member() as me:
        log = me.append(10)
        await me.control.stop()

        await me.control.truncate(64 * 4)
        more = me.append(2)
        me.control.flush()

        assert read_all(me.archive) == log[: 64 * 4] + more
        assert me.recorded[-1] == 64 * 6


async def test_what_is_copied_is_in_the_window_and_stays_when_the_copy_is_stopped_in_the_middle() -> None:
    """It is delivered from there, and the next round goes on where this one was stopped."""
    async with served_log() as (log, leader), member(leader) as me:
        me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), len(log) + 640, ONE))
        await until(lambda: me.recorded[-1:] == [len(log)])
        assert b"".join(me.ctx.log_buffer.chunks_from(0)) == log
        assert me.control._recording.is_copy

        position = await me.control.stop()

        assert not me.control._recording.is_copy
        assert position == me.ctx.log_buffer.append_position == len(log)
        assert me.posted == []
        assert read_all(me.archive) == log


async def test_copied_term_is_told_once_it_is_durable() -> None:
    async with served_log() as (log, leader), member(leader) as me:
        await copy_up_to(me, 64 * 100)

        assert me.posted == [ev.ReplicationDone(64 * 100)]
        assert me.ctx.log_buffer.append_position == me.recorded[-1] == 64 * 100
        assert read_all(me.archive) == log[: 64 * 100]


async def test_copy_leaves_no_more_in_the_window_than_that_keeps_and_is_not_recorded() -> None:
    """Also where nothing of it is known to be committed: a long copy would fill the memory."""
    async with served_log() as (log, leader), member(leader, retained_bytes=640) as me:
        for end_position in range(6400, len(log) + 1, 6400):
            await copy_up_to(me, end_position)

        window = me.ctx.log_buffer
        assert me.ctx.commit_position == 0
        assert len(log) - window.base_position <= 2 * 6400
        assert b"".join(window.chunks_from(window.base_position)) == log[window.base_position :]


async def test_copy_of_what_the_leader_has_purged_is_told_with_where_its_log_begins() -> None:
    async with served_log(start_position=64 * 100) as (_, leader), member(leader) as me:
        me.append(10)
        me.control.flush()
        me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), 64 * 200, ONE))
        await until(lambda: me.posted)

        assert me.posted == [ev.BelowOldestSegment(640, 64 * 100)]


@pytest.mark.parametrize(
    ("start_position", "expected"),
    [
        pytest.param(64 * 100, ev.BelowOldestSegment(64 * 9, 64 * 100), id="the third has purged it"),
        pytest.param(0, ev.ReplicationDone(64 * 200), id="the third has it"),
    ],
)
async def test_what_the_leader_cannot_read_is_asked_of_the_others_or_calls_for_a_snapshot(
    start_position: int, expected: object
) -> None:
    """Seed 1198: the third had purged it, and the member asked both for ever."""
    status = member_status(2, append=64 * 500).model_copy(update={"log_recording_id": 0})
    async with (
        served_log(damaged_at=64 * 9 + 40) as (_, leader),
        served_log(2, start_position=start_position) as (_, third),
    ):
        with FakeMember(2, {STATUS_STREAM_ID: status}) as answering:
            ingress, _, log, catchup, archive = third.endpoints
            third = replace(third, endpoints=(ingress, answering.members.split(",")[2], log, catchup, archive))
            async with member(leader, third=third) as me:
                me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), 64 * 200, ONE))
                await until(lambda: me.posted)

    assert me.posted == [expected]


async def test_source_is_asked_how_it_is_once_also_with_cold_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def ask(endpoint: str, *args: object, **named: object) -> MemberStatus:
        asked.append(endpoint)
        return member_status(2, append=64 * 500, commit=64 * 500).model_copy(update={"log_recording_id": 0})

    monkeypatch.setattr(log_replication, "query_status", ask)
    async with served_log() as (_, leader), served_log(2) as (log, third), member(leader, third=third) as me:
        me.archive.cold_standing = ColdStanding()
        me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), 64 * 200, MemberId(2)))
        await until(lambda: me.posted)

        assert me.posted == [ev.ReplicationDone(64 * 200)]
        assert read_all(me.archive) == log[: 64 * 200]
    assert asked == [third.consensus]


async def test_copy_that_cannot_be_made_is_told() -> None:
    async with member() as me:
        me.control.start_replication(fx.StartLogReplication(ONE, RecordingId(0), 640, ONE))

        await until(lambda: me.posted)

        (failed,) = me.events(ev.ActivityFailed)
        assert "replication from member 1" in failed.reason


async def test_closing_closes_the_links_also_when_the_disk_has_failed() -> None:
    """The error that stopped the node is the one that is told."""
    async with member() as me:
        await me.control.start(Endpoint("127.0.0.1", 0), Endpoint("127.0.0.1", 0), gate=ConnectionGate())
        _, transport = me.connect(me.control._live)
        me.disk.on_operation = failing(OSError(28, "No space left on device"), "pwrite")
        me.append(1)

        with pytest.raises(ArchiveError, match="No space left"):
            await me.control.aclose()

        for listener in (me.control._live._listener, me.control._catchup._listener):
            assert listener is not None
            with pytest.raises(ConnectionRefusedError):
                await SOCKETS.dial_streams(Purpose.LOG, listener.endpoint)
        assert transport.is_aborted


async def test_member_that_is_stopped_while_it_cuts_its_log_back_ends_in_order() -> None:
    """The cut is finished first: an orderly stop is no error, and the next start finds a whole log."""
    async with member() as me:
        log = me.append(10)
        await me.control.stop()
        truncation = asyncio.get_running_loop().create_task(me.control.truncate(64 * 4))
        await asyncio.sleep(0)

        await me.control.aclose()
        await truncation

        assert me.archive.descriptor(0).stop_position == 64 * 4
        assert read_all(me.archive) == log[: 64 * 4]


async def test_closed_log_has_its_stop_position() -> None:
    async with member() as me:
        log = me.append(3)

        await me.control.aclose()

        assert me.archive.descriptor(0).stop_position == len(log)


# --- following


async def test_live_log_is_joined_at_the_append_position_when_it_connects() -> None:
    async with member() as me:
        me.control.join_log(fx.JoinLiveLog(SESSION))
        assert me.posted == []

        me.connect(me.control._live)

        assert me.posted == [ev.LogJoined(SESSION)]


async def test_live_log_that_waits_is_joined_when_it_is_asked_for() -> None:
    """A link that connects while the member is in INIT waits."""
    async with member() as me:
        _, transport = me.connect(me.control._live)
        await me.control.stop()
        assert not transport.is_aborted

        me.control.join_log(fx.JoinLiveLog(SESSION))

        assert me.posted == [ev.LogJoined(SESSION)]
        assert transport.is_reading()


async def test_received_frames_are_recorded_at_once() -> None:
    async with member() as leader, member() as me:
        log = leader.append(5)
        image, _ = me.connect(me.control._live)
        me.control.join_log(fx.JoinLiveLog(SESSION))

        receive(image, log)

        assert me.recorded == [len(log)]
        assert read_all(me.archive) == log


async def test_disk_that_refuses_received_frames_is_told() -> None:
    async with member() as leader, member() as me:
        log = leader.append(5)
        image, _ = me.connect(me.control._live)
        me.control.join_log(fx.JoinLiveLog(SESSION))
        me.disk.on_operation = failing(OSError(28, "No space left on device"), "pwrite")

        receive(image, log)

        assert me.failures
        assert all("No space left" in str(error) for error in me.failures)


async def test_stream_laid_out_differently_is_refused() -> None:
    """Its positions would mean other bytes."""
    async with member() as me:
        me.control.join_log(fx.JoinLiveLog(SESSION))

        _, transport = me.connect(me.control._live, term_length_bytes=2 * TERM_LENGTH)

        assert transport.is_aborted
        assert [type(event) for event in me.posted] == [ev.ActivityFailed]


async def test_catchup_that_ends_before_the_live_log_is_joined_is_a_failure() -> None:
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        image, _ = me.connect(me.control._catchup)

        image.connection_lost(None)

        assert me.posted == [
            ev.CatchupImageAvailable(SESSION),
            ev.ActivityFailed("catch-up link closed: connection closed"),
        ]


async def test_catchup_that_begins_after_the_end_of_this_log_is_told() -> None:
    """The leader has purged what lies between."""
    async with member() as me:
        log = me.append(10)
        me.control.flush()
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))

        _, transport = me.connect(me.control._catchup, position=6400)

        assert me.posted == [ev.BelowOldestSegment(len(log), 6400)]
        assert transport.is_aborted


async def test_catchup_that_ends_after_the_live_log_is_joined_is_no_news() -> None:
    """The live log brings everything from the join on.

    1. The leader sees that the follower has joined, ends the replay and sends StopCatchup.
    2. The end of the catch-up link and StopCatchup come on two connections; under load the end is often seen first.
    3. The follower took it for a failure, and began its election and its catch-up again.
    """
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        catchup, _ = me.connect(me.control._catchup)
        live, _ = me.connect(me.control._live)
        me.control.join_log(fx.JoinLiveLog(SESSION))

        catchup.connection_lost(None)
        assert me.posted == [ev.CatchupImageAvailable(SESSION), ev.LogJoined(SESSION)]
        live.connection_lost(None)

        assert me.posted[2:] == [ev.LogImageClosed(SESSION, "connection closed")]


async def test_the_end_of_a_catchup_that_is_followed_is_told_as_that_of_the_live_log() -> None:
    """A standby that follows another one stays on the replay."""
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        catchup, _ = me.connect(me.control._catchup)
        me.control.follow_catchup()
        assert not me.control._recording.is_copy

        catchup.connection_lost(None)

        assert me.posted == [ev.CatchupImageAvailable(SESSION), ev.LogImageClosed(SESSION, "connection closed")]


async def test_a_replay_of_another_member_than_the_source_is_not_taken() -> None:
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, MemberId(2)))

        me.connect(me.control._catchup)

        assert me.posted == []


async def test_catchup_that_connected_for_an_earlier_attempt_is_not_taken_for_this_one() -> None:
    """Its replay was ended when the follower canvassed again; it would fail, and leave the next one waiting in turn."""
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        await me.control.stop()
        _, stale = me.connect(me.control._catchup)

        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        assert stale.is_aborted
        assert me.posted == []
        _, fresh = me.connect(me.control._catchup)

        assert me.posted == [ev.CatchupImageAvailable(SESSION)]
        assert fresh.is_reading()


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_what_catches_up_is_a_copy_until_the_link_is_closed(is_stopped: bool) -> None:
    """The page cache need not keep long batches of it; those of the live log it keeps, for whoever reads them here."""
    async with member() as me:
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))
        assert not me.control._recording.is_copy
        me.connect(me.control._catchup)
        assert me.control._recording.is_copy

        if is_stopped:
            await me.control.stop()
        else:
            me.control.close_catchup()

        assert not me.control._recording.is_copy


async def test_stop_forgets_what_was_waited_for() -> None:
    async with member() as me:
        me.control.join_log(fx.JoinLiveLog(SESSION))
        await me.control.accept_catchup(fx.AcceptCatchup(SESSION, ONE))

        await me.control.stop()
        me.connect(me.control._live)
        me.connect(me.control._catchup)

        assert me.posted == []


# --- leading


class Sink:
    """The catch-up endpoint of a follower: takes whatever comes, or reads nothing at all."""

    def __init__(self, *, is_reading: bool = True) -> None:
        self.data = bytearray()
        self.is_over = asyncio.Event()
        self._is_reading = is_reading

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while self._is_reading and (data := await reader.read(65536)):
                self.data += data
            await self.is_over.wait() if not self._is_reading else self.is_over.set()
        except ConnectionError:
            self.is_over.set()
        finally:
            writer.close()


@asynccontextmanager
async def listening(sink: Sink) -> AsyncIterator[str]:
    server = await asyncio.start_server(sink.accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def configure_catchup(me: Member, endpoint: str) -> None:
    """Have the members list say that a follower takes replays there."""
    history, other = me.ctx.roster.history, at(endpoint)
    me_and_other = (me.ctx.roster.address_of(MemberId(0)), other)
    history.append(Configuration(members=me_and_other, high_member_id=1, log_position=2))


async def test_catchup_replay_brings_the_log_and_follows_its_end_until_it_is_stopped() -> None:
    async with member() as me:
        log = me.append(300)
        me.control.flush()
        sink = Sink()
        async with listening(sink) as endpoint:
            configure_catchup(me, endpoint)
            me.control.start_catchup_replay(fx.StartCatchupReplay(ONE, 640, SESSION))
            await until(lambda: len(sink.data) >= 64 + len(log) - 640)
            log += me.append(10)
            me.control.flush()
            await until(lambda: len(sink.data) >= 64 + len(log) - 640)
            me.control.stop_catchup_replay(ONE)
            async with within(60):
                await sink.is_over.wait()

        assert SetupFrame.decode(sink.data).position == 640
        assert bytes(sink.data[64:]) == log[640:]


async def test_follower_that_asks_for_what_was_purged_is_told_where_the_log_begins() -> None:
    async with member(start_position=6400) as me:
        me.append(300)
        me.control.flush()
        sink = Sink()
        async with listening(sink) as endpoint:
            configure_catchup(me, endpoint)
            me.control.start_catchup_replay(fx.StartCatchupReplay(ONE, 640, SESSION))
            async with within(60):
                await sink.is_over.wait()

        assert len(sink.data) == 64
        assert SetupFrame.decode(sink.data).position == 6400


@pytest.mark.parametrize("endpoint", ["127.0.0.1:1", f"{'x' * 70}.example:1"])
async def test_follower_with_an_endpoint_that_cannot_be_reached_does_no_harm(endpoint: str) -> None:
    async with member() as me:
        configure_catchup(me, endpoint)
        me.control.start_catchup_replay(fx.StartCatchupReplay(ONE, 0, SESSION))

        await until(lambda: not me.control._catchup_replays)

        assert me.posted == me.failures == []


async def test_publication_is_closed_when_the_log_stops() -> None:
    sink = Sink()
    async with listening(sink) as endpoint, member(at(endpoint)) as me:
        me.control.open_publication(fx.OpenLogPublication(TermId(0), SESSION))
        await until(lambda: len(sink.data) == 64)

        await me.control.stop()

        async with within(60):
            await sink.is_over.wait()
        assert SetupFrame.decode(sink.data).session_id == SESSION
