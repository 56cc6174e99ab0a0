"""Notes which ranges of a member's log are copied from whom, durably before the bytes are.

See `core.log.log_copies`. A source is asked what its own log is a copy of; until it answers, what it said last counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress

import aiofiles.os
import structlog

from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.net.transport import NetworkStack
from ....service_api.types import MemberId
from ...core.context import ConsensusContext
from ...core.log.log_copies import OPEN_END, LogCopies
from ...documents.query import query_status
from ..ground.activities import ActivityScope
from .log_copies_file import LogCopiesFile

_ANSWER_TIMEOUT_S = 5.0

logger = structlog.get_logger()


class CopyNotes:
    """The notes of one member about its copies."""

    def __init__(
        self,
        ctx: ConsensusContext,
        file: LogCopiesFile,
        *,
        network: NetworkStack,
        tasks: ActivityScope,
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._ctx, self._file, self._network, self._tasks = ctx, file, network, tasks
        self._on_failed = on_failed
        """Ends the member: its disk refused, and callers cannot tell that from a connection that failed."""
        self._written = file.copies.encode_text()
        self._writing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<CopyNotes {self._file.copies!r}>"

    async def begin(self, source_id: MemberId, position: int, stop_position: int = OPEN_END) -> None:
        """Note that a range is about to be copied from a member; durable when this returns.

        Raises:
            OSError: the disk refused.
        """
        told = self._ctx.told_copies.get(source_id, LogCopies())
        self._file.copies.note(position, stop_position, {source_id, *told.find_sources(position, stop_position)})
        await self.persist()
        self._tasks.create_task(self._ask(source_id, position, stop_position), name=f"ask-copies-{source_id}")

    def end(self, position: int) -> None:
        """Note that the copy which ran ended at a position: what follows comes live."""
        self._file.copies.drop(position, OPEN_END)

    async def cut(self, position: int) -> None:
        """Note that the log was cut back to a position.

        Raises:
            OSError: the disk refused.
        """
        self.end(position)
        await self.persist()

    def look(self) -> None:
        """Have written what has changed. It is less than the file says, so nobody waits for it."""
        if self._file.copies.encode_text() != self._written and not self._writing.locked():
            self._tasks.create_task(self._write(), name="log-copies")

    async def persist(self) -> None:
        """Write the notes; they are on disk when this returns.

        Raises:
            OSError: the disk refused.
        """
        async with self._writing:
            text = self._file.copies.encode_text()
            if text != self._written:
                try:
                    await aiofiles.os.wrap(self._file.persist)()
                except OSError as error:
                    self._on_failed(error)
                    raise
                self._written = text

    async def _write(self) -> None:
        """Write the notes where nobody waits for it."""
        with suppress(OSError):  # it has ended the member
            await self.persist()

    async def _ask(self, source_id: MemberId, position: int, stop_position: int) -> None:
        """Add what the source's own log is a copy of to what is left of the note."""
        try:
            address = self._ctx.roster.address_of(source_id)
            status = await query_status(address.consensus, _ANSWER_TIMEOUT_S, network=self._network)
            sources = LogCopies.decode_text(status.log_copies).find_sources(position, stop_position)
        except (ClusterError, RemoteProtocolError, OSError, KeyError) as error:
            logger.info("log_copies.source_silent", source_member_id=source_id, reason=str(error))
            return
        self._add(source_id, sources)
        await self._write()

    def _add(self, source_id: MemberId, sources: Iterable[MemberId]) -> None:
        copies, own_id = self._file.copies, self._ctx.config.member_id
        for each in [*copies.ranges]:
            if source_id in each.source_ids:
                copies.note(each.position, each.stop_position, each.source_ids.union(sources) - {own_id})
