"""Takes the snapshots that the consensus module asks for: those of the services first, then the module's.

Members write their snapshots at one position, so digests of what they wrote are compared: of a service without a
`state_hash` its own messages, and of the container and the consensus module together theirs. Markers are left out:
they name the version of the application, in which members may differ for a while.

It runs beside the turns. Delivery stands still meanwhile, so the service's state does not change, however often the
loop goes round; elections, heartbeats and the log go on. A service that raises, or ends its task or the process, costs
this member the snapshot and nothing else. A disk that fails stops the node, as it does anywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from hashlib import blake2b
from itertools import chain

import structlog

from trimaran.archive import Archive, ArchiveError
from trimaran.service_api import InvariantViolation, ServiceDivergedError, invariant
from trimaran.service_api.types import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, NULL_VALUE, SERVICE_SNAPSHOT_STREAM_ID
from trimaran.service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID, RecordingLogEntry
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMarker
from trimaran.service_api.wire.message import Message

from ...core import effects as fx
from ...core import events as ev
from ...messages.snapshot import ModuleMessage
from ...service.agent import ClusteredServiceAgent
from ...service.digests import DIGEST_BYTES
from ...service.failures import is_own_cancellation
from ..activities import ActivityScope
from ..watching.vitals import SnapshotCounts
from .snapshot_recording import SnapshotWriter

logger = structlog.get_logger()


class SnapshotTaker:
    """Records one snapshot at a time."""

    def __init__(
        self,
        archive: Archive,
        service: ClusteredServiceAgent,
        *,
        post: Callable[[object], None],
        on_failed: Callable[[BaseException], None],
        monotonic_ns: Callable[[], int],
        counts: SnapshotCounts,
        tasks: ActivityScope,
    ) -> None:
        self._archive = archive
        self._service = service
        self._post = post
        self._on_failed = on_failed
        self._monotonic_ns = monotonic_ns
        self._counts = counts
        self._tasks = tasks

    def __repr__(self) -> str:
        return f"<SnapshotTaker {self._service!r}>"

    def take(self, effect: fx.TakeSnapshot) -> None:
        """Begin to record the snapshot; how it ends comes back as an event."""
        self._tasks.create_task(self._take(effect), name=f"snapshot-{effect.log_position}")

    async def _take(self, effect: fx.TakeSnapshot) -> None:
        began_ns = self._monotonic_ns()
        logger.info("snapshot.started", log_position=effect.log_position, leadership_term_id=effect.leadership_term_id)
        digests: list[tuple[int, bytes]] = []
        module_digest = blake2b(digest_size=DIGEST_BYTES)
        try:
            service_ids = []
            for service_id, service in enumerate(self._service.services):
                digest = blake2b(digest_size=DIGEST_BYTES)
                recording_id = await self._record(
                    SERVICE_SNAPSHOT_STREAM_ID,
                    f"service-{service_id}-snapshot",
                    container_messages(self._service, service_id, effect),
                    partial(self._service.take_snapshot, service_id),
                    module_digest,
                    digest,
                )
                service_ids.append(recording_id)
                if not service.has_state_hash:
                    digests.append((service_id, digest.digest()))
            invariant(
                self._service.log_position == effect.log_position,
                "delivery stands still while a snapshot is taken",
                log_position=self._service.log_position,
                expected=effect.log_position,
            )
            module_id = await self._record(
                CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
                "consensus-module-snapshot",
                effect.module_messages,
                _nothing_else,
                module_digest,
            )
            if self._service.services:  # a witness knows less: it has no part in a comparison
                digests.append((NULL_VALUE, module_digest.digest()))
        except _ServiceFailedError as error:
            cause = error.__cause__
            logger.error("snapshot.failed", log_position=effect.log_position, error=repr(cause), exc_info=cause)
            self._counts.on_failed()
            self._post(ev.SnapshotFailed(effect.log_position, f"the service failed: {cause!r}"))
            return
        except Exception as error:
            self._on_failed(error)
            return
        duration_ns = self._monotonic_ns() - began_ns
        length_bytes = sum(map(self._archive.recorded_position, service_ids))
        self._counts.on_taken(duration_ns, length_bytes)
        logger.info(
            "snapshot.taken",
            log_position=effect.log_position,
            service_recording_ids=service_ids,
            module_recording_id=module_id,
            length_bytes=length_bytes,
            duration_ms=duration_ns // 1_000_000,
        )
        self._post(ev.SnapshotTaken(effect.log_position, tuple(service_ids), module_id))
        for service_id, value in digests:
            self._post(ev.SnapshotDigested(effect.log_position, service_id, value))

    async def _record(
        self,
        stream_id: int,
        alias: str,
        messages: Iterable[ModuleMessage],
        write_rest: Callable[[SnapshotWriter], Awaitable[None]],
        messages_digest: blake2b,
        rest_digest: blake2b | None = None,
    ) -> int:
        """Record one snapshot, durably, and digest it; give the id of the recording."""
        writer = await SnapshotWriter.start(
            self._archive, stream_id=stream_id, alias=alias, monotonic_ns=self._monotonic_ns
        )
        try:
            for message in messages:
                writer.digest = None if isinstance(message, SnapshotMarker) else messages_digest
                await writer.offer(message.encode())
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
