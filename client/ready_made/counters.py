"""Clients of the counters and rate limits.

async with CountersClient.connect(["127.0.0.1:9000"]) as counters:
    visits = await counters.add("visits")
    if (await counters.admit("login", "203.0.113.7")).is_admitted: ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from ...service_api.ready_made.counters import (
    AdmissionAnswer,
    AskAdmission,
    Counted,
    CountUp,
    DefineRateLimit,
    DeleteCounter,
    DeleteRateLimit,
    ListCounters,
    ListRateLimits,
    RateLimit,
    ReadCounter,
    SetCounter,
)
from ..typed import TypedClient
from .pages import pages_after

_PAGE: Final = 500


class CountersClient(TypedClient, service="counters"):
    """Counters and rate limits. What a method raises beside what it names is what `TypedClient.call` does."""

    async def add(self, name: str, amount: int = 1, *, minimum: int | None = None, maximum: int | None = None) -> int:
        """Add to a counter, and give its value.

        Raises:
            OutOfBoundsError: the value would be below `minimum` or above `maximum`; it is as it was.
            CounterError: an argument is wrong.
        """
        return (await self.call(CountUp(name, amount, minimum, maximum))).value

    async def add_many(self, amounts: Mapping[str, int]) -> list[int]:
        """Add to counters in one call, in their order, each as `add` does; gives their values.

        Raises:
            CounterError: an argument is wrong; the first one by position. The others were added to.
        """
        counted = await self.call_many([CountUp(name, amount, None, None) for name, amount in amounts.items()])
        return [each.value for each in counted]

    async def set(self, name: str, value: int, *, expected: int | None = None) -> int:
        """Set a counter; with `expected` only if it has that value.

        Raises:
            OutOfBoundsError: it has another value than expected; `value` is what it has.
            CounterError: an argument is wrong.
        """
        return (await self.call(SetCounter(name, value, expected))).value

    async def get(self, name: str, *, max_staleness_s: float | None = None) -> int:
        """Give a counter's value; 0 if it was never set. With `max_staleness_s` a follower may answer."""
        return (await self.ask(ReadCounter(name), max_staleness_s=max_staleness_s)).value

    async def delete(self, name: str) -> bool:
        """Forget a counter; False if there is none."""
        return await self.call(DeleteCounter(name))

    def scan(self, prefix: str = "") -> AsyncIterator[Counted]:
        """Iterate over the counters of a prefix by name, page by page; each page is of one moment."""
        return pages_after(lambda after: self.ask(ListCounters(prefix, after, _PAGE)), lambda counted: counted.name)

    async def define_limit(self, name: str, count: int, period_s: float, *, burst: int | None = None) -> RateLimit:
        """Define a rate limit, or change it: `count` in `period_s` for each key, `burst` (`count`) at once.

        Raises:
            CounterError: an argument is wrong.
        """
        return await self.call(DefineRateLimit(name, count, period_s, burst))

    async def delete_limit(self, name: str) -> bool:
        """Forget a rate limit; False if there is none."""
        return await self.call(DeleteRateLimit(name))

    async def limits(self) -> list[RateLimit]:
        """Give all rate limits by name."""
        pages = pages_after(lambda after: self.ask(ListRateLimits(after)), lambda limit: limit.name)
        return [limit async for limit in pages]

    async def admit(self, limit: str, key: str, cost: int = 1) -> AdmissionAnswer:
        """Ask whether `cost` more may pass under a limit for a key. If so they count; cost 0 only looks.

        Raises:
            UnknownRateLimitError: there is no such limit.
            CounterError: an argument is wrong.
        """
        return await self.call(AskAdmission(limit, key, cost))
