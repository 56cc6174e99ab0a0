"""What `tests/waiting.py` promises: limits end a wait, grow on a slow machine, and pass over a stall."""

from __future__ import annotations

import asyncio

import pytest

from tests import waiting
from tests.waiting import Deadline, patient, until, within


async def test_a_limit_ends_what_never_happens() -> None:
    with pytest.raises(TimeoutError):
        async with within(0.02):
            await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"waited 0\.01 s"):
        await until(lambda: False, timeout_s=0.01)


async def test_a_limit_that_is_spent_at_the_first_look_is_a_timeout_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that stood still between two lines ended its sender with an AssertionError, once in 1,600 tests."""
    monkeypatch.setattr(waiting.Deadline, "has_passed", lambda self: True)

    with pytest.raises(TimeoutError):
        async with within(0.05):
            await asyncio.Event().wait()


@pytest.mark.parametrize(("slowness", "looks"), [(1.0, 11), (4.0, 41)])
def test_a_deadline_lasts_longer_on_a_slow_machine(
    monkeypatch: pytest.MonkeyPatch, slowness: float, looks: int
) -> None:
    """Each look comes a minute after the last one, of which a second counts."""
    now_s = iter(range(0, 6_000, 60))
    monkeypatch.setattr(waiting, "slowness", lambda: slowness)
    deadline = Deadline(10, lambda: float(next(now_s)))

    passed = [deadline.has_passed() for _ in range(looks)]

    assert passed == [False] * (looks - 1) + [True]
    assert patient(10) == 10 * max(2.0, slowness)
