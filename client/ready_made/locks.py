"""Clients of locks and leader election.

async with LocksClient.connect(["127.0.0.1:9000"]) as locks:
    async with locks.lock("reports/daily", timeout_s=30) as lock:
        write_report(fencing_token=lock.token)

A grant is told by an event. An event may be lost when a leader dies, so a client that waits also asks once a second. A
lock that is held has one task, which renews its lease and finds out when it is lost; it ends with the release. A timer
ends a lease here, whatever that task waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from ...service_api.errors import ClusterError, ClusterTimeoutError, SessionClosedError
from ...service_api.ready_made.locks import (
    ClaimLock,
    ClaimState,
    ListLocks,
    LockGranted,
    LockHolder,
    LockState,
    LockSummary,
    ReadClaim,
    ReadLock,
    ReleaseLock,
    RenewLease,
)
from ..typed import TypedClient
from .ending_calls import EndingCalls
from .event_mailboxes import EventMailboxes
from .pages import pages_after

LOCK_POLL_S: Final = 1.0
"""How often a client asks whether it has got a lock, or still has it."""
_PAGE: Final = 500
R = TypeVar("R")
H = TypeVar("H", bound="HeldLock")
# A session belongs to one process, so no two claims of a session have one number.
_NUMBERS: Final = itertools.count(1)


class LockTimeoutError(ClusterTimeoutError):
    """The lock was not granted in time. Nothing is held, and nothing waits."""


class HeldLock:
    """A lock that this session has, or had: `lost` says that it ended without a release."""

    name: str
    token: int
    """The fencing token: a store refuses a write whose token is less than the greatest that it has seen."""
    lost: asyncio.Event
    """Set when the session or the lease has ended, or nobody can say that it has not."""

    def __init__(self, client: LocksClient, claim: ClaimLock, token: int, confirmed_s: float) -> None:
        self._client = client
        self._claim = claim
        self.name = claim.name
        self.token = token
        self.lost = asyncio.Event()
        self._lease_end: asyncio.TimerHandle | None = None
        self._confirm(confirmed_s)
        self._watching = asyncio.get_running_loop().create_task(self._watch())
        client.cluster.call_at_session_end(self._on_over)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} token={self.token} is_lost={self.lost.is_set()}>"

    async def release(self) -> bool:
        """Give the lock back; False if it was lost. It waits for a leader; a cancel gives up the answer only."""
        self._stop_watching()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        if self.lost.is_set() or self._client.cluster.is_closed:
            return False
        return await asyncio.shield(self._client.begin_release(self._claim.number))

    def _confirm(self, asked_s: float) -> None:
        """Count the lease from when it was asked for: it ends here no later than in the cluster."""
        lease_s, loop = self._claim.lease_s, asyncio.get_running_loop()
        if self._lease_end is not None:
            self._lease_end.cancel()
        if lease_s is None or self.lost.is_set():
            return
        if asked_s + lease_s <= loop.time():
            self.lost.set()
        else:
            self._lease_end = loop.call_at(asked_s + lease_s, self._on_over)

    async def _watch(self) -> None:
        lease_s = self._claim.lease_s
        pause_s = LOCK_POLL_S if lease_s is None else min(LOCK_POLL_S, lease_s / 3)
        is_held = True
        while is_held and not self.lost.is_set():
            await asyncio.sleep(pause_s)
            asked_s = asyncio.get_running_loop().time()
            try:
                if lease_s is None:
                    is_held = (await self._client.claim_state(self._claim.number)).is_held
                else:
                    # Without a limit: the end of the lease ends the wait.
                    is_held = await self._client.call(RenewLease(self._claim.number), timeout_s=math.inf)
                    self._confirm(asked_s)
            except ClusterTimeoutError:
                continue  # no leader answers, and the session has not ended yet
            except ClusterError:
                is_held = False
        self.lost.set()
        self._forget_ends()

    def _on_over(self) -> None:
        """Note that the lease or the session has ended."""
        self.lost.set()
        self._stop_watching()

    def _stop_watching(self) -> None:
        self._watching.cancel()
        self._forget_ends()

    def _forget_ends(self) -> None:
        self._client.cluster.forget_at_session_end(self._on_over)
        if self._lease_end is not None:
            self._lease_end.cancel()


class Leading(HeldLock):
    """An election that this session has won: `lost` says that it does not lead any more."""

    async def resign(self) -> bool:
        """Lead no longer; False if it was lost before."""
        return await self.release()


class LocksClient(TypedClient, service="locks"):
    """Locks. What a method raises beside what it names is what `TypedClient.call` does."""

    def __init__(self, cluster: Any) -> None:  # Any: as `TypedClient`
        super().__init__(cluster)
        self._grants: EventMailboxes[LockGranted] = EventMailboxes(LockGranted, lambda event: (event.number,))
        self._ending = EndingCalls()

    def _before_call(self) -> None:
        self._grants.take_ready(self.cluster)

    @contextlib.asynccontextmanager
    async def lock(
        self,
        name: str,
        *,
        shared: bool = False,
        timeout_s: float | None = None,
        lease_s: float | None = None,
        value: str | bytes = b"",
    ) -> AsyncIterator[HeldLock]:
        """Hold a lock within an `async with`; the arguments are those of `acquire`.

        The end of the block waits until the lock is given back, and after a cancel for a second at most: then the
        release goes on by itself.
        """
        held = await self.acquire(name, shared=shared, timeout_s=timeout_s, lease_s=lease_s, value=value)
        try:
            yield held
        except asyncio.CancelledError:
            await self._ending.wait_briefly(held.release())
            raise
        except BaseException:
            await held.release()
            raise
        await held.release()

    async def acquire(
        self,
        name: str,
        *,
        shared: bool = False,
        timeout_s: float | None = None,
        lease_s: float | None = None,
        value: str | bytes = b"",
    ) -> HeldLock:
        """Wait for a lock, and take it. `value` is what others see of its holder.

        Without `lease_s` the lock is held as long as the session lives. With it, it ends after so many seconds of
        cluster time unless this client renews it, which it does.

        Raises:
            LockTimeoutError: it was not granted within `timeout_s`.
            LockError: an argument is wrong, or a limit is reached.
        """
        return await self._acquire(HeldLock, name, not shared, timeout_s, lease_s, value)

    async def try_acquire(
        self, name: str, *, shared: bool = False, lease_s: float | None = None, value: str | bytes = b""
    ) -> HeldLock | None:
        """Take a lock if it is free now; None if not."""
        try:
            return await self._acquire(HeldLock, name, not shared, 0, lease_s, value)
        except LockTimeoutError:
            return None

    async def inspect(self, name: str, *, max_staleness_s: float | None = None) -> LockState:
        """Say who holds a lock and who waits for it."""
        return await self.ask(ReadLock(name), max_staleness_s=max_staleness_s)

    def scan(self, prefix: str = "") -> AsyncIterator[LockSummary]:
        """Iterate over the locks held of a prefix by name, page by page; each page is of one moment."""
        return pages_after(lambda after: self.ask(ListLocks(prefix, after, _PAGE)), lambda summary: summary.name)

    async def claim_state(self, number: int) -> ClaimState:
        """Say how a claim of this session stands."""
        return await self.ask(ReadClaim(self.cluster.cluster_session_id, number))

    async def _acquire(
        self,
        kind: type[H],
        name: str,
        is_exclusive: bool,
        timeout_s: float | None,
        lease_s: float | None,
        value: str | bytes,
    ) -> H:
        claim = ClaimLock(name, next(_NUMBERS), is_exclusive, timeout_s, lease_s, _bytes(value))
        limit_s = math.inf if timeout_s else None  # of a command: the whole has its own
        self._grants.open(claim.number)
        try:
            async with asyncio.timeout(timeout_s or None):
                asked_s = asyncio.get_running_loop().time()
                found = await self.call(claim, timeout_s=limit_s)
                session_id = self.cluster.cluster_session_id
                if not found.is_held:
                    found = await self._wait(claim, found)
                    asked_s = asyncio.get_running_loop().time()
                    if (
                        lease_s is not None
                        and found.is_held
                        and not await self.call(RenewLease(claim.number), timeout_s=limit_s)
                    ):
                        found = ClaimState(is_held=False, token=0, place=0)
        except BaseException as error:
            if not self.cluster.is_closed:
                await self._ending.wait_briefly(self._release(claim.number))
            if isinstance(error, TimeoutError):
                raise LockTimeoutError(f"lock={name!r} was not granted: timeout_s={timeout_s}") from error
            raise
        finally:
            self._grants.close(claim.number)
        if session_id != self.cluster.cluster_session_id:
            raise SessionClosedError(f"lock={name!r} was asked for in a session that has ended: {session_id}")
        if not found.is_held:
            raise LockTimeoutError(f"lock={name!r} was not granted: timeout_s={timeout_s}")
        return kind(self, claim, found.token, asked_s)

    async def _wait(self, claim: ClaimLock, found: ClaimState) -> ClaimState:
        """Wait until a claim does not wait any more."""
        while found.place:
            try:
                async with asyncio.timeout(LOCK_POLL_S):
                    event = await self._grants.next_event(claim.number, self.cluster.egress())
                return ClaimState(is_held=True, token=event.token, place=0)
            except TimeoutError:
                with contextlib.suppress(ClusterTimeoutError):
                    found = await self.claim_state(claim.number)
        return found

    def begin_release(self, number: int) -> asyncio.Task[bool]:
        """Have a claim end, also when the caller does not wait for it: once there is a leader, or the session ends."""
        return self._ending.begin(self._release(number))

    async def _release(self, number: int) -> bool:
        return await self.call(ReleaseLock(number), timeout_s=math.inf)


class ElectionClient(LocksClient):
    """Leader election. An election is a lock, and its leader is the holder."""

    async def campaign(
        self, name: str, *, value: str | bytes = b"", timeout_s: float | None = None, lease_s: float | None = None
    ) -> Leading:
        """Wait until this session leads. `value` is what others see of the leader.

        Raises:
            LockTimeoutError: it does not lead within `timeout_s`.
            LockError: an argument is wrong, or a limit is reached.
        """
        return await self._acquire(Leading, name, True, timeout_s, lease_s, value)

    async def leader(self, name: str, *, max_staleness_s: float | None = None) -> LockHolder | None:
        """Say who leads: with a value and a token; None if nobody does."""
        holders = (await self.inspect(name, max_staleness_s=max_staleness_s)).holders
        return holders[0] if holders else None

    async def observe(self, name: str, *, interval_s: float = LOCK_POLL_S) -> AsyncIterator[LockHolder]:
        """Iterate over leaders, each once, beginning with the present one. One that leads between two looks is missed.

        It looks every `interval_s`, and waits while there is no leader of the cluster to ask.
        """
        seen_token = 0
        while True:
            with contextlib.suppress(ClusterTimeoutError):
                holder = await self.leader(name)
                if holder is not None and holder.token > seen_token:
                    seen_token = holder.token
                    yield holder
            await asyncio.sleep(interval_s)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
