"""The rules of queries that may be stale: they are no operations of one object in real time, and promise other things.

- The answer is what the log up to the stated position makes of the register, no more and no less.
- Everything that anybody was told before the query was asked, less the stated staleness, lies at or below it.

That the staleness and the position are within what the client asked for is checked as the answer comes. The member that
answers measures its staleness by its own clock, which drifts, so a little is allowed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from random import Random
from typing import Final

from .history import ClientOperation, StaleRead
from .linearizability import SequentialModel
from .register_operations import Values

QUERY_KIND: Final = "query"
"""Among the kinds of faults: what a run may be told to do without."""

DRIFT_ALLOWED: Final = 1.05

_CHANCE: Final = 0.5
"""The chance that a run has queries."""

_TICK_NS: Final = 1_000
_VIOLATION_LIMIT: Final = 20


def has_queries(seed: int) -> bool:
    """Draw whether the clients of a seed query."""
    return Random(f"{seed} queries").random() < _CHANCE


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
        if read.values != expected:
            violations.append(f"{read}: the log up to there makes it {expected}")
        bound_ns = read.invoked_ns - read.staleness_ns * DRIFT_ALLOWED - _TICK_NS
        index = bisect_left(told, (bound_ns, 0)) - 1
        if index >= 0 and highest[index] > read.log_position:
            violations.append(f"{read}: log_position={highest[index]} had been told of at {told[index][0]}")
    return violations[:_VIOLATION_LIMIT]


def _position(operation: ClientOperation) -> int:
    assert operation.log_position is not None
    return operation.log_position
