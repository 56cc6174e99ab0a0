"""Performs the effects on a member's log: writes, sends, receives, copies and truncates it.

The consensus module asks for these things with effects; this is where they are done, on the archive and the links. What
takes long runs in an activity that belongs to the election or term that asked for it, and `stop` ends all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError, Recording
from ....archive.errors import is_damage
from ....archive.store.replay import REPLAY_BUFFER_BYTES, ReplaySession
from ....service_api import ClusterError
from ....service_api.access.audit import AuditTrail
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import ConnectionGate
from ....service_api.net.transport import NetworkStack, Purpose, as_stream_transport
from ....service_api.types import LOG_STREAM_ID, MemberId
from ....service_api.wire.frame_rules import FrameRules
from ....service_api.wire.link_frames import SetupFrame
from ...core import effects as fx
from ...core import events as ev
from ...core.context import ConsensusContext
from ...core.log.log_receiver import LogReceiver
from ...core.vocabulary.reluctance import Reluctance
from ..files.copy_notes import CopyNotes
from ..files.node_state_file import NodeStateFile
from ..files.recording_log_file import RecordingLogFile
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from ..links.dialling import CONNECT_TIMEOUT_S
from ..links.log_links import LogImage, LogPublication, LogSubscription
from ..shared_machine.tuning import MachineTuning
from ..watching.stage_watch import RequestStage, StageWatch
from .log_replication import LogReplication

logger = structlog.get_logger()


class LogOwner(AgentDoor, Protocol):
    """The agent, as the log of its member sees it."""

    def on_recorded(self, position: int, committed: ev.LogCommitted | None) -> None:
        """Take in that the log is durable up to a position, and what the leader said with its frames, if anything."""


class LogControl:
    """The log of one member, on its disk and on its links."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        recording: Recording,
        *,
        network: NetworkStack,
        recording_log_file: RecordingLogFile,
        node_state_file: NodeStateFile,
        agent: LogOwner,
        tasks: ActivityScope,
        tuning: MachineTuning,
        audit: AuditTrail,
        copy_notes: CopyNotes,
    ) -> None:
        self._ctx = ctx
        self._archive = archive
        self._recording = recording
        self._network = network
        self._recording_log_file = recording_log_file
        self._node_state_file = node_state_file
        self._post, self._on_recorded, self._on_failed = agent.post, agent.on_recorded, agent.terminate
        self._tasks = tasks
        self._tuning = tuning
        self._copy_notes = copy_notes
        self._publication: LogPublication | None = None
        self._wanted_log_session_id: int | None = None
        self._wanted_catchup: fx.AcceptCatchup | None = None
        self._follows_catchup = False
        """Whether the catch-up replay is taken for the live log."""
        self._catchup_replays: dict[MemberId, asyncio.Task[None]] = {}
        self._replication: asyncio.Task[None] | None = None
        self._cutting = asyncio.Lock()
        """Held while the log is cut back, when for a moment no recording is active."""
        self._live = LogSubscription(
            ctx.roster,
            cluster_id=lambda: ctx.cluster_id,
            audit=audit,
            on_frames=self._on_frames,
            on_image=self._on_live_image,
            on_closed=self._on_live_closed,
        )
        self._catchup = LogSubscription(
            ctx.roster,
            cluster_id=lambda: ctx.cluster_id,
            audit=audit,
            on_frames=self._on_frames,
            on_image=self._on_catchup_image,
            on_closed=self._on_catchup_closed,
        )
        self.stages: StageWatch | None = None
        self._committed: ev.LogCommitted | None = None
        """The commit that the leader sent with the frames that are being recorded, until the core gets it."""
        self._watch(recording)

    def __repr__(self) -> str:
        return f"<LogControl recording={self._recording!r} publication={self._publication!r}>"

    async def start(self, log_endpoint: Endpoint, catchup_endpoint: Endpoint, *, gate: ConnectionGate) -> None:
        """Listen for the live log and for catch-up replays.

        Raises:
            OSError: an endpoint cannot be listened on.
        """
        await self._live.start(self._network, Purpose.LOG, log_endpoint, gate=gate)
        await self._catchup.start(self._network, Purpose.CATCHUP, catchup_endpoint, gate=gate)

    async def aclose(self) -> None:
        """Stop everything and write the log's stop position.

        Raises:
            ArchiveError: the disk has failed; everything that can be closed is closed.
        """
        self._live.close()
        self._catchup.close()
        async with self._cutting:
            await self.stop()
            await self._recording.stop()

    # --- the hot path

    def flush(self) -> None:
        """Hand what was appended to the followers, then to the recording: the leader syncs while it sends."""
        chunks = self._ctx.log_buffer.take_pending()
        if not chunks:
            return
        stages, recording = self.stages, self._recording
        begin_ns = 0 if stages is None else stages.monotonic_ns()
        if self._publication is not None:
            self._publication.send(chunks, self._ctx.take_pending_commit_position())
        for chunk in chunks:
            recording.append(chunk)
        if stages is None:
            self._tuning.flush(recording)
            return
        if recording.append_position >= stages.position:
            stages.end_stage(RequestStage.APPEND)
        appended_ns = stages.monotonic_ns()
        self._tuning.flush(recording)
        end_ns = stages.monotonic_ns()
        if end_ns - begin_ns >= stages.slow_ns:
            stages.look("append", begin_ns, appended_ns)
            stages.look("sync", appended_ns, end_ns)

    def sync(self) -> None:
        """Ask for durability of everything recorded so far now, if that was to come later: somebody waits for it."""
        self._tuning.flush_now(self._recording)

    # --- durable state

    async def persist_candidate_term(self, effect: fx.PersistCandidateTerm) -> None:
        """Write the candidate term; it is on disk when this returns."""
        propose = aiofiles.os.wrap(self._node_state_file.propose_max_candidate_term_id)
        await propose(effect.candidate_term_id, effect.log_position, effect.timestamp)

    async def persist_recording_log(self) -> None:
        """Write what changed in the recording log; it is on disk when this returns."""
        await aiofiles.os.wrap(self._recording_log_file.persist)()

    def look_at_damage(self) -> None:
        """Be reluctant to lead for as long as a part of the log is known to be damaged, whatever read has met it."""
        ctx = self._ctx
        places = [place for place in self._archive.damage.places if place.recording_id == ctx.log_recording_id]
        if bool(places) != (Reluctance.LOG_DAMAGED in ctx.reluctance):
            self._post(ev.ReluctanceChanged(Reluctance.LOG_DAMAGED, places[0].reason if places else None))

    # --- beginning and ending

    async def stop(self) -> int:
        """End every activity and link of the log, let writes settle. Gives the position where the log ends, durably."""
        self._wanted_log_session_id = None
        publication, self._publication = self._publication, None
        if publication is not None:
            publication.close()
        self._live.disconnect()
        self.close_catchup()
        activities = [*self._catchup_replays.values()]
        self._catchup_replays.clear()
        if self._replication is not None:
            activities.append(self._replication)
            self._replication = None
        for activity in activities:
            activity.cancel()
        if activities:
            await asyncio.wait(activities)
        self.flush()
        recording = self._recording
        self._tuning.flush_now(recording)
        await recording.wait_recorded(recording.append_position)
        return recording.append_position

    async def truncate(self, position: int) -> None:
        """Cut the log back to `position`, durably."""
        recording_id = self._recording.recording_id
        async with self._cutting:
            await self._recording.stop()
            await self._archive.truncate_recording(recording_id, position)
            self._recording = await self._archive.extend_recording(recording_id, session_id=self._ctx.log_session_id)
            self._watch(self._recording)
            self._ctx.log_buffer.reset(position)
            self._ctx.roster.history.truncate(position)
            await self._copy_notes.cut(position)

    # --- leading

    def open_publication(self, effect: fx.OpenLogPublication) -> None:
        """Dial every follower with this term's log."""
        self._publication = LogPublication(
            lambda position: self._setup(position, effect.log_session_id),
            self._ctx.log_buffer,
            leadership_term_id=effect.leadership_term_id,
            on_live_joined=lambda member_id, position: self._post(ev.LiveJoined(member_id, position)),
        )
        self._publication.dial(self._network, self._followers(), self._tasks)

    def dial_roster(self) -> None:
        """Dial followers that are new, or elsewhere, and none that is gone."""
        if self._publication is not None:
            self._publication.dial(self._network, self._followers(), self._tasks)

    def _followers(self) -> dict[MemberId, Endpoint]:
        others = self._ctx.roster.addresses
        others.pop(self._ctx.config.member_id, None)
        return {member_id: Endpoint.parse(member.log) for member_id, member in others.items()}

    def start_catchup_replay(self, effect: fx.StartCatchupReplay) -> None:
        """Replay the log to a follower from the archive, following the live end."""
        self.stop_catchup_replay(effect.member_id)
        self._catchup_replays[effect.member_id] = self._tasks.create_task(
            self._replay_catchup(effect), name=f"catchup-replay-{effect.member_id}"
        )

    def stop_catchup_replay(self, member_id: MemberId) -> None:
        """End the catch-up replay to a follower, if one runs."""
        task = self._catchup_replays.pop(member_id, None)
        if task is not None:
            task.cancel()

    async def _replay_catchup(self, effect: fx.StartCatchupReplay) -> None:
        try:
            endpoint = Endpoint.parse(self._ctx.roster.address_of(effect.member_id).catchup)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await self._network.dial_streams(Purpose.CATCHUP, endpoint, member_id=effect.member_id)
            try:
                as_stream_transport(writer.transport).set_write_buffer_limits(high=REPLAY_BUFFER_BYTES)
                standing = self._archive.cold_standing
                oldest_position = (
                    self._archive.descriptor(self._recording.recording_id).start_position
                    if standing is None
                    else standing.catchup_start_position()
                )
                if effect.position < oldest_position:
                    await self._refuse_catchup(writer, effect, oldest_position)
                    return
                writer.write(self._setup(effect.position, effect.log_session_id).encode())
                session = ReplaySession(
                    self._archive,
                    self._recording.recording_id,
                    position=effect.position,
                    stop_position=None,
                    sink=writer,
                )
                await session.run()
            finally:
                writer.transport.abort()  # a close would wait for a follower that reads no more
            reason = "the replay ended"
        except (ClusterError, OSError, ValueError) as error:  # ValueError: no host can have this name
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, ArchiveError) and is_damage(error):
                self._post(ev.LogUnreadable(effect.member_id, error.position or effect.position, str(error)))
        logger.warning("catchup_replay.ended", peer_member_id=effect.member_id, position=effect.position, reason=reason)
        if self._catchup_replays.get(effect.member_id) is asyncio.current_task():
            del self._catchup_replays[effect.member_id]

    async def _refuse_catchup(
        self, writer: asyncio.StreamWriter, effect: fx.StartCatchupReplay, oldest_position: int
    ) -> None:
        """Tell a follower where this log begins: it asked for what is older. Nothing follows the setup frame."""
        logger.warning(
            "catchup_replay.refused",
            peer_member_id=effect.member_id,
            position=effect.position,
            oldest_position=oldest_position,
        )
        writer.write(self._setup(oldest_position, effect.log_session_id).encode())
        writer.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await writer.wait_closed()  # the abort that follows would drop what is not written yet

    # --- following

    def join_log(self, effect: fx.JoinLiveLog) -> None:
        """Ask the leader's link of this log session to flow, now or as soon as it connects."""
        self._wanted_log_session_id = effect.log_session_id
        self._on_live_image(effect.log_session_id)

    async def accept_catchup(self, effect: fx.AcceptCatchup) -> None:
        """Take the catch-up replay of this log session as soon as its source connects: it is a copy."""
        self._catchup.drop_waiting()  # who connected before this was asked for replays for an earlier attempt
        await self._copy_notes.begin(effect.source_id, self._ctx.log_buffer.append_position)
        self._wanted_catchup = effect

    def follow_catchup(self) -> None:
        """Take the catch-up replay for the live log from now on."""
        self._follows_catchup = True
        self._recording.is_copy = False

    def close_catchup(self) -> None:
        """Drop the catch-up link."""
        self._wanted_catchup = None
        self._follows_catchup = False
        self._catchup.disconnect()
        self._recording.is_copy = False
        self._copy_notes.end(self._ctx.log_buffer.append_position)

    def start_replication(self, effect: fx.StartLogReplication) -> None:
        """Copy a range of the log from the leader's archive, or from that of the member followed in its place."""
        self._replication = self._tasks.create_task(self._replicate(effect), name="log-replication")

    async def _replicate(self, effect: fx.StartLogReplication) -> None:
        replication = LogReplication(
            self._ctx,
            self._recording,
            self._append_replicated,
            has_cold_storage=self._archive.cold_standing is not None,
            network=self._network,
            copy_notes=self._copy_notes,
        )
        end = await replication.run(effect)
        if isinstance(end, ev.ReplicationDone):
            self._replication = None
        self._post(end)

    def _append_replicated(self, recording: Recording, chunk: bytes) -> None:
        """Record what was copied, and leave it in the window: what is committed of it is delivered from there."""
        log_buffer = self._ctx.log_buffer
        self._ctx.roster.history.note_frames(chunk, log_buffer.append_position)
        log_buffer.append(chunk)
        self.flush()
        log_buffer.discard_before(recording.recorded_position)

    def _on_live_image(self, log_session_id: int) -> None:
        image = self._live.image(log_session_id, sender_id=self._ctx.leader_member_id)
        if image is None or log_session_id != self._wanted_log_session_id:
            return
        self._wanted_log_session_id = None
        if self._refuse_setup(image):
            return
        join_position = self._ctx.log_buffer.append_position
        self._copy_notes.end(join_position)
        self._live.open(image, self._receiver(), join_position=join_position)
        self._post(ev.LogJoined(log_session_id))

    def _on_catchup_image(self, log_session_id: int) -> None:
        wanted = self._wanted_catchup
        if wanted is None or log_session_id != wanted.log_session_id:
            return
        image = self._catchup.image(log_session_id, sender_id=wanted.source_id)
        if image is None:
            return
        self._wanted_catchup = None
        if self._refuse_setup(image):
            return
        assert image.setup is not None
        append_position = self._ctx.log_buffer.append_position
        if image.setup.position > append_position:
            image.abort("begins after the end of this log")
            self._post(ev.BelowOldestSegment(append_position, image.setup.position))
            return
        self._recording.is_copy = True
        self._catchup.open(image, self._receiver(), join_position=None)
        self._post(ev.CatchupImageAvailable(log_session_id))

    def _refuse_setup(self, image: LogImage) -> bool:
        """Refuse a stream that is laid out differently from this log: its positions would mean other bytes."""
        config, setup = self._ctx.config, image.setup
        assert setup is not None
        expected = (config.initial_term_id, config.term_length_bytes)
        actual = (setup.initial_term_id, setup.term_length_bytes)
        if actual == expected:
            return False
        image.abort("layout differs")
        self._post(
            ev.ActivityFailed(f"log stream has (initial_term_id, term_length_bytes)={actual} expected={expected}")
        )
        return True

    def _on_live_closed(self, log_session_id: int, reason: str) -> None:
        self._post(ev.LogImageClosed(log_session_id, reason))

    def _on_catchup_closed(self, log_session_id: int, reason: str) -> None:
        if self._follows_catchup:
            self._follows_catchup = False
            self._on_live_closed(log_session_id, reason)
            return
        if self._live.is_open:
            # The live log brings everything from its join on. The leader ends the replay then, and this may be seen
            # before its StopCatchup, which comes on another connection.
            return
        self._post(ev.ActivityFailed(f"catch-up link closed: {reason}"))

    def _on_frames(self, committed: tuple[int, int] | None) -> None:
        """Frames of the leader's log were appended to the window: record them now, before anything is read again.

        `committed` is what the leader said with them. It counts once they are recorded, since the leader waits for
        that; where this is done at once, the core is told of both in one event.
        """
        if committed is not None:
            self._committed = ev.LogCommitted(*committed)
        try:
            self.flush()
        except (ClusterError, OSError) as error:
            self._on_failed(error)
        if self._committed is not None:
            said, self._committed = self._committed, None
            self._post(said)

    def _receiver(self) -> LogReceiver:
        config = self._ctx.config
        rules = FrameRules(
            initial_term_id=config.initial_term_id,
            term_length_bytes=config.term_length_bytes,
            mtu_length_bytes=config.mtu_length_bytes,
            stream_id=LOG_STREAM_ID,
            checksummed=config.checksums,
            checksum_kind=config.checksum_kind,
            is_cluster_log=True,
        )
        return LogReceiver(self._ctx.log_buffer, rules, self._ctx.roster.history)

    # --- helpers

    def _setup(self, position: int, log_session_id: int) -> SetupFrame:
        config = self._ctx.config
        return SetupFrame.at_position(
            position,
            session_id=log_session_id,
            stream_id=LOG_STREAM_ID,
            initial_term_id=config.initial_term_id,
            term_length_bytes=config.term_length_bytes,
            mtu_length_bytes=config.mtu_length_bytes,
            cluster_id=self._ctx.cluster_id,
            member_id=config.member_id,
        )

    def _recorded(self, position: int) -> None:
        stages = self.stages
        if stages is not None and position >= stages.position:
            stages.end_stage(RequestStage.SYNC)
        committed, self._committed = self._committed, None
        self._on_recorded(position, committed)

    def _watch(self, recording: Recording) -> None:
        recording.on_recorded = self._recorded
        recording.on_failed = self._on_failed
