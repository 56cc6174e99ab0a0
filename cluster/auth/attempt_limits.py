"""Limits of guessing a secret: failed attempts are counted by address and by principal.

    by address                 30 at once, then one in 2 s       one machine that tries many names
    by address and principal   10 at once, then one in 6 s       one machine that tries one name
    by principal              100 at once, then one in 0.6 s     many machines that try one name

Each is a bucket of failures that empties with time; while one of an attempt's buckets is full, the attempt is rejected
before its proof is looked at, as an attempt with a wrong proof is. Principals that are not in the secrets file have
buckets like the others, so limits tell nothing about who is.

A stranger must not be able to lock a user out for long. For an address from which a principal came in before, only
the bucket of both counts: neither a stranger elsewhere nor one who tries other names at this address keeps it out. What
is left is a stranger at this very address who tries this very name: without a bucket for that, an address could guess
without end. And a principal that comes in from an address for the first time, or for the first time since the member
became leader, competes with the stranger for a place in the buckets, one in 0.6 s to 6 s.

So one address guesses 43,200 secrets a day at most, and 14,400 more of each principal that came in from there; all
addresses together guess 144,000 of one principal, and 14,400 at each of the addresses that are remembered of it. Only
the newest `KEY_LIMIT` buckets of each kind are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

KEY_LIMIT: Final = 10_000
"""Buckets of one kind. A stranger who fills them with other keys forgets failures no faster than they are made."""

_KNOWN_ADDRESS_LIMIT: Final = 8
"""Addresses remembered of one principal: those of its newest sessions."""

Key = TypeVar("Key")


@dataclass(slots=True)
class _Bucket:
    level: float
    at_ms: int


class _Buckets(Generic[Key]):
    """Failures by key, each forgotten after `interval_ms` times those that are before it."""

    def __init__(self, capacity: int, interval_ms: int) -> None:
        self._capacity, self._interval_ms = capacity, interval_ms
        self._buckets: OrderedDict[Key, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def is_full(self, key: Key, now_ms: int) -> bool:
        """Whether there is no room for another failure."""
        return self._level(key, now_ms) > self._capacity - 1

    def add(self, key: Key, now_ms: int) -> None:
        """Count a failure."""
        level = self._level(key, now_ms)
        self._buckets[key] = _Bucket(min(level + 1, self._capacity), now_ms)
        self._buckets.move_to_end(key)
        if len(self._buckets) > KEY_LIMIT:
            self._buckets.popitem(last=False)

    def _level(self, key: Key, now_ms: int) -> float:
        bucket = self._buckets.get(key)
        if bucket is None:
            return 0.0
        # A clock that was set back must not keep anybody out for as long.
        elapsed_ms = max(0, now_ms - bucket.at_ms)
        if now_ms < bucket.at_ms:
            bucket.at_ms = now_ms
        return max(0.0, bucket.level - elapsed_ms / self._interval_ms)


class AttemptLimits:
    """Counts failed attempts, and says whether another one may be made."""

    def __init__(self) -> None:
        self._by_address: _Buckets[str] = _Buckets(30, 2_000)
        self._by_both: _Buckets[tuple[str, bytes]] = _Buckets(10, 6_000)
        self._by_principal: _Buckets[bytes] = _Buckets(100, 600)
        self._known_addresses: OrderedDict[bytes, list[str]] = OrderedDict()
        """By principal: from where it came in, the newest last."""

    def __repr__(self) -> str:
        return f"<AttemptLimits addresses={len(self._by_address)} principals={len(self._by_principal)}>"

    def find_limit(self, address: str, encoded_principal: bytes, now_ms: int) -> str | None:
        """Return which bucket is full, in words; None: the attempt may be made."""
        if self._by_both.is_full((address, encoded_principal), now_ms):
            return "address and principal"
        if address in self._known_addresses.get(encoded_principal, ()):
            return None
        if self._by_address.is_full(address, now_ms):
            return "address"
        return "principal" if self._by_principal.is_full(encoded_principal, now_ms) else None

    def on_failed(self, address: str, encoded_principal: bytes, now_ms: int) -> None:
        """Count a proof that was wrong."""
        self._by_address.add(address, now_ms)
        self._by_both.add((address, encoded_principal), now_ms)
        self._by_principal.add(encoded_principal, now_ms)

    def on_succeeded(self, address: str, encoded_principal: bytes) -> None:
        """Remember from where a principal came in."""
        known = self._known_addresses.setdefault(encoded_principal, [])
        self._known_addresses.move_to_end(encoded_principal)
        if address in known:
            known.remove(address)
        known.append(address)
        del known[:-_KNOWN_ADDRESS_LIMIT]
        if len(self._known_addresses) > KEY_LIMIT:
            self._known_addresses.popitem(last=False)
