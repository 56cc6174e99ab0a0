"""Locks with fencing tokens: exclusive and shared, held by sessions, with or without a lease.

A lock is granted in the order of the claims: a shared claim does not pass an exclusive one that waits. The token of a
grant is its log position, so it grows for ever, also over a restart. Several shared claims that are granted by one log
entry have the same token; an exclusive grant has its own.

The event that tells a waiter of its grant may be lost when a leader dies, so a client also asks from time to time.
"""

from __future__ import annotations

from itertools import takewhile
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace

from ...typed import Context, Event, TimerMessage, answers, handles, on_timer, state
from ...types import CloseReason
from ..pages import AnswerPage, name_page
from ..sharing import SharingService, client_of
from .messages import (
    HOLDER_VALUE_LIMIT_BYTES,
    LOCK_NAME_LIMIT_BYTES,
    LOCK_PAGE_LIMIT,
    ClaimLock,
    ClaimState,
    ListLocks,
    LockError,
    LockGranted,
    LockHolder,
    LockState,
    LockSummary,
    ReadClaim,
    ReadLock,
    ReleaseLock,
    RenewLease,
)

_S_NS: Final = 1_000_000_000
_LEASE_MIN_S: Final = 0.1
_LEASE_LIMIT_S: Final = 366 * 86_400.0
_NUMBER_LIMIT: Final = 1 << 31


class EndWait(TimerMessage):
    """A claim has waited as long as it may."""

    session_id: int
    number: int


class EndLease(TimerMessage):
    """The lease of a claim may have ended."""

    session_id: int
    number: int
    token: int


class LockClaim(msgspec.Struct, frozen=True):
    """What a session wants of a lock, or has of it. A Struct is made in 0.2 us, a frozen dataclass in 1.5 us."""

    name: str
    is_exclusive: bool
    value: bytes
    lease_ns: int
    """0: as long as the session lives."""
    client: bytes
    """Whose share it is of."""
    lease_ends_ns: int = 0
    """In cluster time; 0 while it waits, and without a lease."""
    token: int = 0
    """0 while it waits."""


class LockService(SharingService, name="locks"):
    """Locks, leases and leader election. See docs/locks.md. Every member must have the same limits.

    Each client has a share of both limits.
    """

    events: ClassVar[tuple[type[Event], ...]] = (LockGranted,)

    claim_limit: ClassVar[int] = 20_000
    """Claims of all sessions, held or waiting."""
    queue_limit: ClassVar[int] = 1_000
    """Claims of one lock, held or waiting."""

    claims: dict[tuple[int, int], LockClaim] = state()
    """By session and the client's number."""
    holders: dict[str, tuple[tuple[int, int], ...]] = state()
    """By lock: the claims that hold it, oldest grant first."""
    waiters: dict[str, tuple[tuple[int, int], ...]] = state()
    """By lock: the claims that wait, in order."""

    def on_closed(self, ctx: Context, reason: CloseReason) -> None:
        """What a session holds, and waits for, ends with it."""
        session_id = ctx.session.id
        # All claims go before the first grant: a session that closes is granted nothing.
        names = [self._drop(key) for key in [key for key in self.claims if key[0] == session_id]]
        for name in dict.fromkeys(names):
            self._grant(ctx, name)

    # --- claims

    @handles(ClaimLock)
    def claim_lock(self, ctx: Context, message: ClaimLock) -> ClaimState:
        """Grant a lock, or let the claim wait."""
        key = (ctx.session.id, message.number)
        if key in self.claims:
            known = self.claims[key]
            if known.name != message.name:
                raise LockError(f"number={message.number} is a claim of {known.name!r}, expected {message.name!r}")
            return self._state_of(key)
        _check_claim(message)
        name = message.name
        holders, waiters = self.holders.get(name, ()), self.waiters.get(name, ())
        count = len(holders) + len(waiters)
        if count >= self.queue_limit:
            raise LockError(f"claims of {name!r}: {count}, expected less than {self.queue_limit}")
        if len(self.claims) >= self.claim_limit:
            raise LockError(f"claims={len(self.claims)} expected less than {self.claim_limit}; release some first")
        client, remedy = client_of(ctx.session), "release a claim first"
        own_count = sum(self.claims[each].client == client for each in (*holders, *waiters)) if count else 0
        refusal = self.refuse_part(client, "queue_limit", own_count + 1, remedy)
        if refusal is not None:
            raise LockError(f"claims of {name!r}: {refusal}")
        self.take_share(client, "claim_limit", remedy, LockError)
        lease_ns = 0 if message.lease_s is None else round(message.lease_s * _S_NS)
        claim = LockClaim(name, message.is_exclusive, message.value, lease_ns, client)
        if not waiters and self._admits(holders, claim):
            self.claims[key] = claim = self._granted(ctx, key, claim)
            self.holders[name] = (*holders, key)
            return ClaimState(True, claim.token, 0)
        if message.wait_s == 0:
            self.count_share(client, "claim_limit", -1)
            return ClaimState(is_held=False, token=0, place=0)
        self.claims[key] = claim
        self.waiters[name] = (*waiters, key)
        if message.wait_s is not None:
            ctx.schedule(EndWait(*key), after=message.wait_s)
        return ClaimState(False, 0, len(waiters) + 1)

    @handles(ReleaseLock)
    def release_lock(self, ctx: Context, message: ReleaseLock) -> bool:
        """End a claim."""
        return self._end(ctx, (ctx.session.id, message.number))

    @handles(RenewLease)
    def renew_lease(self, ctx: Context, message: RenewLease) -> bool:
        """Begin a lease again."""
        key = (ctx.session.id, message.number)
        if key not in self.claims:
            return False
        claim = self.claims[key]
        if claim.token and claim.lease_ns:
            self.claims[key] = replace(claim, lease_ends_ns=ctx.time_ns + claim.lease_ns)
        return claim.token != 0

    @on_timer(EndWait)
    def end_wait(self, ctx: Context, message: EndWait) -> None:
        """End a claim that still waits."""
        key = (message.session_id, message.number)
        if key in self.claims and not self.claims[key].token:
            self._end(ctx, key)

    @on_timer(EndLease)
    def end_lease(self, ctx: Context, message: EndLease) -> None:
        """End a lease that was not renewed; one that was is looked at again."""
        key = (message.session_id, message.number)
        if key not in self.claims or self.claims[key].token != message.token:
            return
        left_ns = self.claims[key].lease_ends_ns - ctx.time_ns
        if left_ns > 0:
            ctx.schedule(message, after=left_ns / _S_NS)
        else:
            self._end(ctx, key)

    # --- queries

    @answers(ReadClaim)
    def read_claim(self, ctx: Context, message: ReadClaim) -> ClaimState:
        """Say how a claim stands."""
        return self._state_of((message.session_id, message.number))

    @answers(ReadLock)
    def read_lock(self, ctx: Context, message: ReadLock) -> LockState:
        """Say who holds a lock and who waits."""
        page = AnswerPage(ctx, self.queue_limit)
        holders, waiters = (
            [
                self._holder(key)
                for key in takewhile(lambda key: page.takes(len(self.claims[key].value)), keys.get(message.name, ()))
            ]
            for keys in (self.holders, self.waiters)
        )
        return LockState(message.name, holders, waiters, len(self.waiters.get(message.name, ())))

    @answers(ListLocks)
    def list_locks(self, ctx: Context, message: ListLocks) -> list[LockSummary]:
        """Say which locks are held, in the order of their names."""
        if not 1 <= message.limit <= LOCK_PAGE_LIMIT:
            raise LockError(f"limit={message.limit} expected 1 to {LOCK_PAGE_LIMIT}")
        return [
            self._summary(name) for name in name_page(ctx, self.holders, message.prefix, message.after, message.limit)
        ]

    # --- inside

    def _admits(self, holders: tuple[tuple[int, int], ...], claim: LockClaim) -> bool:
        """Whether a claim that is next may hold its lock beside those who do."""
        return not holders or not (claim.is_exclusive or self.claims[holders[0]].is_exclusive)

    def _granted(self, ctx: Context, key: tuple[int, int], claim: LockClaim) -> LockClaim:
        """Return a claim as it holds its lock from now on, and have its lease end."""
        token = ctx.position
        if not claim.lease_ns:
            return replace(claim, token=token)
        ctx.schedule(EndLease(*key, token), after=claim.lease_ns / _S_NS)
        return replace(claim, token=token, lease_ends_ns=ctx.time_ns + claim.lease_ns)

    def _grant(self, ctx: Context, name: str) -> None:
        """Grant a lock to those who are next, and tell them by an event."""
        waiters = self.waiters.get(name)
        if not waiters:
            return
        holders = self.holders.get(name, ())
        granted_count = 0
        for key in waiters:
            claim = self.claims[key]
            if not self._admits(holders, claim):
                break
            holders = (*holders, key)
            granted_count += 1
            self.claims[key] = granted = self._granted(ctx, key, claim)
            ctx.send(LockGranted(key[1], granted.token), key[0])
        if granted_count:
            _put(self.holders, name, holders)
            _put(self.waiters, name, waiters[granted_count:])

    def _end(self, ctx: Context, key: tuple[int, int]) -> bool:
        if key not in self.claims:
            return False
        self._grant(ctx, self._drop(key))
        return True

    def _drop(self, key: tuple[int, int]) -> str:
        """Forget a claim; gives its lock, which is then to be granted."""
        claim = self.claims.pop(key)
        self.count_share(claim.client, "claim_limit", -1)
        queues = self.holders if claim.token else self.waiters
        _put(queues, claim.name, tuple(each for each in queues[claim.name] if each != key))
        return claim.name

    def _state_of(self, key: tuple[int, int]) -> ClaimState:
        if key not in self.claims:
            return ClaimState(is_held=False, token=0, place=0)
        claim = self.claims[key]
        place = 0 if claim.token else self.waiters[claim.name].index(key) + 1
        return ClaimState(claim.token != 0, claim.token, place)

    def _holder(self, key: tuple[int, int]) -> LockHolder:
        claim = self.claims[key]
        return LockHolder(key[0], claim.is_exclusive, claim.value, claim.token)

    def _summary(self, name: str) -> LockSummary:
        keys = self.holders[name]
        newest = self.claims[keys[-1]]
        return LockSummary(name, newest.is_exclusive, newest.token, len(keys), len(self.waiters.get(name, ())))


def _put(queues: dict[str, tuple[tuple[int, int], ...]], name: str, keys: tuple[tuple[int, int], ...]) -> None:
    """Replace a queue; an empty one is forgotten."""
    if keys:
        queues[name] = keys
    else:
        queues.pop(name, None)


def _check_claim(message: ClaimLock) -> None:
    size_bytes = len(message.name.encode())
    if not 1 <= size_bytes <= LOCK_NAME_LIMIT_BYTES:
        raise LockError(f"name has {size_bytes} bytes, expected 1 to {LOCK_NAME_LIMIT_BYTES}")
    if len(message.value) > HOLDER_VALUE_LIMIT_BYTES:
        raise LockError(f"value has {len(message.value)} bytes, expected at most {HOLDER_VALUE_LIMIT_BYTES}")
    if not 0 <= message.number < _NUMBER_LIMIT:
        raise LockError(f"number={message.number} expected 0 to {_NUMBER_LIMIT - 1}")
    if message.wait_s is not None and not 0 <= message.wait_s <= _LEASE_LIMIT_S:
        raise LockError(f"wait_s={message.wait_s} expected 0 to {_LEASE_LIMIT_S:.0f}")
    if message.lease_s is not None and not _LEASE_MIN_S <= message.lease_s <= _LEASE_LIMIT_S:
        raise LockError(f"lease_s={message.lease_s} expected {_LEASE_MIN_S} to {_LEASE_LIMIT_S:.0f}")
