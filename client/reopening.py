"""Sessions of one client, one after the other: where a session has ended, another one is opened.

Only for clients whose author says that this is fine. Everything that the cluster keeps for a session ends with it: the
replies by which a request runs exactly once, locks, watches. A request that was sent, and not answered, stays unknown:
asking for it again in another session might run it twice. What was certainly not run is done in the next session.

A client that is refused for who it is does not ask for ever: after `REJECTION_LIMIT` refusals in a row, some ten
seconds, it is closed. One alone may come of a leader whose secrets file is older than those of the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..service_api.errors import ClusterError, ClusterTimeoutError, SessionClosedError
from ..service_api.wire.session import EventCode
from .conductor import ClientConductor
from .config import back_off_s
from .deadlines import begin_limit, seconds_left
from .errors import ConnectRejectedError, ConnectTimeoutError, RejectedError
from .protocol.protocol import CLOSED_BY_CLIENT

_REJECTED: Final = EventCode.AUTHENTICATION_REJECTED.name

T = TypeVar("T")
OpenSession = Callable[[tuple[str, ...]], Awaitable[ClientConductor]]
"""Opens a session, given where members are known to listen."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
REJECTION_LIMIT: Final = 8
"""Refusals of credentials in a row after which there is no session any more."""


class Reopening:
    """The present session of a client, and the task that opens the next one."""

    def __init__(
        self,
        conductor: ClientConductor,
        open_session: OpenSession,
        *,
        random: Callable[[], float],
        on_opened: Callable[[ClientConductor, ClusterError], None],
        siblings: dict[Reopening, None] | None = None,
    ) -> None:
        """`on_opened` takes each new session, and the error with which the one before ended.

        Who could not open sessions any more closes its `siblings`: this one is among them until it is closed.
        """
        self._open_session = open_session
        self._random = random
        self._on_opened = on_opened
        self._is_open = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure = "no session yet"
        self.is_closed = False
        """True once the client is closed: there will be no session any more."""
        self._close_reason = CLOSED_BY_CLIENT
        self._siblings = {} if siblings is None else siblings
        self._siblings[self] = None
        self._take(conductor)

    def __repr__(self) -> str:
        return f"<Reopening open={self._is_open.is_set()} closed={self.is_closed}>"

    async def run(self, call: Callable[[float], Awaitable[T]], limit_s: float) -> T:
        """Run a call, given the seconds that it has, in this session or the next; again where it certainly did nothing.

        Raises:
            ClusterTimeoutError: there was no session in time.
            SessionClosedError: the client was closed.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + limit_s
        while True:
            left_s = await self.wait(ends_s - loop.time())
            conductor = self.conductor
            try:
                return await call(left_s)
            except (RejectedError, SessionClosedError):
                if self.is_closed or conductor.has_session:
                    raise

    async def wait(self, limit_s: float) -> float:
        """Wait until a session is open, and return the seconds that are left.

        Raises:
            ClusterTimeoutError: there was none in time.
            SessionClosedError: the client was closed, or its credentials are refused.
        """
        if not self._is_open.is_set():
            try:
                async with begin_limit(limit_s) as limit:
                    await self._is_open.wait()
            except TimeoutError:
                raise ClusterTimeoutError(f"no session: timeout_s={limit_s:g} {self._failure}") from None
            limit_s = seconds_left(limit)
        if self.is_closed:
            raise SessionClosedError(self._close_reason)
        return limit_s

    async def follow(self, before: ClientConductor) -> ClientConductor:
        """Return the session after one that has ended, once it is open.

        Raises:
            SessionClosedError: the client was closed.
        """
        while self.conductor is before:
            await self.wait(math.inf)
        return self.conductor

    async def close(self) -> None:
        """Open no session any more."""
        self._end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _end(self) -> None:
        self.is_closed = True
        self._siblings.pop(self, None)
        self._is_open.set()

    def _take(self, conductor: ClientConductor) -> None:
        self.conductor = conductor
        self._is_open.set()
        conductor.call_at_end(self._on_end)

    def _on_end(self) -> None:
        ended = self.conductor
        if self.is_closed or ended.protocol.close_reason == CLOSED_BY_CLIENT:
            self._end()
            return
        self._is_open.clear()
        self._task = asyncio.get_running_loop().create_task(self._reopen(ended))

    async def _reopen(self, ended: ClientConductor) -> None:
        error, failure_count, rejection_count = ended.protocol.closed_error(), 0, 0
        self._failure = str(error)
        while True:
            try:
                conductor = await self._open_session(ended.protocol.endpoints)
                break
            except (ConnectTimeoutError, ConnectRejectedError) as failure:
                self._failure = str(failure)
                is_rejected = isinstance(failure, ConnectRejectedError) and failure.code == _REJECTED
                rejection_count = rejection_count + 1 if is_rejected else 0
                if rejection_count == REJECTION_LIMIT:
                    self._close_reason = f"{error}; after that: {failure}"
                    self._end()
                    return
            pause_s = back_off_s(failure_count, first_s=_FIRST_PAUSE_S, limit_s=_LONGEST_PAUSE_S, random=self._random)
            failure_count += 1
            await asyncio.sleep(pause_s)
        self.conductor = conductor
        try:
            self._on_opened(conductor, error)
        except Exception as failure:
            context = {"message": "on_reopen raised", "exception": failure}
            asyncio.get_running_loop().call_exception_handler(context)
        self._take(conductor)
