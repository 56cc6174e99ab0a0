"""One member of the harness: a real consensus module, service container and log gate, on a disk made of bytes.

It performs effects in order, as the agent of a node does, and may be killed between any two of them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.unit.cluster.core.checks import expect
from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.core.service import HistoryService, Requests
from tests.unit.cluster.log_rules import log_rules
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.context import ConsensusConfig, ConsensusContext
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.service.witness_log_adapter import WitnessLogAdapter
from trimaran.service_api import ClusterError, RemoteProtocolError, Role
from trimaran.service_api.types import NULL_VALUE, ClusterSessionId, MemberId, RecordingId, TermId, TimeUnit
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.link_frames import encode_commit_frame

if TYPE_CHECKING:
    from tests.unit.cluster.core.harness import Cluster

MS = 1_000_000
TERM_LENGTH = 4096
MTU = 288


def config(member_id: int, member_count: int, **overrides: object) -> ConsensusConfig:
    """Settings with Trimaran's default proportions, ten times as fast, and small terms."""
    values: dict[str, object] = {
        "member_id": MemberId(member_id),
        "catchup_endpoint": f"host{member_id}:9003",
        "startup_canvass_timeout_ns": 600 * MS,
        "election_timeout_ns": 50 * MS,
        "election_status_interval_ns": 10 * MS,
        "leader_heartbeat_timeout_ns": 200 * MS,
        "leader_heartbeat_interval_ns": 20 * MS,
        "session_timeout_ns": 1000 * MS,
        "session_limit": 10,
        "term_length_bytes": TERM_LENGTH,
        "mtu_length_bytes": MTU,
        "checksums": True,
        "ingress_window_bytes": 1024,
        "catchup_near_bytes": 512,
    }
    return ConsensusConfig(**{**values, **overrides})  # type: ignore[arg-type]  # overrides are named by the tests


def whole_frames(log: bytes | bytearray, start: int, limit: int) -> bytes:
    """Give the frames of `log[start:limit]`, but at least one if there is one."""
    end = start
    while end < len(log):
        frame_end = end + (struct.unpack_from("<i", log, end)[0] + 31 & -32)
        if frame_end > limit and end > start:
            break
        end = frame_end
        if end >= limit:
            break
    return bytes(log[start:end])


class Disk:
    """What of a member survives its process."""

    def __init__(self) -> None:
        self.candidate_term_id = NULL_VALUE
        self.recording_log = bytearray()
        self.log = bytearray()
        self.terms = RecordingLog()
        """The recording log as it would be read back now."""

    def persist(self, recording_log: RecordingLog) -> None:
        """Write and sync what changed in the recording log."""
        for write in recording_log.take_writes():
            end = write.file_position + len(write.data)
            self.recording_log.extend(bytes(max(0, end - len(self.recording_log))))
            self.recording_log[write.file_position : end] = write.data
        self.terms = RecordingLog.parse(bytes(self.recording_log))


class Stream:
    """The log on its way to a follower: the live link, or a catch-up replay. Closed at either end for good."""

    def __init__(self, cluster: Cluster, source: Node, target: Node, log_session_id: int) -> None:
        self.cluster, self.source, self.target, self.log_session_id = cluster, source, target, log_session_id
        self.is_open = True
        self.is_stalled = False
        self.position = 0
        self._buffer = bytearray()
        self._last_ns = 0
        limits = target.ctx.config
        rules = log_rules(
            initial_term_id=limits.initial_term_id,
            term_length_bytes=limits.term_length_bytes,
            mtu_length_bytes=limits.mtu_length_bytes,
            checksummed=limits.checksums,
        )
        self._receiver = LogReceiver(target.ctx.log_buffer, rules, target.ctx.roster.history)

    def send(self, data: bytes) -> None:
        """Let bytes go, in pieces cut anywhere; they arrive in order or not at all."""
        random = self.cluster.random
        while data and self.is_open:
            cut = random.randint(1, len(data)) if random.random() < 0.3 else len(data)
            self._last_ns = max(self._last_ns, self.cluster.now_ns + self.cluster.delay())
            self.cluster.at(self._last_ns, lambda piece=data[:cut]: self._arrive(piece))  # type: ignore[misc]
            data = data[cut:]

    def resume(self) -> None:
        """Take what arrived while the follower was paused."""
        self._arrive(b"")

    def close(self, reason: str) -> None:
        """End the stream; a follower that reads from it learns of it later."""
        if self.is_open:
            self.is_open = False
            self.cluster.after(self.cluster.delay(), lambda: self.target.tell_closed(self, reason))

    def _arrive(self, data: bytes) -> None:
        if not self.is_open or self.is_stalled or not self.target.is_reading(self):
            return
        self._buffer += data
        if self.target.is_paused:
            return
        try:
            consumed = self._receiver.accept(self._buffer, 0, len(self._buffer))
        except RemoteProtocolError as error:
            self.close("refused")
            self.target.tell_closed(self, str(error))
            return
        del self._buffer[:consumed]
        self.target.flush()
        committed = self._receiver.take_committed()
        if committed is not None:
            self.target.post(ev.LogCommitted(*committed))


class Node:
    """One member: a disk that stays and a process that comes and goes."""

    def __init__(self, cluster: Cluster, member_id: int) -> None:
        self.cluster, self.member_id = cluster, MemberId(member_id)
        self.is_witness = member_id in cluster.witness_ids
        self.disk = Disk()
        self.is_alive = False
        self.is_paused = False
        self.incarnation = 0
        self.skew_ms = cluster.random.randint(-100, 100)
        self.failure: BaseException | None = None
        self.oldest_position = 0
        """Where this member's archive begins: a purge has removed what is older."""

    def __repr__(self) -> str:
        return f"<Node {self.member_id} alive={self.is_alive} {self.module!r}>"

    # --- a process comes and goes

    def start(self) -> None:
        """Start a process on what the disk holds."""
        cluster, disk = self.cluster, self.disk
        self.incarnation += 1
        self.is_alive = True
        recording_log = RecordingLog.parse(bytes(disk.recording_log))
        last = recording_log.last_term()
        last_term_id = TermId(NULL_VALUE if last is None else last.leadership_term_id)
        self.ctx = ConsensusContext(
            config=config(
                self.member_id, cluster.member_count, **cluster.settings, service_count=0 if self.is_witness else 1
            ),
            random=cluster.random_of(self.member_id),
            recording_log=recording_log,
            log_recording_id=RecordingId(0),
            log_buffer=LogBuffer(position=len(disk.log), retained_bytes=1024),
            roster=roster(self.member_id, cluster.member_count, witness_ids=cluster.witness_ids),
            append_position=len(disk.log),
            log_leadership_term_id=last_term_id,
            leadership_term_id=last_term_id,
            candidate_term_id=TermId(disk.candidate_term_id),
        )
        self.activity_ns: dict[int, int] = {}
        self.module = ConsensusModule(self.ctx, last_activity_ns=self.activity_ns.get)
        self.service = HistoryService(cluster.referee, self.member_id)
        self.agent = ClusteredServiceAgent(
            [] if self.is_witness else [self.service],
            Requests(self.module),
            member_id=self.member_id,
            time_unit=TimeUnit.MILLIS,
            max_payload_length=TERM_LENGTH // 8 - 32,
        )
        if not self.is_witness:
            self.service.cluster = self.agent.views[0]
        self.ctx.delivered_time = lambda: self.agent.time
        make_adapter = WitnessLogAdapter if self.is_witness else BoundedLogAdapter
        self.adapter = make_adapter(self.ctx.log_buffer, self, self.agent, self.module)
        self.bound: dict[int, tuple[int, int]] = {}
        """By ingress connection: the session and term whose messages are let through."""
        self._inbox: deque[object] = deque()
        self._is_in_turn = False
        self._unsynced: list[bytes] = []
        self._is_syncing = False
        self._poll_at_ns = 1 << 62
        self._replay_target: int | None = None
        self._generation = 0
        self._publication_session: int | None = None
        self.live_out: dict[MemberId, Stream] = {}
        self._catchup_out: dict[MemberId, Stream] = {}
        self._live_in: Stream | None = None
        self._catchup_in: Stream | None = None
        self._wanted_catchup: int | None = None
        self._commit_position = 0
        self._is_in_turn = True
        self._guard(lambda: self.module.start(now_ns=cluster.now_ns, timestamp=self._timestamp()))
        self._is_in_turn = False
        self._turn()

    def crash(self) -> None:
        """Kill the process: some of what was written and not synced is lost, and links break."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_paused = False
        written = b"".join(self._unsynced)
        self.disk.log += whole_frames(written, 0, self.cluster.random.randint(0, len(written)))
        for stream in self._streams():
            stream.close("peer is gone")

    def _streams(self) -> list[Stream]:
        incoming = [stream for stream in (self._live_in, self._catchup_in) if stream is not None]
        return [*self.live_out.values(), *self._catchup_out.values(), *incoming]

    def break_streams(self, other: MemberId) -> None:
        """The network between this member and another is gone."""
        if not self.is_alive:
            return
        for stream in self._streams():
            if other in (stream.source.member_id, stream.target.member_id):
                stream.close("link broke")

    def stall_streams(self, other: MemberId) -> None:
        """Nothing gets through to another member or from it, and nobody is told."""
        for stream in self._streams():
            if other in (stream.source.member_id, stream.target.member_id):
                stream.is_stalled = True

    # --- turns

    def post(self, event: object) -> None:
        """Hand an event to the core."""
        if self.is_alive:
            self._inbox.append(event)
            if not self._is_in_turn:
                self._turn()

    def resume(self) -> None:
        """Go on after a pause, with everything that came meanwhile."""
        self.is_paused = False
        if self.is_alive:
            self._turn()
        for stream in (self._live_in, self._catchup_in):
            if stream is not None:
                stream.resume()
        self._deliver()

    def _turn(self) -> None:
        if self.is_paused:
            return
        self._is_in_turn = True
        self._perform()
        while self._inbox and self.is_alive:
            self._step(self._inbox.popleft())
            self._perform()
        self._is_in_turn = False
        if self.is_alive:
            self.flush()
            self._schedule_poll()

    def _step(self, event: object) -> None:
        self._guard(lambda: self.module.step(event, now_ns=self.cluster.now_ns, timestamp=self._timestamp()))

    def _guard(self, call: Callable[[], object]) -> None:
        """A broken invariant stops the process, as in a node; the run says so."""
        try:
            call()
        except ClusterError as error:
            self.failure = error
            self.cluster.on_failure(self, error)
            self.crash()

    def _perform(self) -> None:
        for effect in self.module.take_effects():
            if not self.is_alive:
                return
            if self.cluster.should_crash():
                self.cluster.crash(self.member_id)
                return
            self.cluster.on_effect(self, effect)
            _PERFORM.get(type(effect), _ignore)(self, effect)
        if self.is_alive:
            self._check()

    def _check(self) -> None:
        ctx = self.ctx
        if ctx.role is Role.LEADER:
            self.cluster.referee.on_leader(self.member_id, ctx.leadership_term_id)
        expect(ctx.commit_position >= self._commit_position, "the commit position never falls", node=self)
        self._commit_position = ctx.commit_position
        expect(ctx.commit_position <= ctx.append_position, "what is committed is recorded", node=self)

    def _schedule_poll(self) -> None:
        deadline_ns = max(self.module.next_deadline_ns(), self.cluster.now_ns + 1000)
        if deadline_ns < self._poll_at_ns:
            self._poll_at_ns = deadline_ns
            incarnation = self.incarnation
            self.cluster.at(deadline_ns, lambda: self._poll(incarnation, deadline_ns))

    def _poll(self, incarnation: int, deadline_ns: int) -> None:
        if not self.is_alive or incarnation != self.incarnation or deadline_ns != self._poll_at_ns:
            return
        self._poll_at_ns = 1 << 62
        if self.is_paused:
            self.cluster.after(5 * MS, lambda: self._poll(incarnation, 1 << 62))
            return
        self._is_in_turn = True
        self._guard(lambda: self.module.poll(now_ns=self.cluster.now_ns, timestamp=self._timestamp()))
        self._is_in_turn = False
        if self.is_alive:
            self._turn()

    def _timestamp(self) -> int:
        return self.cluster.now_ns // MS + 1_000_000 + self.skew_ms

    # --- the log

    def flush(self) -> None:
        """Send what was appended to the followers, and have it synced soon."""
        chunks = self.ctx.log_buffer.take_pending()
        commit_position = self.ctx.take_pending_commit_position() if chunks and self.live_out else None
        if commit_position is not None:
            for stream in [*self.live_out.values()]:
                stream.send(encode_commit_frame(self.ctx.leadership_term_id, commit_position))
        for chunk in chunks:
            for stream in [*self.live_out.values()]:
                stream.send(chunk)
        self._unsynced += chunks
        if self._unsynced and not self._is_syncing:
            self._is_syncing = True
            incarnation, generation = self.incarnation, self._generation
            self.cluster.after(self.cluster.delay(), lambda: self._synced(incarnation, generation))

    def _synced(self, incarnation: int, generation: int) -> None:
        if not self.is_current(incarnation, generation):
            return
        if self.is_paused:
            self.cluster.after(5 * MS, lambda: self._synced(incarnation, generation))
            return
        self._is_syncing = False
        self._sync()
        self.post(ev.Recorded(len(self.disk.log)))
        self.flush()

    def _sync(self) -> None:
        self.disk.log += b"".join(self._unsynced)
        self._unsynced.clear()

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Read whole frames of the log recording, for delivery."""
        return whole_frames(self.disk.log, position, min(stop_position, position + limit_bytes // 1024))

    def is_reading(self, stream: Stream) -> bool:
        """Whether a stream is one of those that this member takes bytes from."""
        return self.is_alive and stream in (self._live_in, self._catchup_in)

    def tell_closed(self, stream: Stream, reason: str) -> None:
        """A stream to this member is gone."""
        if not self.is_alive:
            return
        if stream is self._live_in:
            self._live_in = None
            self.post(ev.LogImageClosed(stream.log_session_id, reason))
        elif stream is self._catchup_in:
            self._catchup_in = None
            self.post(ev.ActivityFailed(f"catch-up link closed: {reason}"))

    def _deliver(self) -> None:
        if not self.is_alive or self.is_paused:
            return
        self._is_in_turn = True
        self._guard(self._deliver_all)
        self._is_in_turn = False
        if not self.is_alive:
            return
        self.ctx.log_buffer.discard_before(min(self.ctx.commit_position, self.ctx.log_buffer.append_position))
        if self._replay_target is not None and self.adapter.position >= self._replay_target:
            self._replay_target = None
            self._inbox.append(ev.ReplayDone(self.adapter.position, self.agent.time))
        self._turn()

    def _deliver_all(self) -> None:
        while self.adapter.poll(1 << 20):
            """There is more."""
        if self.service.error is not None:
            raise self.service.error
        expect(self.agent.error_count == 0, "no callback fails", node=self)

    # --- effects

    def _send_to_member(self, effect: fx.SendToMember) -> None:
        disk = self.disk
        self.cluster.referee.on_send(
            self.member_id,
            effect.message,
            candidate_term_id=disk.candidate_term_id,
            terms=disk.terms,
            log_length=len(disk.log),
        )
        self.cluster.send(self, effect.member_id, effect.message)

    def _send_to_client(self, effect: fx.SendToClient) -> None:
        self.cluster.on_client_message(effect.connection_id, effect.message)

    def _bind_ingress(self, effect: fx.BindIngress) -> None:
        self.bound[effect.connection_id] = (effect.cluster_session_id, effect.leadership_term_id)
        self.cluster.on_bind(self, effect.connection_id, ClusterSessionId(effect.cluster_session_id))

    def _unbind_ingress(self, effect: fx.UnbindIngress) -> None:
        if effect.connection_id is None:
            self.bound.clear()
        elif self.bound.get(effect.connection_id, (None,))[0] == effect.cluster_session_id:
            del self.bound[effect.connection_id]

    def _persist_candidate_term(self, effect: fx.PersistCandidateTerm) -> None:
        expect(effect.candidate_term_id > self.disk.candidate_term_id, "the candidate term rises", node=self)
        self.disk.candidate_term_id = effect.candidate_term_id

    def _persist_recording_log(self, effect: fx.PersistRecordingLog) -> None:
        self.disk.persist(self.ctx.recording_log)

    def _stop_log(self, effect: fx.StopLog) -> None:
        for stream in self._streams():
            stream.close("stopped")
        self._live_in = self._catchup_in = self._wanted_catchup = None
        self._publication_session = self._replay_target = None
        self.live_out.clear()
        self._catchup_out.clear()
        self._generation += 1
        self.flush()
        self._is_syncing = False
        if self._unsynced:
            self._sync()
            self._inbox.append(ev.Recorded(len(self.disk.log)))
        if self.ctx.log_buffer.append_position != len(self.disk.log):
            self.ctx.log_buffer.reset(len(self.disk.log))
        self._inbox.appendleft(ev.LogStopped(len(self.disk.log)))

    def _truncate_log(self, effect: fx.TruncateLog) -> None:
        self.cluster.referee.on_truncate(self.member_id, effect.position, self.ctx.commit_position)
        del self.disk.log[effect.position :]
        self.ctx.log_buffer.reset(effect.position)
        self._inbox.appendleft(ev.LogTruncated(effect.position))

    def _open_log_publication(self, effect: fx.OpenLogPublication) -> None:
        self._publication_session = effect.log_session_id

    def _start_replay(self, effect: fx.StartReplay) -> None:
        self._replay_target = effect.to_position
        self.cluster.after(self.cluster.delay(), self._deliver_of(self.incarnation))

    def _commit_advanced(self, effect: fx.CommitAdvanced) -> None:
        self.cluster.referee.on_commit(self.member_id, self.adapter.limit_position, effect.position, self.disk.log)
        self.adapter.advance_limit(effect.position)
        self.cluster.after(self.cluster.delay(), self._deliver_of(self.incarnation))

    def _deliver_of(self, incarnation: int) -> Callable[[], None]:
        return lambda: self._deliver() if incarnation == self.incarnation else None

    def _fetch_snapshot(self, effect: fx.FetchSnapshot) -> None:
        """Nobody has a snapshot here."""
        self.cluster.after(self.cluster.delay(), lambda: self.post(ev.SnapshotFetchFailed("there is none")))

    def _start_log_replication(self, effect: fx.StartLogReplication) -> None:
        incarnation, generation = self.incarnation, self._generation
        self._copy(effect, incarnation, generation)

    def _copy(self, effect: fx.StartLogReplication, incarnation: int, generation: int) -> None:
        """Copy a piece of the log from the leader's archive, straight to the disk."""
        if not self.is_current(incarnation, generation):
            return
        source, log = self.cluster.nodes[effect.leader_member_id], self.disk.log
        if not self.cluster.is_connected(self.member_id, source.member_id):
            self.post(ev.ActivityFailed("log replication failed: archive is gone"))
            return
        if len(log) < source.oldest_position:
            self.post(ev.BelowOldestSegment(len(log), source.oldest_position))
            return
        log += whole_frames(source.disk.log, len(log), min(effect.stop_position, len(log) + 700))
        if len(log) < effect.stop_position:
            self.post(ev.Recorded(len(log)))
            self.cluster.after(self.cluster.delay(), lambda: self._copy(effect, incarnation, generation))
            return
        self.ctx.log_buffer.reset(len(log))
        self.post(ev.ReplicationDone(len(log)))

    def is_current(self, incarnation: int, generation: int) -> bool:
        """Whether an activity still belongs to this process and election."""
        return self.is_alive and (incarnation, generation) == (self.incarnation, self._generation)

    def _join_log(self, effect: fx.JoinLiveLog) -> None:
        self._try_join(effect.log_session_id, self.incarnation, self._generation)

    def _try_join(self, log_session_id: int, incarnation: int, generation: int) -> None:
        if not self.is_current(incarnation, generation):
            return
        leader = self.cluster.publisher_of(log_session_id, self)
        if leader is None:
            self.cluster.after(10 * MS, lambda: self._try_join(log_session_id, incarnation, generation))
            return
        stream = self._live_in = Stream(self.cluster, leader, self, log_session_id)
        position = self.ctx.log_buffer.append_position
        self.post(ev.LogJoined(log_session_id))
        self.cluster.after(self.cluster.delay(), lambda: leader.on_join(stream, position))

    def publishes(self, log_session_id: int) -> bool:
        """Whether this member offers the live log of a log session."""
        return self.is_alive and self._publication_session == log_session_id

    def on_join(self, stream: Stream, position: int) -> None:
        """Leader: a follower asks for the live log from a position on."""
        if not stream.is_open or not self.publishes(stream.log_session_id):
            stream.close("leader is gone")
            return
        log_buffer = self.ctx.log_buffer
        if not log_buffer.base_position <= position <= log_buffer.append_position:
            stream.close("catch up first")
            return
        self.flush()
        for chunk in log_buffer.chunks_from(position):
            stream.send(chunk)
        self.live_out[stream.target.member_id] = stream
        self.post(ev.LiveJoined(stream.target.member_id, position))

    def _accept_catchup(self, effect: fx.AcceptCatchup) -> None:
        self._wanted_catchup = effect.log_session_id

    def _close_catchup(self, effect: fx.CloseCatchup) -> None:
        stream, self._catchup_in, self._wanted_catchup = self._catchup_in, None, None
        if stream is not None:
            stream.close("caught up")

    def _start_catchup_replay(self, effect: fx.StartCatchupReplay) -> None:
        self._stop_catchup_replay(fx.StopCatchupReplay(effect.member_id))
        follower = self.cluster.nodes[effect.member_id]
        if effect.position < self.oldest_position:
            self.cluster.after(
                self.cluster.delay(),
                lambda: follower.post(ev.BelowOldestSegment(effect.position, self.oldest_position)),
            )
            return
        stream = Stream(self.cluster, self, follower, effect.log_session_id)
        stream.position = effect.position
        self._catchup_out[effect.member_id] = stream
        self._pump(stream, self.incarnation, self._generation)

    def _pump(self, stream: Stream, incarnation: int, generation: int) -> None:
        """Leader: push the next piece of a catch-up replay, which follows the live end."""
        if not stream.is_open or not self.is_current(incarnation, generation):
            return
        if stream.target.opens_catchup(stream):
            data = bytes(self.disk.log[stream.position : stream.position + 700])
            stream.position += len(data)
            stream.send(data)
        self.cluster.after(3 * MS, lambda: self._pump(stream, incarnation, generation))

    def opens_catchup(self, stream: Stream) -> bool:
        """Follower: take a catch-up replay if it is the one that is waited for."""
        if self.is_alive and not self.is_paused and self._wanted_catchup == stream.log_session_id:
            self._wanted_catchup = None
            self._catchup_in = stream
            self.post(ev.CatchupImageAvailable(stream.log_session_id))
        return self._catchup_in is stream

    def _stop_catchup_replay(self, effect: fx.StopCatchupReplay) -> None:
        stream = self._catchup_out.pop(effect.member_id, None)
        if stream is not None:
            stream.close("replay ended")

    def append_ingress(self, connection_id: int, payloads: Sequence[bytes]) -> bool:
        """Leader: take session messages as the ingress edge does; False if they may not be sent here and now."""
        leader, bound = self.module.leader, self.bound.get(connection_id)
        if not self.is_alive or self.is_paused or leader is None or bound is None or self.module.actions.is_holding:
            return False
        session_id, term_id = bound
        chunk = bytearray()
        prefix = struct.pack("<HHHHqq", 24, 1, 111, 16, term_id, session_id)
        small = [payload for payload in payloads if len(payload) <= MTU - 64]
        for payload in small:
            length = HEADER_LENGTH + 32 + len(payload)
            chunk += struct.pack("<iBBHiiiiq", length, 0, 0xC0, 1, 0, 0, 101, 0, 0) + prefix + bytes(8) + payload
            chunk += bytes(-length & 31)
        self.ctx.now_ns, self.ctx.timestamp = self.cluster.now_ns, self._timestamp()
        timestamp = self.ctx.stamp()
        self.activity_ns[connection_id] = self.cluster.now_ns
        taken = leader.publisher.append_ingress(chunk, 0, len(chunk), prefixes=(prefix,), timestamp=timestamp)
        expect(taken == len(chunk), "every frame is taken", taken=taken)
        for payload in payloads[len(small) :]:  # it comes in fragments, and the edge hands it over whole
            leader.publisher.append_message(prefix + timestamp.to_bytes(8, "little") + payload)
        self.flush()
        return True


def _ignore(node: Node, effect: fx.Effect) -> None:
    """An effect that only tells."""


_PERFORM: dict[type, Callable[[Node, fx.Effect], None]] = {
    getattr(fx, name): getattr(Node, method)
    for name, method in {
        "SendToMember": "_send_to_member",
        "SendToClient": "_send_to_client",
        "BindIngress": "_bind_ingress",
        "UnbindIngress": "_unbind_ingress",
        "PersistCandidateTerm": "_persist_candidate_term",
        "PersistRecordingLog": "_persist_recording_log",
        "StopLog": "_stop_log",
        "TruncateLog": "_truncate_log",
        "OpenLogPublication": "_open_log_publication",
        "StartReplay": "_start_replay",
        "StartLogReplication": "_start_log_replication",
        "AcceptCatchup": "_accept_catchup",
        "CloseCatchup": "_close_catchup",
        "JoinLiveLog": "_join_log",
        "StartCatchupReplay": "_start_catchup_replay",
        "StopCatchupReplay": "_stop_catchup_replay",
        "CommitAdvanced": "_commit_advanced",
        "FetchSnapshot": "_fetch_snapshot",
    }.items()
}
