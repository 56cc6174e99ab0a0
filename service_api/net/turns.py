"""Turns: what many want to do at once is done a few at a time, with a pass of the loop between, in order."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Lets `limit` go on in one pass of the loop, and the others in the next ones.

    Those that wait are held in order; what lets them come bounds their number.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self._loop = loop
        self._limit = limit
        self._left = limit
        self._is_renewing = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<Turns waiting={len(self._waiting)} of {self._limit}>"

    async def take(self) -> None:
        """Return when it is this one's turn."""
        if not self._is_renewing:
            self._is_renewing = True
            self._loop.call_soon(self._renew)
        if self._left:
            self._left -= 1
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _renew(self) -> None:
        """A pass is over: the next ones have their turn."""
        self._left = self._limit
        self._is_renewing = bool(self._waiting)
        if self._is_renewing:
            self._loop.call_soon(self._renew)
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():  # it was cancelled
                turn.set_result(None)
                self._left -= 1
