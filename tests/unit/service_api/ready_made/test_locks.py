"""Locks, one service by hand."""

from __future__ import annotations

from trimaran.cluster.testing import TypedHarness
from trimaran.service_api.ready_made.locks import ClaimLock, LockService, ReleaseLock


def test_it_runs() -> None:
    locks = TypedHarness(LockService)
    first = locks.call(ClaimLock("a", 1))
    assert first.is_held and first.token > 0
    assert locks.call(ClaimLock("a", 2)).place == 1
    assert locks.call(ReleaseLock(1)) is True
    assert locks.call(ClaimLock("a", 2)).token > first.token
