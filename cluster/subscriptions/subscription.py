"""A subscription: the committed entries of the log from a position on, each once, from whichever member has them.

The problem: members die, lead, follow, stop their recordings at elections, and prune their logs. A subscriber wants
none of it: only the next committed entry.
The idea: a position names an entry, and up to its commit position every member has the same bytes. So a subscription is
a position and nothing else. It reads from one member until that fails, then from another one at the position after the
last entry that it has handed out.

Exactly once: an entry is handed out if it begins where the one before ended, or after, and never again. What a program
does with an entry before it has stored `position` it does again after a restart.

Bounds: one chunk of the log (1 MiB) and one message. A subscriber that does not read on leaves the rest to TCP: the
member sends no more, and holds nothing for it. When the member prunes what the subscriber has yet to read, the
subscriber learns it by `PositionPrunedError`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from random import SystemRandom
from typing import Final, Generic, Protocol, Self, TypeVar

from ...archive.errors import ArchiveError, ArchiveErrorCode
from ...archive.files.reader import MessageJoiner, RecordedMessage
from ...archive.net.replay_reader import split_frames
from ...service_api.cluster_id import parse_cluster_id
from ...service_api.connecting import ClosedAtExit
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterError, ConfigurationError, LocalProtocolError
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.tls import TlsSettings, client_network
from ...service_api.typed.log_schemas import LogSchemas, announced_schema
from ...service_api.wire.frame import FLAG_BEGIN, FRAME_ALIGNMENT, TYPE_DATA
from .entries import EntryFilter, EntryKind, LogEntry
from .errors import NoEntryAtPositionError
from .log_source import FIRST_PAUSE_S, LONGEST_PAUSE_S, Beginning, LogSource, OpenLog, ServedBy, Start

_TYPED_KINDS: Final = (EntryKind.MESSAGE, EntryKind.REQUEST, EntryKind.SERVICE_MESSAGE, EntryKind.TOPIC)
_MISPLACED_LIMIT: Final = 2
"""Members that say in a row that nothing begins at a position before that is believed."""


class _Positioned(Protocol):
    @property
    def end_position(self) -> int: ...


EntryT = TypeVar("EntryT", bound=_Positioned)


class LogReading(ClosedAtExit, Generic[EntryT]):
    """Iterates over what `choose` makes of the committed messages of the log; a None of it is passed over."""

    def __init__(
        self,
        source: LogSource,
        *,
        start: Beginning,
        choose: Callable[[RecordedMessage], EntryT | None],
        reconnect_timeout_s: float,
    ) -> None:
        self._source = source
        self._start: Beginning = start
        """Where the log is read on."""
        self._choose = choose
        self._reconnect_timeout_s = reconnect_timeout_s
        self._position: int | None = start if isinstance(start, int) else None
        self._ready: deque[EntryT] = deque()
        self._log: OpenLog | None = None
        self._joiner = MessageJoiner()
        self._is_at_start = True
        """Whether no frame has been seen since the position that the caller named."""
        self._misplaced_count = 0
        self._pause_s = FIRST_PAUSE_S
        self._is_reading = self._is_closed = False

    def __repr__(self) -> str:
        served = "nobody" if self._log is None else f"member {self._log.member_id}"
        return f"<{type(self).__name__} position={self._position} from {served}>"

    @property
    def position(self) -> int | None:
        """Where to go on after a restart: behind everything that was handed out, or passed over by the filter.

        None before the first read of a subscription that began without a position.
        """
        return self._position

    @property
    def served_by_member_id(self) -> int | None:
        """The member that is read from; None while there is none."""
        return None if self._log is None else self._log.member_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EntryT:
        """Return the next entry, when there is one.

        Raises:
            PositionPrunedError: no member that can be reached keeps the log at the position any more.
            PositionBeyondEndError: the position is beyond what is committed.
            NoEntryAtPositionError: no entry begins there.
            SubscriptionRefusedError: this caller may not read the log.
            SubscriptionTimeoutError: no member served the log for `reconnect_timeout_s`.
        """
        if self._is_closed:
            raise StopAsyncIteration
        if self._is_reading:
            raise LocalProtocolError("another task reads this subscription: read it in one task")
        self._is_reading = True
        try:
            while not self._ready:
                await self._fill()
            await self._complete(self._ready)
        finally:
            self._is_reading = False
        entry = self._ready.popleft()
        self._position = entry.end_position if self._ready else self._read_position
        return entry

    def take_ready(self, limit: int) -> list[EntryT]:
        """Take entries that have come already, up to a limit, without waiting."""
        taken = [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]
        if taken:
            self._position = taken[-1].end_position if self._ready else self._read_position
        return taken

    async def aclose(self) -> None:
        """Read no more."""
        self._is_closed = True
        await self._leave()

    @property
    def _read_position(self) -> int:
        assert isinstance(self._start, int)
        return self._start

    async def _fill(self) -> None:
        """Read one chunk, of another member if need be."""
        log = self._log or await self._open(self._reconnect_timeout_s)
        try:
            chunk = await log.replay.source.read()
        except ClusterError as error:
            self._expect_boundary(error)
            chunk = b""
        if not chunk:
            self._source.avoid(log.member_id)
            await self._leave()
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return
        self._pause_s, self._misplaced_count = FIRST_PAUSE_S, 0
        self._take(chunk, log.replay.position - len(chunk))

    async def _open(self, within_s: float) -> OpenLog:
        log = self._log = await self._source.open(self._start, within_s=within_s)
        self._joiner = MessageJoiner()
        if self._position is None:
            # What is committed may end inside a message: its rest is no misplaced position.
            self._is_at_start = False
            self._start = self._position = log.position
        return log

    def _take(self, chunk: bytes, position: int) -> None:
        for frame in split_frames(chunk, position):
            if self._is_at_start and frame.type == TYPE_DATA:
                if not frame.flags & FLAG_BEGIN:
                    raise NoEntryAtPositionError(position=self._read_position, reason="a message goes on there")
                self._is_at_start = False
            message = self._joiner.take(frame)
            if message is None:
                continue
            self._start = message.end_position
            entry = self._choose(message)
            if entry is not None:
                self._ready.append(entry)
        if not self._ready:
            self._position = self._read_position

    def _expect_boundary(self, error: ClusterError) -> None:
        """Raise if it is not this member that is at fault, but the position."""
        if isinstance(error, ArchiveError) and error.code is ArchiveErrorCode.INVALID_POSITION:
            self._misplaced_count += 1
            if self._misplaced_count >= _MISPLACED_LIMIT:
                raise NoEntryAtPositionError(position=self._read_position, reason=str(error)) from error

    async def _complete(self, ready: deque[EntryT]) -> None:
        """Add to entries what is not in them, before they are handed out."""

    async def _leave(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.resources.aclose()


class Subscription(LogReading[LogEntry]):
    """Iterates over committed entries, without end: `async for entry in subscription`. Made by `subscribe`.

    It belongs to one task. A read that is cancelled loses nothing.
    """

    def __init__(
        self,
        source: LogSource,
        *,
        start: int | Start,
        entry_filter: EntryFilter,
        reconnect_timeout_s: float,
        typed: bool = False,
    ) -> None:
        super().__init__(source, start=start, choose=self._choose_entry, reconnect_timeout_s=reconnect_timeout_s)
        self._filter = entry_filter
        self._schemas = LogSchemas() if typed else None
        self._has_looked_back = start == Start.EARLIEST
        """True if every schema is known that the log had before what is read."""

    def _choose_entry(self, message: RecordedMessage) -> LogEntry | None:
        entry = LogEntry.of(message)
        is_wanted = self._filter.wants(entry)
        if self._schemas is None or entry.kind not in _TYPED_KINDS:
            return entry if is_wanted else None
        if not is_wanted:
            if announced_schema(entry.payload) is not None:
                self._schemas.view(entry.payload)  # notes it: messages that are wanted may need it
            return None
        view = self._schemas.view(entry.payload)
        return entry if view is None else entry._replace(typed=view)

    async def _complete(self, ready: deque[LogEntry]) -> None:
        """Read the schemas that the log had before this subscription began, up to the one that is missing."""
        missing = [entry for entry in ready if entry.typed is not None and "fingerprint" in entry.typed]
        if not missing or self._has_looked_back:
            return
        assert self._schemas is not None
        await self._look_back({entry.typed["fingerprint"] for entry in missing if entry.typed}, missing[0].position)
        for index, entry in enumerate(ready):
            if entry.typed is not None and "fingerprint" in entry.typed:
                ready[index] = entry._replace(typed=self._schemas.view(entry.payload))

    async def _look_back(self, missing: set[str], end_position: int) -> None:
        schemas = self._schemas
        assert schemas is not None

        def choose(message: RecordedMessage) -> LogEntry | None:
            entry = LogEntry.of(message)
            is_schema = entry.kind in _TYPED_KINDS and announced_schema(entry.payload) is not None
            return entry if is_schema or entry.end_position > end_position else None

        async with LogReading[LogEntry](
            self._source, start=Start.EARLIEST, choose=choose, reconnect_timeout_s=self._reconnect_timeout_s
        ) as earlier:
            async for entry in earlier:
                if entry.end_position > end_position:
                    self._has_looked_back = True
                    return
                schemas.view(entry.payload)
                if missing <= {fingerprint.hex() for fingerprint in schemas.of_class()}:
                    return


def subscribe(
    endpoints: str | Sequence[str],
    *,
    from_position: int | Start = Start.EARLIEST,
    kinds: Collection[EntryKind | str] = (),
    cluster_session_ids: Collection[int] = (),
    topics: Collection[str] = (),
    template_ids: Collection[int] = (),
    typed: bool = False,
    served_by: ServedBy = ServedBy.FOLLOWER,
    reconnect_timeout_s: float = 30.0,
    timeout_s: float = 5.0,
    tls: TlsSettings | None = None,
    cluster_id: str = "",
    network: NetworkStack = SOCKETS,
    random: Callable[[], float] | None = None,
) -> Subscription:
    """Subscribe to the committed log of a cluster, from a position on.

        async with subscribe(["10.0.0.1:9001", "10.0.0.2:9001"], from_position=stored_position) as entries:
            async for entry in entries:
                print(entry.position, entry.kind, entry.payload)
                store(entry.end_position)

    `endpoints` are "host:port" of the consensus endpoint of any members: those of `trimaran status`. One that is up is
    enough, for it names the others. `from_position` is the `end_position` of the last entry that was handled, 0, or a
    `Start`. Only entries that pass every condition are handed out; all of them are read. `typed`: entries have messages
    of typed clients and services by name and field; a subscription that begins later than the log reads the schemas
    before its position once, when one is missing. `timeout_s` bounds a dial and
    an answer. No member serves the log for `reconnect_timeout_s`: the subscription ends with an error.

    The caller needs the role of an observer where the cluster uses TLS.

    Raises:
        ConfigurationError: an argument cannot be used; says which, and what is expected.
    """
    named = [endpoints] if isinstance(endpoints, str) else [*endpoints]
    if not named:
        raise ConfigurationError("endpoints=[] expected the consensus endpoint of one member at least, host:port")
    for endpoint in named:
        Endpoint.parse(endpoint)
    if isinstance(from_position, int):
        expect_boundary(from_position)
    demanded = parse_cluster_id(cluster_id)
    source = LogSource(
        named,
        served_by=ServedBy(served_by),
        network=client_network(tls, cluster_id=demanded, network=network),
        cluster_id=cluster_id,
        timeout_s=timeout_s,
        random=SystemRandom().random if random is None else random,
    )
    return Subscription(
        source,
        start=from_position,
        entry_filter=EntryFilter.make(
            kinds=kinds, cluster_session_ids=cluster_session_ids, topics=topics, template_ids=template_ids
        ),
        reconnect_timeout_s=reconnect_timeout_s,
        typed=typed,
    )


def expect_boundary(position: int) -> None:
    """Refuse a number that can be no position of the log.

    Raises:
        NoEntryAtPositionError: it is negative, or no multiple of 32.
    """
    if position < 0 or position % FRAME_ALIGNMENT:
        raise NoEntryAtPositionError(position=position, reason=f"expected a multiple of {FRAME_ALIGNMENT}, from 0")
