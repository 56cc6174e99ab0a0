"""Reading the committed log of a cluster that runs, from the archive of its leader.

How far the log is committed the members say themselves; so each round asks them, then replays what has become committed
since from the leader's archive. A new leader has the same bytes at the same positions: the reading goes on there.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from ....archive.errors import ArchiveError, below_oldest
from ....archive.files.reader import RecordedMessage
from ....archive.net.client import ArchiveClient
from ....archive.reading.message_view import Vocabulary
from ....archive.tool.commands.rows import MessageRows
from ....archive.tool.output import EXIT_NO_LEADER, EXIT_UNREACHABLE, fail
from ....service_api.documents.member_status import leads
from ....service_api.net.transport import SOCKETS, NetworkStack
from ....service_api.types import LOG_STREAM_ID
from ...documents.inspection import ROW_LIMIT, MembersView
from ...settings.member_endpoints import MemberEndpoints
from .inspection import UnreachableError, ask_for_best
from .watching import pause

ROUND_INTERVAL_S: Final = 0.2
BATCH_LIMIT: Final = 4096
"""How many entries are held at once: from an old position on there may be any number."""


class _Batch(NamedTuple):
    """Entries that are committed, and where they end."""

    recording_id: int
    messages: list[RecordedMessage]
    end_position: int
    commit_position: int
    """How much was committed when they were read: more than these, where they are many."""


class ClusterLog:
    """The committed log, as the cluster's leader has it."""

    def __init__(
        self, members: Sequence[MemberEndpoints], timeout_s: float, *, network: NetworkStack = SOCKETS
    ) -> None:
        self._network = network
        self._members = members
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<ClusterLog members={len(self._members)}>"

    def rows(
        self, count: int, vocabulary: Vocabulary, *, is_followed: bool, begin: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of `batches`, each as it comes."""
        for recording_id, batch in self.batches(count, is_followed=is_followed, begin=begin):
            rows = MessageRows.of_log(recording_id, LOG_STREAM_ID, vocabulary)
            yield from map(rows.row, batch)
            sys.stdout.flush()

    def batches(
        self, count: int, *, is_followed: bool, begin: int | None = None
    ) -> Iterator[tuple[int, list[RecordedMessage]]]:
        """Yield the last committed entries, at most those of one term buffer, or those from `begin` on; then what is
        committed since.

        With them goes the id of the leader's recording.
        While it is followed a cluster without a leader is waited for.
        """
        try:
            batch = asyncio.run(self._last_entries(count) if begin is None else self._first_entries(begin))
        except (UnreachableError, ArchiveError) as error:
            fail(str(error), EXIT_UNREACHABLE)
        if batch is None:
            fail("no leader: run `trimaran status` to see each member", EXIT_NO_LEADER)
        yield batch.recording_id, batch.messages
        position, is_at_end = batch.end_position, batch.end_position == batch.commit_position
        wanted_position = batch.commit_position
        while is_followed or position < wanted_position:
            if is_at_end:
                pause(ROUND_INTERVAL_S)
            is_at_end = True
            try:
                batch = asyncio.run(self._entries_since(position))
            except (UnreachableError, ArchiveError) as error:
                if is_followed:
                    continue
                fail(str(error), EXIT_UNREACHABLE)
            if batch is None and not is_followed:
                fail(f"the leader was lost at position={position}: go on with --from {position}", EXIT_NO_LEADER)
            if batch is not None:
                yield batch.recording_id, batch.messages
                position, is_at_end = batch.end_position, batch.end_position == batch.commit_position

    async def _last_entries(self, count: int) -> _Batch | None:
        view = await self._ask()
        if not leads(view):
            return None
        async with self._connect(view) as client:
            descriptor = await client.list_recording(view.log_recording_id)
        term_length, end = descriptor.term_buffer_length, view.commit_position
        messages: deque[RecordedMessage] = deque(maxlen=count)
        base = end - end % term_length
        for earliest in (base, base - term_length):
            start = max(earliest, descriptor.start_position)
            messages = deque(maxlen=count)
            async for message in self._read(view, start, end):
                messages.append(message)
            if len(messages) == count:
                break
        return _Batch(view.log_recording_id, list(messages), end, end)

    async def _first_entries(self, begin: int) -> _Batch | None:
        view = await self._ask()
        if not leads(view):
            return None
        async with self._connect(view) as client:
            oldest_position = (await client.list_recording(view.log_recording_id)).start_position
        if begin < oldest_position:
            fail(str(below_oldest(view.log_recording_id, position=begin, oldest_position=oldest_position)))
        return await self._entries_since(begin)

    async def _entries_since(self, position: int) -> _Batch | None:
        view = await self._ask()
        end = view.commit_position
        if not leads(view):
            return None
        if end <= position:
            return _Batch(view.log_recording_id, [], position, position)
        messages: list[RecordedMessage] = []
        async for message in self._read(view, position, end):
            messages.append(message)
            if len(messages) == BATCH_LIMIT:
                return _Batch(view.log_recording_id, messages, message.end_position, end)
        return _Batch(view.log_recording_id, messages, end, end)

    async def _ask(self) -> MembersView:
        endpoints = {member.member_id: member.consensus for member in self._members}
        return await ask_for_best(
            endpoints, MembersView, self._timeout_s, offset=0, limit=ROW_LIMIT, network=self._network
        )

    def _connect(self, view: MembersView) -> AbstractAsyncContextManager[ArchiveClient]:
        endpoint = next(member.archive for member in self._members if member.member_id == view.answered_by)
        return ArchiveClient.connect(
            endpoint, client_info="trimaran log", timeout_s=self._timeout_s, network=self._network
        )

    async def _read(self, view: MembersView, start: int, end: int) -> AsyncIterator[RecordedMessage]:
        """Yield the messages of [start, end); both are where a message begins or ends."""
        if start == end:
            return
        async with self._connect(view) as client:
            replay = client.replay(view.log_recording_id, position=start, stop_position=end)
            async for message in replay:
                yield message
