"""Clients that send queries, and the rules of the answers.

A linearizable query becomes an operation of the history like any other: it is held against the log's order at the
position that it states, and searched for in a linearization. One that may be stale is no operation of one object in
real time; what it promises instead is checked here, after the run:

- the answer is what the log up to the stated position makes of the register, no more and no less;
- everything that anybody was told before the query was asked, less the stated staleness, lies at or below it;
- the staleness and the position are within what the client asked for.

The member that answers measures its staleness by its own clock, which drifts, so a little is allowed.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from .....client import ClusterClient, QueryRefusedError
from .....service_api import ClusterTimeoutError, SessionClosedError
from ..services.registers import QUERY, Answer
from .history import ClientOperation, History, StaleRead
from .linearizability import SequentialModel
from .register_model import GET, RegisterOutcome, Values

QUERY_KIND: Final = "query"
"""Among the kinds of faults: what a run may be told to do without."""

_CHANCE: Final = 0.5
"""Of a run's having queries."""

_DRIFT_ALLOWED: Final = 1.05
_TICK_NS: Final = 1_000
_VIOLATION_LIMIT: Final = 20


def has_queries(seed: int) -> bool:
    """Draw whether the clients of a seed query."""
    return Random(f"{seed} queries").random() < _CHANCE


class QueryMix:
    """Queries of one client application, one at a time, beside what else it does."""

    def __init__(
        self,
        history: History,
        random: Random,
        now_ns: Callable[[], int],
        *,
        keys: Sequence[int],
        unit_s: float,
        stale_rate: float = 0.5,
    ) -> None:
        """`unit_s` is the heartbeat timeout: pauses and bounds are drawn in proportion."""
        self._history, self._random, self._now_ns = history, random, now_ns
        self._keys, self._unit_s, self._stale_rate = keys, unit_s, stale_rate
        self._seen_position = 0
        """The highest position that this client was told of."""
        self._pending: ClientOperation | None = None

    async def run(self, client: ClusterClient) -> None:
        """Query until the session is lost, or this is cancelled."""
        while not client.is_closed:
            await asyncio.sleep(self._random.expovariate(1 / (0.1 * self._unit_s)))
            key = self._random.choice(self._keys)
            timeout_s = self._unit_s * self._random.uniform(0.5, 4.0)
            try:
                if self._random.random() < self._stale_rate:
                    await self._query_stale(client, key, timeout_s)
                else:
                    await self._query(client, key, timeout_s)
            except ClusterTimeoutError:
                pass
            except SessionClosedError:
                return
            except QueryRefusedError as error:
                self._history.report(f"a query was refused: {error}")

    def abandon(self) -> None:
        """Nobody will hear of what is under way: the query, or this client's process, has ended."""
        pending, self._pending = self._pending, None
        if pending is not None:
            self._history.give_up(pending)

    async def _query(self, client: ClusterClient, key: int, timeout_s: float) -> None:
        history = self._history
        operation = history.invoke(None, key, GET, None, now_ns=self._now_ns())
        operation.is_query = True
        self._pending = operation
        try:
            result = await client.query(QUERY.pack(key), timeout_s=timeout_s)
            values = self._see(key, result.payload, result.log_position)
            if result.staleness_s:
                history.report(f"{operation} a linearizable query has staleness_s={result.staleness_s}")
            if values is not None:
                self._pending = None
                outcome = RegisterOutcome(True, values)
                history.acknowledge(operation, outcome, log_position=result.log_position, now_ns=self._now_ns())
        finally:
            self.abandon()

    async def _query_stale(self, client: ClusterClient, key: int, timeout_s: float) -> None:
        chance = self._random
        max_staleness_s = chance.choice((0.0, 0.02, 0.3, 2.0)) * self._unit_s
        min_log_position = chance.choice((0, self._seen_position))
        read_from = None if chance.random() < 0.7 else chance.randrange(3)
        invoked_ns = self._now_ns()
        result = await client.query(
            QUERY.pack(key),
            max_staleness_s=max_staleness_s,
            min_log_position=min_log_position,
            read_from=read_from,
            timeout_s=timeout_s,
        )
        values = self._see(key, result.payload, result.log_position)
        read = StaleRead(
            key=key,
            values=values,
            member_id=result.member_id,
            log_position=result.log_position,
            staleness_ns=round(result.staleness_s * 1e9),
            invoked_ns=invoked_ns,
            returned_ns=self._now_ns(),
        )
        self._history.stale_reads.append(read)
        if result.staleness_s > max_staleness_s * _DRIFT_ALLOWED:
            self._history.report(f"staler than asked for: {read} {max_staleness_s=}")
        if result.log_position < min_log_position:
            self._history.report(f"below the position asked for: {read} {min_log_position=}")
        if read_from not in (None, result.member_id):
            self._history.report(f"not from the member asked: {read} {read_from=}")

    def _see(self, key: int, payload: bytes, log_position: int) -> Values | None:
        """Take in what an answer shows."""
        self._seen_position = max(self._seen_position, log_position)
        try:
            answer = Answer.decode(payload)
        except (struct.error, ValueError):
            self._history.report(f"an answer to a query that is none: length={len(payload)}")
            return None
        if answer.log_position > log_position:
            self._history.report(f"a query says log_position={log_position} and shows {answer.log_position}")
        for write in answer.writes:
            self._history.sight(key, write.value, log_position=write.log_position, now_ns=self._now_ns())
        return tuple(write.value for write in answer.writes)


def check_stale_reads(
    operations: Iterable[ClientOperation], reads: Iterable[StaleRead], model: SequentialModel[Values]
) -> list[str]:
    """Hold stale reads against the log's order and against what was acknowledged when; give what is wrong."""
    placed = sorted((some for some in operations if some.log_position is not None), key=_position)
    states: dict[object, tuple[list[int], list[Values]]] = {}
    for operation in placed:
        if operation.is_query:
            continue
        positions, values = states.setdefault(operation.key, ([], []))
        state, _ = model.apply(values[-1] if values else model.initial_state(), operation)
        positions.append(_position(operation))
        values.append(state)
    reads = list(reads)
    told = [(some.returned_ns, _position(some)) for some in placed if some.is_acknowledged and some.returned_ns]
    told += [(read.returned_ns, read.log_position) for read in reads]
    told.sort()
    highest: list[int] = []
    for _, position in told:
        highest.append(max(position, highest[-1] if highest else 0))
    violations = []
    for read in reads:
        positions, values = states.get(read.key, ([], []))
        index = bisect_left(positions, read.log_position + 1) - 1
        expected = values[index] if index >= 0 else model.initial_state()
        if read.values is not None and read.values != expected:
            violations.append(f"{read}: the log up to there makes it {expected}")
        bound_ns = read.invoked_ns - read.staleness_ns * _DRIFT_ALLOWED - _TICK_NS
        index = bisect_left(told, (bound_ns, 0)) - 1
        if index >= 0 and highest[index] > read.log_position:
            violations.append(f"{read}: log_position={highest[index]} had been told of at {told[index][0]}")
    return violations[:_VIOLATION_LIMIT]


def _position(operation: ClientOperation) -> int:
    assert operation.log_position is not None
    return operation.log_position
