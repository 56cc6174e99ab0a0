"""What the counters are told and asked."""

from __future__ import annotations

from typing import Final

from ...typed import Command, Query, Reply, ServiceError

NAME_LIMIT_BYTES: Final = 512
"""Of the name of a counter or limit, and of the key of a limit, in UTF-8."""
VALUE_LIMIT: Final = 1 << 62
"""A counter stays between -VALUE_LIMIT and VALUE_LIMIT."""
PAGE_LIMIT: Final = 1_000
"""How many entries a list holds at most; the next one begins `after` its last name."""


class CounterError(ServiceError):
    """An argument is wrong; the text names it, what it was and what was expected."""

    reason: str


class OutOfBoundsError(ServiceError):
    """The counter would leave its bounds, or has not the value that was expected. It is as it was."""

    name: str
    value: int
    """What the counter has."""


class UnknownRateLimitError(ServiceError):
    """There is no rate limit of this name."""

    name: str


class Counted(Reply):
    """A counter, and its value; one that was never set has 0."""

    name: str
    value: int


class CountUp(Command[Counted]):
    """Add to a counter, unless it would leave the bounds given. What it has then is the answer."""

    name: str
    amount: int = 1
    minimum: int | None = None
    maximum: int | None = None


class SetCounter(Command[Counted]):
    """Set a counter; if `expected` is given, only if it has that value."""

    name: str
    value: int
    expected: int | None = None


class DeleteCounter(Command[bool]):
    """Forget a counter; False if there is none."""

    name: str


class ReadCounter(Query[Counted]):
    """Ask the value of a counter."""

    name: str


class ListCounters(Query[list[Counted]]):
    """List counters whose names begin with `prefix`, by name, those behind `after`: at most `limit`, and 1,000."""

    prefix: str = ""
    after: str = ""
    limit: int = 100


class RateLimit(Reply):
    """A rate limit: `count` admissions per `period_s` seconds for each key, and `burst` of them at once."""

    name: str
    count: int
    period_s: float
    burst: int


class DefineRateLimit(Command[RateLimit]):
    """Define a rate limit, or change it; `burst` is `count` unless given. What keys have used stays used."""

    name: str
    count: int
    period_s: float
    burst: int | None = None


class DeleteRateLimit(Command[bool]):
    """Forget a rate limit; False if there is none."""

    name: str


class ListRateLimits(Query[list[RateLimit]]):
    """List rate limits by name: at most `limit`, 1,000, after a name."""

    after: str = ""
    limit: int = PAGE_LIMIT


class AdmissionAnswer(Reply):
    """Whether a rate limit lets a caller pass."""

    is_admitted: bool
    remaining: int
    """How many more would be admitted now."""
    retry_after_s: float
    """0 if admitted; otherwise how long until as many would be admitted."""


class AskAdmission(Command[AdmissionAnswer]):
    """Ask whether `cost` more may pass under a rate limit for a key; if so, they count."""

    limit: str
    key: str
    cost: int = 1
