"""A user's service at any position of a log: the newest snapshot at or below it, then the log up to it.

What a member does when it starts is done here with a directory alone: the same snapshot is read, the same container
and the same adapter deliver the same entries. So the state is the one that every member had after it delivered that
position; and what a member that follows discards, the service's messages to clients, is given to callers that ask.

One entry is delivered after another: a position within a message stands for the end of the message before it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...service_api import ClusteredService, ConfigurationError, SnapshotPublication
from ...service_api.quantities import time_in_unit
from ...service_api.session import ClientSession
from ...service_api.types import ClusterSessionId, TimeUnit
from ...service_api.wire.frame import iter_headers, unpack_header
from ..core import effects as fx
from ..core.events import SnapshotFailed
from ..core.vocabulary.feature_levels import find_known_level
from ..runtime.snapshots.recovery import Recovered, read_snapshots
from ..service.bounded_log_adapter import BoundedLogAdapter
from ..service.kept_snapshot import KeptPublication
from .container import Bystander, Recorder, ReplayedContainer, make_module
from .member_log import READ_BYTES, Bound, MemberLog, SnapshotSet
from .outputs import CallbackFailure, OutputKind, Sink
from .services import ServiceLike, make_services
from .witness import LogWitness

T = TypeVar("T")

SnapshotChoice = Literal["newest", "oldest", "none"] | int
"""Where a replay begins: the newest snapshot that serves, as early as can be, the log's begin, or at a snapshot."""

Progress = Callable[[int], None]
"""Told how many bytes more of the log were delivered."""

QUEUE_LIMIT_BYTES = 64 << 20
"""What a service may have offered and not delivered, as a node's `service_queue_limit_bytes` has it by default."""


class ReplayedService:
    """A service with the state that it had at a position of the log. `advance` delivers more of it."""

    def __init__(
        self,
        log: MemberLog,
        services: Sequence[ClusteredService],
        start: SnapshotSet | None,
        *,
        end_position: int,
        sink: Sink | None = None,
        member_id: int = 0,
        shared_timer_ids: bool | None = None,
        service_queue_limit_bytes: int = QUEUE_LIMIT_BYTES,
        app_version: int = 1,
        step_bytes: int = READ_BYTES,
        witness: LogWitness | None = None,
    ) -> None:
        self._log = log
        self._end_position = end_position
        self._step_bytes = step_bytes
        self._recorder = Recorder(sink)
        self._module = make_module(
            log,
            service_count=len(services),
            shared_timer_ids=log.is_by_aeron if shared_timer_ids is None else shared_timer_ids,
            service_queue_limit_bytes=service_queue_limit_bytes,
            app_version=app_version,
            known_level=find_known_level(services),
        )
        self.container = ReplayedContainer(
            services,
            self._module,
            self._recorder,
            member_id=member_id,
            time_unit=log.time_unit,
            group=log.group,
        )
        self._module.ctx.cluster_clock.use_unit(log.time_unit)
        self._chunk, self._chunk_position = b"", 0
        self._witness = witness
        self._adapter = BoundedLogAdapter(
            self._module.ctx.log_buffer, self, self.container, self._module if witness is None else witness
        )
        self.snapshot_action: fx.TakeSnapshot | None = None
        """What a member records of sessions and module here, where the log says that a snapshot is to be taken."""
        self.divergences: list[str] = []
        """Where the log holds other messages of services than these have offered: told the 1st, 2nd, 4th, 8th time."""
        self.start_position = log.log.start_position if start is None else start.log_position
        """Where the replay began."""
        self._adapter.start_from(self.start_position)
        self._module.ctx.skipped_entries = log.skipped_entries(self.start_position, end_position)
        self._adapter.know_skips(self._module.ctx.skipped_entries)
        self.container.log_position = self.start_position
        run_coroutine(self._start(start))

    def __repr__(self) -> str:
        return f"<ReplayedService {self.service!r} log_position={self.log_position} time={self.cluster_time}>"

    @property
    def service(self) -> ClusteredService:
        """The user's object; of several the first. `services` has all of them."""
        return self.container.receiver

    @property
    def services(self) -> tuple[ClusteredService, ...]:
        """Every service of the node, by id; a `Bystander` for each that is not replayed."""
        return self.container.services

    @property
    def log_position(self) -> int:
        """The end of the entry that was delivered last, or where the snapshot was taken, in bytes."""
        return self.container.log_position

    @property
    def delivered_position(self) -> int:
        """How far the log was delivered, in bytes: further than `log_position` where padding or fragments follow."""
        return self._adapter.position

    @property
    def end_position(self) -> int:
        """How far `advance` may go."""
        return self._end_position

    @property
    def cluster_time(self) -> int:
        """Cluster time of the entry that was delivered last, in `time_unit`."""
        return self.container.time

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of cluster time and of deadlines."""
        return self.container.time_unit

    @property
    def leadership_term_id(self) -> int:
        """The term of the entry that was delivered last; -1 before the first."""
        return self.container.leadership_term_id

    @property
    def feature_level(self) -> int:
        """The feature level that is in force behind the entry that was delivered last."""
        return self.container.feature_level

    @property
    def sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open client sessions by id."""
        return self.container.client_sessions

    @property
    def timers(self) -> list[tuple[int, int]]:
        """The timers that are set, as (correlation_id, deadline), by deadline; the ids are those of the log."""
        return self._module.timers.pending()

    @property
    def output_counts(self) -> Mapping[OutputKind, int]:
        """How many outputs of each kind there were since the replay began."""
        return self._recorder.counts

    @property
    def errors(self) -> Sequence[CallbackFailure]:
        """What callbacks raised, the first hundred."""
        return self._recorder.errors

    @property
    def error_count(self) -> int:
        """How often callbacks raised."""
        return self._recorder.counts[OutputKind.ERROR]

    def advance(self, position: int | None = None, *, on_progress: Progress = lambda count: None) -> None:
        """Deliver the log up to a position; to its end without one.

        Raises:
            ConfigurationError: the position is behind the end, or was passed already.
            ClusterError: the log cannot be read so far.
        """
        target = self._end_position if position is None else position
        if target < self.log_position or target > self._end_position:
            raise ConfigurationError(f"position={target} expected {self.log_position} to {self._end_position}")
        try:
            while self.step(target, on_progress=on_progress):
                pass
        finally:
            self._log.close_files()

    def step(self, target: int, *, is_single: bool = False, on_progress: Progress = lambda count: None) -> bool:
        """Deliver some of the log, not beyond `target`: `step_bytes` of it, or one frame. False when nothing was left.

        Raises:
            ClusterError: the log cannot be read so far.
        """
        adapter = self._adapter
        begin = adapter.position
        if begin >= target:
            return False
        if not self._chunk_position <= begin < self._chunk_position + len(self._chunk):
            log = self._log
            self._chunk = log.read(log.log.recording_id, begin, self._step_bytes, stop_position=log.recorded_position)
            self._chunk_position = begin
        offset = begin - self._chunk_position
        chunk = self._chunk[offset:] if offset else self._chunk
        limit = unpack_header(chunk).aligned_length if is_single else len(chunk)
        limit = min(limit, target - begin)
        if limit < len(chunk):
            frames = iter_headers(memoryview(chunk)[:limit])
            limit = max((start + header.aligned_length for start, header in frames), default=0)
        adapter.advance_limit(begin + limit)
        if adapter.limit_position == begin:
            return False
        self._resume()
        while adapter.poll(self._step_bytes) or (adapter.is_paused and adapter.position < adapter.limit_position):
            self._perform()
            if adapter.is_paused:
                self._resume()
        self._perform()
        on_progress(adapter.position - begin)
        return True

    def snapshot_messages(self, service_id: int | None = None) -> list[bytes]:
        """Have a service write its state, as `on_take_snapshot` does, and give the messages.

        Raises:
            Exception: what the service raises, such as `LocalProtocolError` where it writes no snapshots.
        """
        publication = KeptPublication()
        self.write_snapshot(publication, service_id)
        return publication.messages

    def write_snapshot(self, publication: SnapshotPublication, service_id: int | None = None) -> None:
        """Have a service, the user's unless told, write its state; otherwise as `snapshot_messages`."""
        index = self.services.index(self.service) if service_id is None else service_id
        run_coroutine(self.container.take_snapshot(index, publication))

    # --- a `LogReader`, for the adapter

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Return the rest of the chunk that is being delivered."""
        return self._chunk[position - self._chunk_position :]

    # --- as a node does it

    async def _start(self, start: SnapshotSet | None) -> None:
        if start is not None:
            self._restore(await read_snapshots(self._log, start.entries))
        if self._witness is not None:
            self._witness.attach(self._module, self.container)
        await self.container.start()

    def _restore(self, recovered: Recovered) -> None:
        self._module.snapshots.restore(recovered.module, recovered.clients, recovered.timestamp)
        if recovered.module.members is not None:
            self.container.group = recovered.module.members.group
        self.container.restore(
            recovered.clients,
            recovered.images,
            closing=[s.cluster_session_id for s in recovered.module.sessions if s.close_reason is not None],
            replies=recovered.replies,
            log_position=recovered.log_position,
            timestamp=recovered.timestamp,
            feature_level=recovered.module.feature_levels.feature_level,
        )
        self.container.leadership_term_id = recovered.module.leadership_term_id

    def _perform(self) -> None:
        for effect in self._module.take_effects():
            if isinstance(effect, fx.TakeSnapshot):
                self.snapshot_action = effect
            elif isinstance(effect, fx.ServiceDiverged) and self._is_replayed(effect.service_id):
                self.divergences.append(f"position={self._adapter.position}: {effect.detail}")

    def _is_replayed(self, service_id: int) -> bool:
        return service_id < len(self.services) and not isinstance(self.services[service_id], Bystander)

    def _resume(self) -> None:
        """Go on behind a snapshot action: none is recorded here."""
        action, self.snapshot_action = self.snapshot_action, None
        if self._adapter.is_paused and action is not None:
            self._module.step(SnapshotFailed(action.log_position, "a replay records none"), now_ns=0, timestamp=0)
            self._module.take_effects()
            self._adapter.resume()


def replay_service(
    directory: Path | str | MemberLog,
    service: ServiceLike | ClusteredService | Sequence[ServiceLike | ClusteredService],
    *,
    position: int | None = None,
    time: int | datetime | None = None,
    snapshot: SnapshotChoice = "newest",
    service_id: int = 0,
    service_count: int | None = None,
    bound: Bound = "committed",
    sink: Sink | None = None,
    on_progress: Progress = lambda count: None,
    service_dir: Path | str = ".",
    member_id: int = 0,
    shared_timer_ids: bool | None = None,
    service_queue_limit_bytes: int = QUEUE_LIMIT_BYTES,
) -> ReplayedService:
    """Replay a member's log to a service: its state as of `position`, as of `time`, or of the newest entry.

    `directory` is a member's, which may run, or a real Aeron member's; nothing in it is changed. `service` is an
    object, a class, or `module:Class` in `service_dir`; a sequence of them where a node ran several. One of several
    alone is told apart by `service_id`; the others then do nothing, and its replies are told although another service's
    may have been sent. `time` is a number in the log's unit, or a date: the state is that after all entries of this
    time and before.

    `snapshot` says where to begin: with the `newest` one at or below the position, as early as can be (`oldest`), with
    the log (`none`), or with the one at a position. `bound` says how far the log counts: as far as this directory knows
    it to be committed, as far as it is recorded, or to a position. `sink` is told every output. The last three are as
    the node's settings; timer ids are shared where Aeron wrote the log.

    Raises:
        ConfigurationError: a position, time or snapshot that is not there, or a service that cannot be loaded.
        ClusterError: a file is damaged; the error says where.
        Exception: what the service raises when it loads its state.
    """
    log = directory if isinstance(directory, MemberLog) else MemberLog.open(directory)
    services = make_services(
        service, directory=Path(service_dir), service_id=service_id, service_count=service_count, log=log
    )
    end_position = log.end_of(bound)
    target = find_target(log, position=position, time=time, end_position=end_position)
    replayed = ReplayedService(
        log,
        services,
        choose_snapshot(log, snapshot, service_count=len(services), target=target),
        end_position=end_position,
        sink=sink,
        member_id=member_id,
        shared_timer_ids=shared_timer_ids,
        service_queue_limit_bytes=service_queue_limit_bytes,
    )
    replayed.advance(target, on_progress=on_progress)
    return replayed


def find_target(log: MemberLog, *, position: int | None, time: int | datetime | None, end_position: int) -> int:
    """Find the position that a position, a time or neither stands for.

    Raises:
        ConfigurationError: both are given, or what is given is not in the log.
    """
    if position is not None and time is not None:
        raise ConfigurationError(f"position={position} time={time}: expected one of them")
    if time is not None:
        ticks = time_in_unit(time, log.time_unit)
        found = log.position_at(ticks, end_position=end_position)
        if found == log.log.start_position and found > 0:
            raise ConfigurationError(f"time={ticks} is before the log begins, at start_position={found}")
        return found
    if position is None:
        return end_position
    if not 0 <= position <= end_position:
        behind = "" if position > log.recorded_position else "; it is recorded: set bound to recorded"
        raise ConfigurationError(
            f"position={position} expected 0 to {end_position}, where the log that counts ends "
            f"(committed_position={log.committed_position} recorded_position={log.recorded_position}){behind}"
        )
    return position


def choose_snapshot(log: MemberLog, choice: SnapshotChoice, *, service_count: int, target: int) -> SnapshotSet | None:
    """Choose where the replay to `target` begins; None is the begin of the log, which may have a snapshot of its own.

    Raises:
        ConfigurationError: there is no such snapshot, or the log does not begin where the replay would.
    """
    found = log.snapshots(service_count)
    positions = [snapshot.log_position for snapshot in found]
    usable = [snapshot for snapshot in found if snapshot.log_position <= target]
    if isinstance(choice, int):
        chosen = next((snapshot for snapshot in usable if snapshot.log_position == choice), None)
        if chosen is None:
            raise ConfigurationError(
                f"snapshot={choice} expected one of {positions} at or below position={target}, newest, oldest or none"
            )
        return chosen
    if choice not in ("newest", "oldest", "none"):
        raise ConfigurationError(f"snapshot={choice!r} expected newest, oldest, none or a position of {positions}")
    if choice == "newest" and usable:
        return usable[-1]
    if choice == "oldest" and usable and log.log.start_position > 0:
        return usable[0]
    if log.log.start_position > 0:
        raise ConfigurationError(
            f"the log begins at start_position={log.log.start_position}, earlier entries were purged: there is no "
            f"state at position={target} with snapshot={choice}; snapshots are at {positions}"
        )
    if not log.is_seeded:
        return None
    if not usable or usable[0].log_position > 0:
        raise ConfigurationError(
            "the log begins with the state of a snapshot, and no valid snapshot has it: there is no state at "
            f"position={target} with snapshot={choice}; snapshots are at {positions}"
        )
    return usable[0]


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:  # Any: what a coroutine yields and is sent
    """Run a coroutine to its end, also where a loop runs in this thread already, as in a notebook.

    Raises:
        BaseException: what the coroutine raised.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(coroutine))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="replay")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
