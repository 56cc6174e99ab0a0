"""Staying awake for a moment after work, and when not."""

from __future__ import annotations

from tests.waiting import passes
from trimaran.cluster.runtime.shared_machine.idle_strategy import CONTENDED_NS, PAUSE_NS, BackoffIdleStrategy

LIMIT_NS = 250_000
YIELD_NS = 5_000
PASSES = 1 + LIMIT_NS // YIELD_NS
"""Passes of the loop after which nothing yields any more."""


class Processor:
    """Time that passes in yields only."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.yield_ns = YIELD_NS
        self.yield_count = 0
        self.may_yield = True
        self.strategy = BackoffIdleStrategy(
            yield_limit_ns=LIMIT_NS,
            may_yield=lambda: self.may_yield,
            monotonic_ns=lambda: self.now_ns,
            sched_yield=self.sched_yield,
        )

    def sched_yield(self) -> None:
        self.yield_count += 1
        self.now_ns += self.yield_ns

    async def work(self, *, after_ns: int = 0, pass_count: int = PASSES + 2) -> int:
        """Handle something, then let the loop pass; gives how often it yielded."""
        self.now_ns += after_ns
        before = self.yield_count
        self.strategy.worked(self.now_ns)
        await passes(pass_count)
        return self.yield_count - before


async def test_work_that_comes_alone_does_not_keep_the_loop_awake() -> None:
    """A cluster at rest: heartbeats only."""
    processor = Processor()

    assert [await processor.work(after_ns=LIMIT_NS) for _ in range(10)] == [0] * 10


async def test_work_soon_after_work_does_for_the_limit_and_no_longer() -> None:
    processor = Processor()
    await processor.work()

    assert await processor.work(after_ns=LIMIT_NS - 1) == LIMIT_NS // YIELD_NS
    assert await processor.work(after_ns=0) == 0


async def test_work_while_it_is_awake_begins_the_limit_anew() -> None:
    processor = Processor()
    await processor.work()
    await processor.work(after_ns=1, pass_count=PASSES // 2)

    assert await processor.work() == LIMIT_NS // YIELD_NS


async def test_a_yield_that_takes_long_ends_it_and_none_begins_for_a_while() -> None:
    """Others need the processor."""
    processor = Processor()
    await processor.work()
    processor.yield_ns = CONTENDED_NS

    assert await processor.work(after_ns=1) == 1

    processor.yield_ns = YIELD_NS
    begin_ns = processor.now_ns
    while processor.now_ns + LIMIT_NS < begin_ns + PAUSE_NS:
        assert await processor.work(after_ns=LIMIT_NS - 1) == 0
    assert await processor.work(after_ns=begin_ns + PAUSE_NS - processor.now_ns) == LIMIT_NS // YIELD_NS


async def test_a_busy_thread_ends_it() -> None:
    """The thread would wait for the interpreter's lock."""
    processor = Processor()
    await processor.work()
    processor.may_yield = False

    assert await processor.work(after_ns=1) == 0

    processor.may_yield = True
    assert await processor.work(after_ns=1) == LIMIT_NS // YIELD_NS
