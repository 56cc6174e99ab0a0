"""The generator of what clients of a simulation do: sessions, one after another, and in each operations from a table.

A row of such a table is an `OperationRow`: how often it is drawn, and how one begins. What it sends, what may be
answered and what is noted of it is the row's own affair: `register_work` has the rows of the simulation's own service,
`service_work` those of a user's service, `groups.stranger` those of a client that routes badly. A `Lane` draws from one
table, at its own pace, with so many operations under way; an application may have several lanes beside each other, so
that what waits for a leader in one does not hold up another.

Everything an application does follows from its generators, its pace, and what it receives when.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from random import Random
from typing import Any, Final, Protocol

from .....client import ClientConfig, EgressListener, SharedConnection
from .....client.groups.group_table import group_config
from .....service_api.groups.group import Group, GroupTable
from .....service_api.wire.session import EventCode
from ..world.expect import RuleBroken
from ..world.loop import SimulatedLoop
from .history import History
from .paths import NO_SESSION, GroupSessions, OneSession, Path

FULL_PAUSE_S: Final = 0.02
"""Before another attempt where an operation could not begin, or a client did not take a message."""

_RETRY_MIN_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0

Begun = Coroutine[Any, Any, None] | asyncio.Future[None]
"""An operation under way, until this is done. A coroutine becomes a task; it raises what ends the application."""


@dataclass(slots=True, frozen=True)
class OperationRow:
    """A row of a table from which clients draw: one kind of operation."""

    name: str
    weight: float
    """The frequency, relative to the other rows of the table."""
    begin: Callable[[Any, Random], Begun | None]  # Any: the session that the work makes
    """Begins one in a session, as the lane's generator draws it; returns None where that is not possible now."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Pace:
    """How fast a lane goes, and when it ends the session. Rates are of 1."""

    in_flight_limit: int = 4
    """The most operations under way in one session."""
    think_mean_s: float = 0.02
    """Between two operations, when it is not a burst."""
    burst_rate: float = 0.05
    """How often a burst of up to `in_flight_limit` x 4 operations begins, as fast as answers come."""
    idle_rate: float = 0.005
    """How often there is a pause of up to `idle_max_s`."""
    idle_max_s: float = 3.0
    close_rate: float = 0.002
    """How often the session ends after an operation: half of these ends leave what is under way."""


class Lane:
    """Operations that are drawn from one table, one after another."""

    def __init__(self, operations: Sequence[OperationRow], pace: Pace, random: Random) -> None:
        self.operations, self.pace, self.random = operations, pace, random
        self._cumulative = [*accumulate(row.weight for row in operations)]

    def __repr__(self) -> str:
        return f"<Lane {[row.name for row in self.operations]}>"

    def draw(self) -> OperationRow:
        """Draw a row."""
        return self.random.choices(self.operations, cum_weights=self._cumulative)[0]


class Session:
    """One session of an application, or its sessions with all groups. Kinds of work derive what listens to egress."""

    is_listening = True
    """True if egress comes to this object; otherwise it comes through `egress()` of the client."""
    path: Path
    """How messages get to the cluster, once the session is open."""
    config: ClientConfig
    """How it was opened."""

    def __init__(self, number: int, group: Group | None = None) -> None:
        self.number = number
        """The sessions of one application are counted from 1."""
        self.group = group
        """The group that it is with; None: the only one, or all of them."""
        self.is_ending = self.is_abrupt = False
        self.over = asyncio.Event()
        """Set when nothing more is to begin."""
        self.strands: list[_Strand] = []

    def __repr__(self) -> str:
        under_way = sum(len(strand.under_way) for strand in self.strands)
        return f"<{type(self).__name__} {self.number} under_way={under_way} ending={self.is_ending}>"

    @property
    def is_over(self) -> bool:
        """Return True if nothing more is to begin: it has ended, or is to end."""
        return self.is_ending or self.path.is_closed

    def end(self, *, is_abrupt: bool = False) -> None:
        """Begin nothing more; the session ends when all that is under way is done, or at once."""
        self.is_ending, self.is_abrupt = True, self.is_abrupt or is_abrupt
        self._wake()

    def give_up(self) -> None:
        """Give up the messages that are not answered: the session has ended."""

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Drop a message from the service."""

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Send nothing again."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Wake the lanes if the session has ended."""
        if code is EventCode.CLOSED:
            self._wake()

    def _wake(self) -> None:
        self.over.set()
        for strand in self.strands:
            strand.changed.set()


class _Strand:
    """A lane in one session."""

    def __init__(self, lane: Lane, session: Session) -> None:
        self.lane, self.session = lane, session
        self.under_way: dict[asyncio.Future[None], None] = {}
        """In the order in which they began: a set has no order that a seed decides."""
        self.changed = asyncio.Event()
        """Set when one is done, or nothing more is to begin."""
        self._burst_count = 0

    def take(self, future: asyncio.Future[None]) -> None:
        """Count an operation as under way until it is done."""
        self.under_way[future] = None
        future.add_done_callback(self._on_done)

    async def wait(self) -> None:
        """Wait until an operation is done, or nothing more is to begin."""
        self.changed.clear()
        await self.changed.wait()

    def leave(self) -> None:
        """Leave what is under way."""
        for future in [*self.under_way]:
            future.cancel()

    async def think(self) -> None:
        """Let time pass between two operations."""
        pace, chance = self.lane.pace, self.lane.random
        if self._burst_count:
            self._burst_count -= 1
            return
        drawn = chance.random()
        if drawn < pace.burst_rate:
            self._burst_count = chance.randint(1, 4 * pace.in_flight_limit)
        elif drawn > 1 - pace.idle_rate:
            await pause_until(self.session.over, chance.random() * pace.idle_max_s)
        else:
            await pause_until(self.session.over, chance.expovariate(1 / pace.think_mean_s))

    def _on_done(self, future: asyncio.Future[None]) -> None:
        del self.under_way[future]
        self.changed.set()


class Work(Protocol):
    """The tables of one application, and the sessions that it makes."""

    lanes: list[Lane]

    def make_session(self, number: int) -> Session:
        """Make a session that is not open yet."""

    def abandon(self) -> None:
        """Give up what is under way: the process is dead. Its coroutines end later, and note nothing more."""


_OpenPath = Callable[[ClientConfig, EgressListener | None], Awaitable[Path]]


class MakeWork(Protocol):
    """Makes the work of each client of a run, where the service is a user's."""

    def __call__(self, number: int, *, history: History, pace: Pace, random: Random) -> Work:
        """Make the work of client `number`."""


class Application:
    """One client application: a coroutine, `run`, which follows leaders as an application should.

    A session that is lost or closed is followed by another one.
    """

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        work: Work,
        *,
        random: Random,
        group_count: int = 1,
        parallel_count: int = 1,
        shares_connection: bool = False,
        operation_limit: int | None = None,
    ) -> None:
        """Make the application `number`; no other of the run has this one. The config's `random` is replaced.

        With a `group_count` of more than 1 it goes to the group of each key, and a session stands for one with each
        group. With a `parallel_count` it has so many sessions at once, which share one connection or do not. After
        `operation_limit` operations it only keeps its sessions.
        """
        self.number, self.work = number, work
        self.config = config
        """How it connects from the next time on; its operator corrects where the members are."""
        self.session_count = self.begun_count = 0
        self._random, self._table = random, GroupTable(group_count)
        self._parallel_count, self._shares_connection = parallel_count, shares_connection
        self._operation_limit = operation_limit
        self._stopped = asyncio.Event()
        self._sessions: dict[Session, None] = {}

    def __repr__(self) -> str:
        return (
            f"<Application {self.number} {type(self.work).__name__} begun={self.begun_count}"
            f" stopping={self._stopped.is_set()} sessions={[*self._sessions]}>"
        )

    def stop(self) -> None:
        """Begin nothing more; `run` ends when all that is under way is done, or its session is lost."""
        self._stopped.set()
        for session in self._sessions:
            session.end()

    def abandon(self) -> None:
        """Note that the process of this client has died: nobody will hear of what is under way."""
        self.work.abandon()

    async def run(self) -> None:
        """Use the cluster until `stop`. When cancelled, what became of the operations under way stays unknown."""
        async with self._opening() as open_path, asyncio.TaskGroup() as tasks:
            for _ in range(self._parallel_count):
                tasks.create_task(self._run_sessions(open_path))

    @asynccontextmanager
    async def _opening(self) -> AsyncIterator[_OpenPath]:
        """Yield what opens a session."""
        if self._table.group_count > 1:
            yield partial(GroupSessions.open, table=self._table, random=self._random)
        elif self._shares_connection and self._parallel_count > 1:
            async with SharedConnection.connect(config=self._draw_config()) as shared:
                yield lambda config, listener: OneSession.open_shared(shared, listener)
        else:
            yield OneSession.open

    def _draw_config(self, group: Group | None = None) -> ClientConfig:
        config = self.config if group is None else group_config(self.config, group)
        return replace(config, random=Random(self._random.getrandbits(64)).random)

    async def _run_sessions(self, open_path: _OpenPath) -> None:
        pause_s = _RETRY_MIN_S
        while not self._stopped.is_set():
            self.session_count += 1
            session = self.work.make_session(self.session_count)
            session.config = self._draw_config(session.group)
            try:
                session.path = await open_path(session.config, session if session.is_listening else None)
            except NO_SESSION:
                await pause_until(self._stopped, pause_s * (1 - self._random.random() / 2))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
                continue
            self._sessions[session] = None
            try:
                await self._use(session)
            finally:
                del self._sessions[session]
                session.give_up()
                await session.path.aclose()
            pause_s = _RETRY_MIN_S
            await pause_until(self._stopped, pause_s * self._random.random())

    async def _use(self, session: Session) -> None:
        session.strands = [_Strand(lane, session) for lane in self.work.lanes]
        if self._stopped.is_set():
            session.end()
        async with asyncio.TaskGroup() as tasks:
            for strand in session.strands:
                tasks.create_task(self._run_strand(strand, tasks))

    async def _run_strand(self, strand: _Strand, tasks: asyncio.TaskGroup) -> None:
        """Begin operations until the session is lost or is to end; then wait for those under way."""
        session, pace, chance = strand.session, strand.lane.pace, strand.lane.random
        while not session.is_over:
            if len(strand.under_way) >= pace.in_flight_limit or self._is_spent():
                await strand.wait()
                continue
            begun = strand.lane.draw().begin(session, chance)
            if begun is None:
                await pause_until(session.over, FULL_PAUSE_S)
                continue
            self.begun_count += 1
            strand.take(begun if isinstance(begun, asyncio.Future) else tasks.create_task(begun))
            if chance.random() < pace.close_rate:
                session.end(is_abrupt=chance.random() < 0.5)
            else:
                await strand.think()
        session.end()
        while strand.under_way:
            if session.is_abrupt:
                strand.leave()
            elif session.path.is_closed:
                session.give_up()
            await strand.wait()

    def _is_spent(self) -> bool:
        return self._operation_limit is not None and self.begun_count >= self._operation_limit


async def pause_until(over: asyncio.Event, duration_s: float) -> None:
    """Let time pass; an event ends it."""
    try:
        async with asyncio.timeout(duration_s):
            await over.wait()
    except TimeoutError:
        return


def end_run(broken: RuleBroken) -> None:
    """Let the environment raise it, out of the run: in the process of a client it would end that one only."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.scheduler.call_after(0, _raise, broken)


def _raise(error: Exception) -> None:
    raise error
