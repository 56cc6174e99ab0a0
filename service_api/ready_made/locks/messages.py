"""What the locks are told and asked."""

from __future__ import annotations

from typing import Final

from ...typed import Command, Event, Query, Reply, ServiceError

LOCK_NAME_LIMIT_BYTES: Final = 512
"""Of the name of a lock, in UTF-8."""
HOLDER_VALUE_LIMIT_BYTES: Final = 4_096
"""Of what a holder says of itself."""
LOCK_PAGE_LIMIT: Final = 1_000
"""How many locks a list holds at most; the next one begins `after` its last name."""


class LockError(ServiceError):
    """An argument is wrong, or a limit is reached; the text names it, what it was and what was expected."""

    reason: str


class ClaimState(Reply):
    """How a claim of a session stands."""

    is_held: bool
    token: int
    """The fencing token: the log position of the grant, in bytes; 0 unless held."""
    place: int
    """Its place among the waiting ones, from 1; 0 unless it waits."""


class ClaimLock(Command[ClaimState]):
    """Claim a lock. The same claim again changes nothing, and gives how it stands.

    `number` is the client's, and names the claim within its session. `wait_s` is how long the claim may wait: None is
    as long as the session lives, 0 not at all. `lease_s` is how long it is held unless renewed; None is as long as the
    session lives.
    """

    name: str
    number: int
    is_exclusive: bool = True
    wait_s: float | None = None
    lease_s: float | None = None
    value: bytes = b""


class ReleaseLock(Command[bool]):
    """Give a claim up, held or waiting; False if the session has none of this number."""

    number: int


class RenewLease(Command[bool]):
    """Begin the lease of a held claim again; False if it is not held any more."""

    number: int


class ReadClaim(Query[ClaimState]):
    """Ask how a claim stands; one that has ended is not held and has no place."""

    session_id: int
    number: int


class LockHolder(Reply):
    """Who holds a lock, or waits for it."""

    session_id: int
    is_exclusive: bool
    value: bytes
    token: int
    """0 while it waits."""


class LockState(Reply):
    """A lock. Nobody holds one that was never claimed."""

    name: str
    holders: list[LockHolder]
    waiters: list[LockHolder]
    """In the order in which they will be granted; the first ones, as many as one answer takes."""
    waiter_count: int


class ReadLock(Query[LockState]):
    """Ask who holds a lock, and who waits."""

    name: str


class LockSummary(Reply):
    """A lock in a list."""

    name: str
    is_exclusive: bool
    token: int
    """Of the newest grant."""
    holder_count: int
    waiter_count: int


class ListLocks(Query[list[LockSummary]]):
    """List locks held whose names begin with `prefix`, by name, those behind `after`: at most `limit`, and 1,000."""

    prefix: str = ""
    after: str = ""
    limit: int = 100


class LockGranted(Event):
    """A claim that waited is held now."""

    number: int
    token: int
