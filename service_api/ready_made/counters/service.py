"""Counters with bounds, and rate limits.

A rate limit is the generic cell rate algorithm: for each key one time is kept, `full_at`, when all that it has used
will have come back. A cost moves it on by as many intervals; it is admitted if that is no further ahead than the burst
is long. So a key costs one number, whole nanoseconds of cluster time, and every member decides equally. A key that has
used nothing is forgotten: a timer fires at its `full_at`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...typed import Context, TimerMessage, answers, handles, on_timer, state
from ..pages import name_page
from ..sharing import SharingService, client_of
from .messages import (
    NAME_LIMIT_BYTES,
    PAGE_LIMIT,
    VALUE_LIMIT,
    AdmissionAnswer,
    AskAdmission,
    Counted,
    CounterError,
    CountUp,
    DefineRateLimit,
    DeleteCounter,
    DeleteRateLimit,
    ListCounters,
    ListRateLimits,
    OutOfBoundsError,
    RateLimit,
    ReadCounter,
    SetCounter,
    UnknownRateLimitError,
)

_S_NS: Final = 1_000_000_000
_COUNT_LIMIT: Final = 1_000_000_000
_INTERVAL_MIN_NS: Final = 1_000
"""An interval is whole nanoseconds: at this length the rate is right to a thousandth."""
_PERIOD_LIMIT_S: Final = 366 * 86_400.0


class ForgetUse(TimerMessage):
    """What a key has used may have come back."""

    limit: str
    key: str


class CounterService(SharingService, name="counters"):
    """Counters and rate limits, by name. See docs/counters.md. Every member must have the same limits.

    Each client has a share of each limit.
    """

    counter_limit: ClassVar[int] = 1_000_000
    """Counters."""
    definition_limit: ClassVar[int] = 1_000
    """Rate limits."""
    use_limit: ClassVar[int] = 1_000_000
    """Keys, of all rate limits, that have used something."""

    counters: dict[str, int] = state()
    counter_clients: dict[str, bytes] = state()
    """The client that made each counter."""
    limits: dict[str, tuple[int, int, int]] = state()
    """Count, period in nanoseconds, burst."""
    limit_clients: dict[str, bytes] = state()
    """The client that first defined each rate limit."""
    full_at_ns: dict[tuple[str, str], tuple[int, bytes]] = state()
    """By limit and key: when all that was used will have come back, and the client that asked first."""

    # --- counters

    @handles(CountUp)
    def count_up(self, ctx: Context, message: CountUp) -> Counted:
        """Add to a counter."""
        _check_name("name", message.name)
        old = self.counters.get(message.name, 0)
        low = -VALUE_LIMIT if message.minimum is None else message.minimum
        high = VALUE_LIMIT if message.maximum is None else message.maximum
        if low > high:
            raise CounterError(f"minimum={low} expected at most maximum={high}")
        value = old + message.amount
        if not max(low, -VALUE_LIMIT) <= value <= min(high, VALUE_LIMIT):
            raise OutOfBoundsError(message.name, old)
        self._set(ctx, message.name, value)
        return Counted(message.name, value)

    @handles(SetCounter)
    def set_counter(self, ctx: Context, message: SetCounter) -> Counted:
        """Set a counter, or compare and set it."""
        _check_name("name", message.name)
        old = self.counters.get(message.name, 0)
        if message.expected is not None and old != message.expected:
            raise OutOfBoundsError(message.name, old)
        if not -VALUE_LIMIT <= message.value <= VALUE_LIMIT:
            raise CounterError(f"value={message.value} expected -{VALUE_LIMIT} to {VALUE_LIMIT}")
        self._set(ctx, message.name, message.value)
        return Counted(message.name, message.value)

    @handles(DeleteCounter)
    def delete_counter(self, ctx: Context, message: DeleteCounter) -> bool:
        """Forget a counter."""
        if message.name not in self.counters:
            return False
        del self.counters[message.name]
        self.count_share(self.counter_clients.pop(message.name), "counter_limit", -1)
        return True

    def _set(self, ctx: Context, name: str, value: int) -> None:
        if name not in self.counters:
            self.counter_clients[name] = self._take(ctx, "counter_limit", len(self.counters), "delete a counter first")
        self.counters[name] = value

    def _take(self, ctx: Context, limit_name: str, count: int, remedy: str) -> bytes:
        """Take one of what a limit bounds, of which there are `count`; gives the client that has taken it."""
        limit = getattr(self, limit_name)
        if count >= limit:
            raise CounterError(f"{limit_name}={limit} is reached: count={count}, expected less; {remedy}")
        client = client_of(ctx.session)
        self.take_share(client, limit_name, remedy, CounterError)
        return client

    @answers(ReadCounter)
    def read_counter(self, ctx: Context, message: ReadCounter) -> Counted:
        """Say a counter's value."""
        return Counted(message.name, self.counters.get(message.name, 0))

    @answers(ListCounters)
    def list_counters(self, ctx: Context, message: ListCounters) -> list[Counted]:
        """Say the counters of a prefix, in the order of their names."""
        _check_page(message.limit)
        names = name_page(ctx, self.counters, message.prefix, message.after, message.limit)
        return [Counted(name, self.counters[name]) for name in names]

    # --- rate limits

    @handles(DefineRateLimit)
    def define_rate_limit(self, ctx: Context, message: DefineRateLimit) -> RateLimit:
        """Define or change a rate limit."""
        _check_name("name", message.name)
        burst = message.count if message.burst is None else message.burst
        for name, value in (("count", message.count), ("burst", burst)):
            if not 1 <= value <= _COUNT_LIMIT:
                raise CounterError(f"{name}={value} expected 1 to {_COUNT_LIMIT}")
        if not 0.001 <= message.period_s <= _PERIOD_LIMIT_S:
            raise CounterError(f"period_s={message.period_s} expected 0.001 to {_PERIOD_LIMIT_S:.0f}")
        period_ns = round(message.period_s * _S_NS)
        if message.count * _INTERVAL_MIN_NS > period_ns:
            raise CounterError(
                f"count={message.count} in period_s={message.period_s} expected at most one a microsecond"
            )
        if message.name not in self.limits:
            taken = self._take(ctx, "definition_limit", len(self.limits), "delete a rate limit first")
            self.limit_clients[message.name] = taken
        self.limits[message.name] = (message.count, period_ns, burst)
        return RateLimit(message.name, message.count, message.period_s, burst)

    @handles(DeleteRateLimit)
    def delete_rate_limit(self, ctx: Context, message: DeleteRateLimit) -> bool:
        """Forget a rate limit; what its keys have used is forgotten when their timers fire."""
        if self.limits.pop(message.name, None) is None:
            return False
        self.count_share(self.limit_clients.pop(message.name), "definition_limit", -1)
        return True

    @answers(ListRateLimits)
    def list_rate_limits(self, ctx: Context, message: ListRateLimits) -> list[RateLimit]:
        """Say rate limits, in the order of their names."""
        _check_page(message.limit)
        names = name_page(ctx, self.limits, "", message.after, message.limit)
        return [self._rate_limit(name) for name in names]

    def _rate_limit(self, name: str) -> RateLimit:
        count, period_ns, burst = self.limits[name]
        return RateLimit(name, count, period_ns / _S_NS, burst)

    @handles(AskAdmission)
    def ask_admission(self, ctx: Context, message: AskAdmission) -> AdmissionAnswer:
        """Decide whether a caller may pass."""
        found = self.limits.get(message.limit)
        if found is None:
            raise UnknownRateLimitError(message.limit)
        count, period_ns, burst = found
        _check_name("key", message.key)
        if not 0 <= message.cost <= burst:
            raise CounterError(f"cost={message.cost} expected 0 to burst={burst}")
        interval_ns = period_ns // count
        used = (message.limit, message.key)
        known_ns, client = self.full_at_ns.get(used, (0, b""))
        base_ns = max(ctx.time_ns, known_ns)
        next_ns = base_ns + message.cost * interval_ns
        allowed_ns = ctx.time_ns + burst * interval_ns
        if next_ns > allowed_ns:
            return AdmissionAnswer(False, (allowed_ns - base_ns) // interval_ns, (next_ns - allowed_ns) / _S_NS)
        if message.cost:
            if not known_ns:
                client = self._take(ctx, "use_limit", len(self.full_at_ns), "ask again once keys have their uses back")
                ctx.schedule(ForgetUse(*used), after=(next_ns - ctx.time_ns) / _S_NS)
            self.full_at_ns[used] = (next_ns, client)
        return AdmissionAnswer(True, (allowed_ns - next_ns) // interval_ns, 0.0)

    @on_timer(ForgetUse)
    def forget_use(self, ctx: Context, message: ForgetUse) -> None:
        """Forget a key that has used nothing any more; one that has used more since is looked at again."""
        used = (message.limit, message.key)
        if used not in self.full_at_ns:
            return
        full_at_ns, client = self.full_at_ns[used]
        if full_at_ns > ctx.time_ns:
            ctx.schedule(message, after=(full_at_ns - ctx.time_ns) / _S_NS)
        else:
            del self.full_at_ns[used]
            self.count_share(client, "use_limit", -1)


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE_LIMIT:
        raise CounterError(f"limit={limit} expected 1 to {PAGE_LIMIT}")


def _check_name(what: str, name: str) -> None:
    size_bytes = len(name.encode())
    if not 1 <= size_bytes <= NAME_LIMIT_BYTES:
        raise CounterError(f"{what} has {size_bytes} bytes, expected 1 to {NAME_LIMIT_BYTES}")
