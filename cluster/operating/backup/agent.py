"""The backup agent: copies a cluster's snapshots and its log, as far as it is committed, and follows it.

It pulls, as Aeron's does, and takes part in nothing: a cluster does not know how many backups it has. One member is its
source. When that fails, or gets no further although the others do, the next one goes on from the position that the
backup has come to, since the committed log is the same on all of them.

    BACKUP_QUERY          ask all members how they are, choose one, ask it what it has
    SNAPSHOT_RETRIEVE     copy its newest snapshot, if that is newer than all here
    LIVE_LOG_RECORD       open the own log
    LIVE_LOG_REPLAY       have the member replay its log from there on, bounded by its commit position
    UPDATE_RECORDING_LOG  note terms, and the snapshot once the log reaches it
    BACKING_UP            record what comes; after a while BACKUP_QUERY again, while the log goes on coming
    RESET_BACKUP          after a failure: wait, then begin again

A term has to be noted before its log is recorded (`directory`). So the agent looks at what comes for the first entry of
a term that it does not know: what lies before is recorded, then it asks the member for the terms, and goes on.

Source: aeron.md §6.1; Aeron `ClusterBackupAgent`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import aiofiles.os
import structlog

from ....archive.errors import ArchiveError
from ....archive.format.frame_rules import frame_rules_of
from ....archive.format.messages import RecordingDescriptorRow
from ....archive.net.client import ArchiveClient
from ....archive.net.connection import ArchiveConnection, Credentials
from ....archive.net.frame_stream import FrameStream, open_replay
from ....archive.net.replication import AHEAD_LIMIT_BYTES, check_fit, fetch_descriptor, replicate
from ....archive.store.recording import Recording
from ....service_api import ClusterError, ConfigurationError, invariant
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id, parse_cluster_id
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ClusterTimeoutError, first_leaf
from ...core.log.recording_log import RecordedSnapshot
from ...core.log.shipped_snapshot import check_offer
from ...documents.backup_query import BackupAnswer, ask_for_backup
from ...runtime.ground.host import Host
from ...settings.member_endpoints import MemberEndpoints
from .choosing import FoundSource, NoSourceError, find_source
from .directory import BackupDirectory
from .new_terms import find_first_unknown_term
from .settings import BackupSettings
from .states import BackupState, is_legal
from .status import STATUS_INTERVAL_S, BackupStatus, read_status, write_status

S = BackupState
_NS_PER_S: Final = 1_000_000_000
_SMALL_CHUNK_BYTES: Final = 256 << 10
"""After a smaller one the log has come near to its end, and what came is made durable at once."""

logger = structlog.get_logger()


class BackupGapError(ClusterError):
    """No member has the log any more from where this backup ends: another backup has to be begun."""


class BackupAgent:
    """Backs a cluster up into one directory until it is cancelled."""

    def __init__(self, directory: BackupDirectory, settings: BackupSettings, host: Host) -> None:
        self.directory = directory
        self._settings = settings
        self._network = host.network
        self._pid = host.pid
        self._clock = clock = host.clock
        self.state = S.BACKUP_QUERY
        self.on_state_changed: Callable[[BackupState, BackupState], None] = lambda old, new: None
        self._reason = "started"
        self._is_following = False
        """Whether the log comes, so that another query is nothing to tell of."""
        self._members = settings.members
        self._source: FoundSource | None = None
        self._avoided: dict[int, None] = {}
        """Members that failed since something came last."""
        self._snapshot: tuple[RecordedSnapshot, ...] = ()
        """One that is copied, and not noted while the log does not reach it."""
        self._commit_position = 0
        self._asked_end: tuple[int, int] | None = None
        """How far the leader had come when it was asked, and when that was; None once that much is here."""
        self._as_of_ms: int | None = None
        self._behind_since_ns: int | None = None
        self._moved_ns = clock.monotonic_ns()
        """When something was recorded last."""
        self._next_query_ms = clock.epoch_time()
        self._failure_count = 0
        self._last_failure = ""
        self._delay_s = settings.reset_delay_s

    def __repr__(self) -> str:
        return f"<BackupAgent {self.state.name} recorded={self.directory.recorded_position}>"

    # --- the states

    def _enter(self, new: BackupState, reason: str) -> None:
        old = self.state
        if old is new:
            return
        invariant(is_legal(old, new), "a backup goes on in order", old=old.name, new=new.name)
        self.state, self._reason = new, reason
        is_routine = self._is_following and new is not S.RESET_BACKUP
        self._is_following = new is not S.RESET_BACKUP and (self._is_following or new is S.BACKING_UP)
        log = logger.debug if is_routine else logger.warning if new is S.RESET_BACKUP else logger.info
        log(
            "backup.state_changed",
            old=old.name,
            new=new.name,
            reason=reason,
            source_member_id=None if self._source is None else self._source.member.member_id,
            recorded_position=self.directory.recorded_position,
        )
        self.on_state_changed(old, new)

    async def run(self) -> None:
        """Back up until cancelled; the log is closed in order then.

        Raises:
            BackupGapError: the members have removed what comes next here.
            ConfigurationError: the members are of another cluster than the directory.
            OSError: the own disk refused.
        """
        self._as_of_ms = await aiofiles.os.wrap(self._read_as_of)()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell(), name="backup-status")
                await self._run(group)
        except ExceptionGroup as errors:
            raise first_leaf(errors) from errors
        finally:
            self._source = None
            await self.directory.stop_log()
            self._enter(S.CLOSED, "stopped")
            self._write_status()

    async def _run(self, group: asyncio.TaskGroup) -> None:
        while True:
            attempt = group.create_task(self._attempt(), name="backup-attempt")
            # A task group of Python 3.11 that is cancelled while one of its tasks fails raises that failure alone: the
            # stop would be forgotten if this ran the attempt itself.
            await asyncio.wait((attempt,))
            failure = attempt.result()
            if failure is not None:
                if not isinstance(failure, ClusterError) or isinstance(failure, BackupGapError | ConfigurationError):
                    raise failure
                self._note_failure(failure)
            recording = self.directory.recording
            if recording is not None and recording.failure is not None:
                raise recording.failure
            await asyncio.sleep(self._delay_s)
            self._delay_s = min(2 * self._delay_s, self._settings.reset_delay_limit_s)
            self._enter(S.BACKUP_QUERY, "after a failure")

    def _note_failure(self, error: ClusterError) -> None:
        self._failure_count += 1
        self._last_failure = f"{type(error).__name__}: {error}"
        source, self._source = self._source, None
        if source is not None:
            self._avoided[source.member.member_id] = None
        if len(self._avoided) >= len(self._members):
            self._avoided.clear()
        self._enter(S.RESET_BACKUP, self._last_failure)

    async def _attempt(self) -> BaseException | None:
        """Back up until something fails, and give what."""
        try:
            await self._back_up()
        except ExceptionGroup as group:
            return first_leaf(group)
        except Exception as error:  # who runs the attempts raises it
            return error
        return None

    async def _back_up(self) -> None:
        """Go through all states once, and follow the log until something fails."""
        settings, directory = self._settings, self.directory
        source = self._source = await self._choose()
        answer = await self._ask(source)
        log_row, start_position = await self._check_log(source, answer)
        await self._retrieve_snapshot(source, answer)
        self._enter(S.LIVE_LOG_RECORD, f"log_recording_id={answer.log_recording_id}")
        recording = await directory.open_log(log_row, start_position)
        self._enter(S.LIVE_LOG_REPLAY, f"position={recording.append_position}")
        connection = await ArchiveConnection.dial(
            self._network,
            Endpoint.parse(source.member.archive),
            credentials=Credentials(),
            timeout_s=settings.answer_timeout_s,
            cluster_id=directory.cluster_id,
        )
        try:
            check_fit(await fetch_descriptor(connection, answer.log_recording_id), recording.descriptor)
            stream = await open_replay(
                connection,
                answer.log_recording_id,
                position=recording.append_position,
                stop_position=None,
                follow=True,
                limit_counter_id=answer.commit_counter_id,
                rules=frame_rules_of(recording.descriptor),
                timeout_s=settings.answer_timeout_s,
            )
            await self._update_recording_log(answer)
            self._enter(S.BACKING_UP, f"follows member {source.member.member_id}")
            asked = asyncio.Event()
            answered = asyncio.Condition()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(stream, recording, asked, answered), name="backup-log")
                group.create_task(self._query_again(asked, answered), name="backup-query")
        finally:
            connection.abort()

    async def _choose(self) -> FoundSource:
        settings, directory = self._settings, self.directory
        asked_ms = self._clock.epoch_time()
        try:
            found = await find_source(
                self._members,
                settings.source,
                cluster_id=directory.cluster_id,
                recorded_position=directory.recorded_position,
                avoided=self._avoided,
                network=self._network,
                timeout_s=settings.answer_timeout_s,
            )
        except NoSourceError as error:
            await self._learn_members(error.informed)
            raise
        cluster_id = parse_cluster_id(found.status.cluster_id or "")
        if cluster_id == NULL_CLUSTER_ID:
            raise ClusterError(f"member {found.member.member_id} does not know its cluster yet")
        await aiofiles.os.wrap(directory.adopt)(ClusterId(cluster_id))
        self._note_end(found, asked_ms)
        return found

    async def _learn_members(self, informed: Sequence[MemberEndpoints]) -> None:
        """Learn where the members are now: what was learned last may have been undone since, or they have moved.

        From one that knows, or else from the settings.
        """
        for member in informed:
            try:
                await self._ask_member(member)
            except ClusterError:
                continue
            return
        self._members = self._settings.members

    async def _ask_member(self, member: MemberEndpoints) -> BackupAnswer:
        answer = await ask_for_backup(
            member.consensus,
            cluster_id=self.directory.cluster_id,
            network=self._network,
            timeout_s=self._settings.answer_timeout_s,
        )
        if answer.members:
            self._members = answer.members
        return answer

    async def _ask(self, source: FoundSource) -> BackupAnswer:
        answer = await self._ask_member(source.member)
        self._next_query_ms = self._clock.epoch_time() + int(self._settings.query_interval_s * 1_000)
        return answer

    async def _check_log(self, source: FoundSource, answer: BackupAnswer) -> tuple[RecordingDescriptorRow, int]:
        """Find where the own log goes on, or is to begin.

        Raises:
            BackupGapError: the member begins after the own end.
        """
        directory = self.directory
        row = await self._describe(source, answer.log_recording_id)
        if directory.log_recording_id is None:
            start_position = row.start_position
            if self._settings.from_snapshot and answer.snapshot_position is not None:
                newest = answer.snapshot_position
                start_position = max(row.start_position, newest - newest % row.segment_file_length)
            if start_position and answer.snapshot_position is None:
                raise ClusterError(f"the log begins at {start_position}, and the member has no snapshot to begin with")
            return row, start_position
        if row.start_position > directory.recorded_position:
            raise BackupGapError(
                f"the log of member {source.member.member_id} begins at {row.start_position}, and this backup ends at "
                f"{directory.recorded_position}: what lies between is gone"
            )
        return row, directory.recorded_position

    async def _describe(self, source: FoundSource, recording_id: int) -> RecordingDescriptorRow:
        cluster_id = format_cluster_id(self.directory.cluster_id) or ""
        async with ArchiveClient.connect(source.member.archive, cluster_id=cluster_id, network=self._network) as client:
            return await client.list_recording(recording_id)

    # --- snapshots

    async def _retrieve_snapshot(self, source: FoundSource, answer: BackupAnswer) -> None:
        """Copy the member's newest snapshot, unless it is here."""
        directory, position = self.directory, answer.snapshot_position
        newest = max(directory.snapshot_positions, default=-1)
        waiting = self._snapshot[0].log_position if self._snapshot else -1
        if position is None or position <= max(newest, waiting):
            return
        until = [term for term in answer.terms if term.leadership_term_id <= answer.snapshot[0].leadership_term_id]
        check_offer(until, answer.snapshot, service_count=len(answer.snapshot) - 1)
        self._enter(S.SNAPSHOT_RETRIEVE, f"log_position={position}")
        copies = [replace(found, recording_id=await self._copy(source, found)) for found in answer.snapshot]
        self._snapshot = tuple(copies)
        logger.info("backup.snapshot_retrieved", log_position=position, source_member_id=source.member.member_id)

    async def _copy(self, source: FoundSource, found: RecordedSnapshot) -> int:
        """Copy one recording of a snapshot; give the id of the copy. What does not become whole is removed."""
        directory, settings = self.directory, self._settings
        remote = await self._describe(source, found.recording_id)
        recording = await directory.begin_copy(remote, found.stream_id)
        is_whole = False
        try:
            await replicate(
                source=Endpoint.parse(source.member.archive),
                network=self._network,
                src_recording_id=found.recording_id,
                recording=recording,
                stop_position=remote.stop_position,
                progress_timeout_s=settings.progress_timeout_s,
                cluster_id=directory.cluster_id,
            )
            await recording.stop()
            is_whole = True
        finally:
            if not is_whole and recording.failure is None:
                await recording.stop()
                await directory.archive.purge_recording(recording.recording_id)
        return recording.recording_id

    async def _update_recording_log(self, answer: BackupAnswer) -> None:
        """Note what is new, in the order in which a start needs it."""
        self._enter(
            S.UPDATE_RECORDING_LOG, f"terms up to {answer.terms[-1].leadership_term_id if answer.terms else -1}"
        )
        await self.directory.note_terms(answer.terms)
        await self._note_snapshot_if_reached()

    async def _note_snapshot_if_reached(self) -> None:
        if not self._snapshot or self._snapshot[0].log_position > self.directory.recorded_position:
            return
        snapshot, self._snapshot = self._snapshot, ()
        await self.directory.note_snapshot(snapshot, self._settings.retention)
        logger.info("backup.snapshot_noted", log_position=snapshot[0].log_position)

    # --- the log

    async def _follow(
        self, stream: FrameStream, recording: Recording, asked: asyncio.Event, answered: asyncio.Condition
    ) -> None:
        """Record what comes, for ever.

        Raises:
            ClusterError: the member is gone, or what it sends is not valid; what came before is recorded.
        """
        directory = self.directory
        while True:
            chunk = await stream.read()
            if not chunk:
                raise ArchiveError(f"the log of the member has ended at position={recording.append_position}")
            while chunk:
                length = find_first_unknown_term(chunk, directory.last_term_id)
                if length is None:
                    length = len(chunk)
                elif length == 0:
                    async with answered:
                        asked.set()
                        await answered.wait()
                    continue
                piece, chunk = chunk[:length], chunk[length:]
                recording.append(piece)
                recording.flush()
                ahead_bytes = AHEAD_LIMIT_BYTES if len(piece) >= _SMALL_CHUNK_BYTES else 0
                await recording.wait_recorded(recording.append_position - ahead_bytes)
            self._on_recorded(recording.recorded_position)
            await self._note_snapshot_if_reached()

    def _on_recorded(self, position: int) -> None:
        self._moved_ns = self._clock.monotonic_ns()
        self._delay_s = self._settings.reset_delay_s
        self._avoided.clear()
        self._note_commit(position)

    async def _query_again(self, asked: asyncio.Event, answered: asyncio.Condition) -> None:
        """Ask again after each interval, or when a term is not known: at once, and then soon again."""
        settings = self._settings
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.query_interval_s):
                    await asked.wait()
            self._enter(S.BACKUP_QUERY, "a term is not known yet" if asked.is_set() else "it is time")
            source = self._source
            assert source is not None
            if not asked.is_set():
                await self._look_at_others()
            answer = await self._ask(source)
            await self._retrieve_snapshot(source, answer)
            await self._update_recording_log(answer)
            self._enter(S.BACKING_UP, f"follows member {source.member.member_id}")
            async with answered:  # it looks for itself whether it knows enough now
                asked.clear()
                answered.notify_all()

    async def _look_at_others(self) -> None:
        """Leave a member that gets no further while others have more.

        Raises:
            ClusterTimeoutError: it is to be left.
        """
        directory, settings = self.directory, self._settings
        asked_ms = self._clock.epoch_time()
        found = await find_source(
            self._members,
            settings.source,
            cluster_id=directory.cluster_id,
            recorded_position=0,
            avoided=(),
            network=self._network,
            timeout_s=settings.answer_timeout_s,
        )
        self._note_end(found, asked_ms)
        stands_ns = self._clock.monotonic_ns() - max(self._moved_ns, self._behind_since_ns or 0)
        if self._behind_since_ns is not None and stands_ns > settings.progress_timeout_s * _NS_PER_S:
            raise ClusterTimeoutError(
                f"nothing came for {stands_ns / _NS_PER_S:.1f} s: recorded_position={directory.recorded_position} "
                f"commit_position={self._commit_position}"
            )

    # --- what is told

    def _note_end(self, found: FoundSource, asked_ms: int) -> None:
        """Take in how far the cluster had come at a time.

        An earlier answer waits until its log is here, so that the time goes on under any load. A leader that is not as
        far as the one before has replaced what that one had not committed.
        """
        end_position = found.leader_append_position
        if end_position is not None and (self._asked_end is None or end_position < self._asked_end[0]):
            self._asked_end = end_position, asked_ms
        self._note_commit(found.commit_position)

    def _note_commit(self, position: int) -> None:
        if self._asked_end is not None and self.directory.recorded_position >= self._asked_end[0]:
            self._as_of_ms, self._asked_end = self._asked_end[1], None
        self._commit_position = max(self._commit_position, position)
        if self._commit_position <= self.directory.recorded_position:
            self._behind_since_ns = None
        elif self._behind_since_ns is None:
            self._behind_since_ns = self._clock.monotonic_ns()

    async def _tell(self) -> None:
        while True:
            self._note_commit(0)
            await aiofiles.os.wrap(self._write_status)()
            await asyncio.sleep(STATUS_INTERVAL_S)

    def describe(self) -> BackupStatus:
        """Return how the backup is now."""
        directory, now_ns = self.directory, self._clock.monotonic_ns()
        positions, since_ns = directory.snapshot_positions, self._behind_since_ns
        return BackupStatus(
            state=self.state.name,
            reason=self._reason[:1_000],
            cluster_id=format_cluster_id(directory.cluster_id),
            source_member_id=None if self._source is None else self._source.member.member_id,
            log_start_position=directory.log_start_position,
            recorded_position=directory.recorded_position,
            commit_position=self._commit_position,
            as_of_ms=self._as_of_ms,
            behind_s=0.0 if since_ns is None else (now_ns - since_ns) / _NS_PER_S,
            snapshot_position=positions[-1] if positions else None,
            snapshot_count=len(positions),
            next_query_ms=self._next_query_ms,
            failure_count=self._failure_count,
            last_failure=self._last_failure[:1_000],
            pid=self._pid,
            written_ms=self._clock.epoch_time(),
        )

    def _read_as_of(self) -> int | None:
        """Read what the agent before has told: its log is still here."""
        try:
            return read_status(self.directory.path / "cluster", self.directory.disk).as_of_ms
        except ClusterError:
            return None

    def _write_status(self) -> None:
        write_status(self.directory.disk, self.directory.path / "cluster", self.describe())
