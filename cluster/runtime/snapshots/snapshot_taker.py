"""Takes the snapshots that the consensus module asks for: those of the services first, then the module's.

Members write their snapshots at one position, so digests of what they wrote are compared: of a service without a
`state_hash`, and of one that yields its state, its own messages, and of the container and the consensus module together
theirs. Markers are left out: they name the version of the application, in which members may differ for a while.

It runs beside the turns. Delivery stands still meanwhile, so the service's state does not change, however often the
loop goes round; elections, heartbeats and the log go on. A service that raises, or ends its task or the process, costs
this member the snapshot and nothing else. A disk that fails stops the node, as it does anywhere.

Of a service that yields its state, the first messages are made at once, and the rest, if there is any, in a copy of the
process (`state_copy`). Where every state is set aside like that, delivery goes on before anything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError
from ....service_api import InvariantViolation, ServiceDivergedError, invariant
from ....service_api.payloads import plain_bytes
from ....service_api.types import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, NULL_VALUE, SERVICE_SNAPSHOT_STREAM_ID
from ....service_api.users_code import calls_users_code
from ....service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID, RecordingLogEntry
from ....service_api.wire.log.snapshot_marker import SnapshotMarker
from ....service_api.wire.message import Message
from ...core import effects as fx
from ...core import events as ev
from ...messages.snapshot import ModuleMessage
from ...service.agent import ClusteredServiceAgent
from ...service.digests import MessageDigest
from ...service.failures import is_own_cancellation
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from ..ground.state_copy import SILENCE_LIMIT_S, CopyState, StateCopy, StateCopyError
from ..watching.snapshot_counts import SnapshotCounts
from .snapshot_recording import SnapshotWriter

SMALL_STATE_BYTES: Final = 1 << 20
_SMALL_STATE_NS: Final = 5_000_000
"""A state that takes less to encode is set aside in memory: a copy of the process takes longer."""

logger = structlog.get_logger()


@dataclass(slots=True)
class _Recorded:
    """What has come of one snapshot."""

    service_recording_ids: dict[int, int] = field(default_factory=dict)
    digests: list[tuple[int, bytes]] = field(default_factory=list)
    module_digest: MessageDigest = field(default_factory=MessageDigest)
    captured_ns: int | None = None
    """When delivery went on, if it did so before the end."""


@dataclass(slots=True, frozen=True)
class _State:
    """Where the messages of one service come from."""

    write: Callable[[SnapshotWriter], Awaitable[None]]
    is_apart: bool = False
    """Whether the service may change its state now."""
    copy: StateCopy | None = None


class SnapshotTaker:
    """Records one snapshot at a time."""

    def __init__(
        self,
        archive: Archive,
        service: ClusteredServiceAgent,
        *,
        agent: AgentDoor,
        monotonic_ns: Callable[[], int],
        counts: SnapshotCounts,
        tasks: ActivityScope,
        copy_state: CopyState | None = None,
    ) -> None:
        self._archive = archive
        self._service = service
        self._agent = agent
        self._monotonic_ns = monotonic_ns
        self._counts = counts
        self._tasks = tasks
        self._copy_state = copy_state

    def __repr__(self) -> str:
        return f"<SnapshotTaker {self._service!r}>"

    def take(self, effect: fx.TakeSnapshot) -> None:
        """Begin to record the snapshot; how it ends comes back as an event."""
        self._tasks.create_task(self._take(effect), name=f"snapshot-{effect.log_position}")

    async def _take(self, effect: fx.TakeSnapshot) -> None:
        began_ns = self._monotonic_ns()
        logger.info("snapshot.started", log_position=effect.log_position, leadership_term_id=effect.leadership_term_id)
        recorded = _Recorded()
        try:
            await self._record_services(effect, recorded)
            module_id = await self._record(
                CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
                "consensus-module-snapshot",
                _encode(effect.module_messages, recorded.module_digest),
                _nothing_else,
            )
        except _ServiceFailedError as error:
            cause = error.__cause__
            logger.error("snapshot.failed", log_position=effect.log_position, error=repr(cause), exc_info=cause)
            self._counts.on_failed()
            self._agent.post(ev.SnapshotFailed(effect.log_position, f"the service failed: {cause!r}"))
            return
        except Exception as error:
            self._agent.terminate(error)
            return
        service_ids = [recording_id for _, recording_id in sorted(recorded.service_recording_ids.items())]
        end_ns = self._monotonic_ns()
        duration_ns, length_bytes = end_ns - began_ns, sum(map(self._archive.recorded_position, service_ids))
        stop_ns = (recorded.captured_ns or end_ns) - began_ns
        self._counts.on_taken(duration_ns, length_bytes, stop_ns)
        logger.info(
            "snapshot.taken",
            log_position=effect.log_position,
            service_recording_ids=service_ids,
            module_recording_id=module_id,
            length_bytes=length_bytes,
            duration_ms=duration_ns // 1_000_000,
            stop_ms=stop_ns // 1_000_000,
        )
        self._agent.post(ev.SnapshotTaken(effect.log_position, tuple(service_ids), module_id))
        digests = sorted(recorded.digests)
        if self._service.services:  # a witness knows less: it has no part in a comparison
            digests.append((NULL_VALUE, recorded.module_digest.digest()))
        for service_id, value in digests:
            self._agent.post(ev.SnapshotDigested(effect.log_position, service_id, value))

    async def _record_services(self, effect: fx.TakeSnapshot, recorded: _Recorded) -> None:
        """Record the state of every service; those that are set aside last, when delivery goes on again."""
        states: list[_State] = []
        try:
            # One by one: where one fails, those before it are closed.
            states.extend(map(self._set_aside, range(len(self._service.services))))
            containers = [
                _encode(container_messages(self._service, service_id, effect), recorded.module_digest)
                for service_id in range(len(states))
            ]
            for service_id, state in sorted(enumerate(states), key=lambda each: each[1].is_apart):
                if state.is_apart and recorded.captured_ns is None:
                    self._check_position(effect)
                    recorded.captured_ns = self._monotonic_ns()
                    self._agent.post(ev.SnapshotCaptured(effect.log_position))
                digest = MessageDigest()
                recorded.service_recording_ids[service_id] = await self._record(
                    SERVICE_SNAPSHOT_STREAM_ID,
                    f"service-{service_id}-snapshot",
                    containers[service_id],
                    state.write,
                    digest,
                )
                service = self._service.services[service_id]
                if service.yields_snapshots or not service.has_state_hash:
                    recorded.digests.append((service_id, digest.digest()))
        finally:
            for state in states:
                if state.copy is not None:
                    await aiofiles.os.wrap(state.copy.close)()
        if recorded.captured_ns is None:
            self._check_position(effect)

    @calls_users_code
    def _set_aside(self, service_id: int) -> _State:
        """Take the state of a service as it is now, if the service yields it.

        Raises:
            _ServiceFailedError: the service failed.
        """
        service = self._service.services[service_id]
        if not service.yields_snapshots:
            return _State(partial(self._service.take_snapshot, service_id))
        began_ns, length_bytes, head = self._monotonic_ns(), 0, []
        try:
            messages = iter(service.snapshot_messages())
            for message in messages:
                head.append(bytes(plain_bytes("message", message)))
                length_bytes += len(head[-1])
                if length_bytes >= SMALL_STATE_BYTES or self._monotonic_ns() - began_ns >= _SMALL_STATE_NS:
                    break
            else:
                return _State(partial(_write_all, head, None), is_apart=True)
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            raise _ServiceFailedError from error
        if self._copy_state is not None:
            try:
                copy = self._copy_state(messages)
            except OSError as error:
                logger.warning("snapshot.not_copied", service_id=service_id, error=repr(error))
            else:
                return _State(partial(_write_all, head, copy), is_apart=True, copy=copy)
        return _State(partial(_write_here, head, messages))

    def _check_position(self, effect: fx.TakeSnapshot) -> None:
        invariant(
            self._service.log_position == effect.log_position,
            "delivery stands still until the state is written or set aside",
            log_position=self._service.log_position,
            expected=effect.log_position,
        )

    async def _record(
        self,
        stream_id: int,
        alias: str,
        messages: Iterable[bytes],
        write_rest: Callable[[SnapshotWriter], Awaitable[None]],
        rest_digest: MessageDigest | None = None,
    ) -> int:
        """Record one snapshot, durably; give the id of the recording."""
        writer = await SnapshotWriter.start(
            self._archive, stream_id=stream_id, alias=alias, monotonic_ns=self._monotonic_ns
        )
        try:
            for message in messages:
                await writer.offer(message)
            writer.digest = rest_digest
            await write_rest(writer)
        except (ArchiveError, InvariantViolation, ServiceDivergedError):
            raise
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            # What there is of it is in no recording log: should this not be reached, the next start removes it.
            await self._archive.purge_recording(await writer.finish())
            raise _ServiceFailedError from error
        return await writer.finish()


def container_messages(container: ClusteredServiceAgent, service_id: int, effect: fx.TakeSnapshot) -> Iterable[Message]:
    """What a container writes before the service: the sessions, and with the first service the kept replies."""
    if service_id != 0:
        return effect.service_messages
    *sessions, end_marker = effect.service_messages
    return chain(sessions, container.requests.snapshot_messages(), [end_marker])


def find_length_bytes(archive: Archive, entries: Iterable[RecordingLogEntry]) -> int | None:
    """Return how long the services' recordings of a snapshot are together; None if there is none, or no recording."""
    ids = [entry.recording_id for entry in entries if entry.service_id != CONSENSUS_MODULE_SERVICE_ID]
    try:
        return sum(map(archive.recorded_position, ids)) if ids else None
    except ArchiveError:
        return None


class _ServiceFailedError(Exception):
    """The service raised while it wrote its snapshot; the cause says what."""


async def _nothing_else(writer: SnapshotWriter) -> None:
    """The snapshot of a consensus module ends with its last marker."""


async def _write_all(messages: list[bytes], copy: StateCopy | None, writer: SnapshotWriter) -> None:
    """Write messages that were made, and then those of a copy."""
    for message in messages:
        await writer.offer(message)
    messages.clear()
    while copy is not None and (batch := await _read_batch(copy)):
        for message in batch:
            await writer.offer(message)


async def _read_batch(copy: StateCopy) -> list[bytes]:
    try:
        async with asyncio.timeout(SILENCE_LIMIT_S):
            return await aiofiles.os.wrap(copy.read_batch)()
    except TimeoutError as error:
        raise StateCopyError(f"the copy of the process sent nothing for {SILENCE_LIMIT_S} s") from error


@calls_users_code
async def _write_here(messages: list[bytes], rest: Iterator[bytes], writer: SnapshotWriter) -> None:
    """Write messages that were made, and then those that are made here."""
    for message in chain(messages, rest):
        await writer.offer(message)


def _encode(messages: Iterable[Message | ModuleMessage], digest: MessageDigest) -> list[bytes]:
    """Encode messages, and digest all but markers."""
    encoded = []
    for message in messages:
        encoded.append(data := message.encode())
        if not isinstance(message, SnapshotMarker):
            digest.update(data)
    return encoded
