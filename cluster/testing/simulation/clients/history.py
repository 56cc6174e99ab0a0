"""The history of a run's clients: which operation was invoked when, and what it returned, if anything.

Times are those of one clock that all clients share, in nanoseconds. An operation that was never answered may have
taken effect, or may take effect at any time later: its return time is infinite.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

_FAULT_LIMIT: Final = 50


@dataclass(slots=True, eq=False)
class ClientOperation:
    """One operation of one client, from its invocation to its return."""

    operation_id: int
    """Counts the operations of a history from 0, in order of invocation."""
    client_id: int | None
    """Who invoked it: a client's operations were offered in order of their ids. None: no order is promised."""
    key: Hashable
    """The object it is about; objects are independent of each other."""
    kind: str
    argument: Hashable
    invoked_ns: int
    returned_ns: int | None = None
    """When it had certainly taken effect; None if that is not known."""
    is_acknowledged: bool = False
    """Whether it was answered. One that was not may have a return all the same: its effect was seen."""
    outcome: Hashable = None
    """What was answered."""
    is_rejected: bool = False
    """Whether the client was told that it never ran, and never will."""
    sequence: int | None = None
    """Of a request: its number among those of its client."""
    log_position: int | None = None
    """The log position at which it was applied, if anybody has told."""
    is_query: bool = False
    """Whether it is in no log: then its position is that of the state it was answered from, which others may share."""

    def __str__(self) -> str:
        end = "unknown" if self.returned_ns is None else f"{self.returned_ns / 1e9:.6f}"
        answer = f" -> {self.outcome}" if self.is_acknowledged else ""
        where = "" if self.log_position is None else f" @{self.log_position}"
        what = f"{self.kind}({self.argument})" if self.argument is not None else f"{self.kind}()"
        return (
            f"#{self.operation_id} client={self.client_id} [{self.invoked_ns / 1e9:.6f} .. {end}] {what}{answer}{where}"
        )


class Sighting(NamedTuple):
    """That somebody was shown a value: where it had been written, and when that was known at the latest."""

    log_position: int
    seen_ns: int


@dataclass(slots=True, frozen=True, kw_only=True)
class StaleRead:
    """A query that could be stale, and was answered."""

    key: Hashable
    values: tuple[int, ...]
    """The values that it showed."""
    member_id: int
    log_position: int
    staleness_ns: int
    invoked_ns: int
    returned_ns: int


class History:
    """The operations of every client of one run, and what else they noticed."""

    def __init__(self) -> None:
        self.operations: list[ClientOperation] = []
        self.faults: list[str] = []
        """What clients saw that no order of operations explains; at most 50 are kept."""
        self.acknowledged_count = 0
        self.query_count = 0
        """How many of these are in no log."""
        self.service_query_count = 0
        """Queries of a user's service that were answered; nothing is known about the answers."""
        self.stale_reads: list[StaleRead] = []
        self.unknown_count = 0
        self.rejected_count = 0
        self.sightings: dict[tuple[Hashable, Hashable], Sighting] = {}
        """By key and value, the first one."""
        self._pending: dict[ClientOperation, None] = {}
        self._pending_by_key: dict[Hashable, int] = {}

    def __repr__(self) -> str:
        return (
            f"<History operations={len(self.operations)} acknowledged={self.acknowledged_count}"
            f" unknown={self.unknown_count} pending={len(self._pending)} faults={len(self.faults)}>"
        )

    def __iter__(self) -> Iterator[ClientOperation]:
        return iter(self.operations)

    @property
    def pending_count(self) -> int:
        """Operations that were invoked, and are neither answered nor given up."""
        return len(self._pending)

    def pending_count_of(self, key: Hashable) -> int:
        """The same, of one key."""
        return self._pending_by_key.get(key, 0)

    def invoke(
        self, client_id: int | None, key: Hashable, kind: str, argument: Hashable, *, now_ns: int
    ) -> ClientOperation:
        """Note that an operation begins."""
        operation = ClientOperation(len(self.operations), client_id, key, kind, argument, invoked_ns=now_ns)
        self.operations.append(operation)
        self._pending[operation] = None
        self._pending_by_key[key] = self._pending_by_key.get(key, 0) + 1
        return operation

    def acknowledge(self, operation: ClientOperation, outcome: Hashable, *, log_position: int, now_ns: int) -> None:
        """Note the answer to a pending operation."""
        self._settle(operation)
        operation.outcome = outcome
        operation.log_position = log_position
        operation.returned_ns = now_ns
        operation.is_acknowledged = True
        self.acknowledged_count += 1
        self.query_count += operation.is_query

    def give_up(self, operation: ClientOperation) -> None:
        """Note that nobody will learn what became of a pending operation."""
        self._settle(operation)
        self.unknown_count += 1

    def reject(self, operation: ClientOperation) -> None:
        """Note that a pending operation never ran, and never will."""
        self._settle(operation)
        operation.is_rejected = True
        self.rejected_count += 1

    def sight(self, key: Hashable, value: Hashable, *, log_position: int, now_ns: int) -> None:
        """Note that an answer showed a value as written at a log position; a second place for it is a fault."""
        known = self.sightings.setdefault((key, value), Sighting(log_position, now_ns))
        if known.log_position != log_position:
            self.report(f"key={key} value={value} was shown as written at {known.log_position} and at {log_position}")

    def report(self, fault: str) -> None:
        """Note a fault."""
        if len(self.faults) < _FAULT_LIMIT:
            self.faults.append(fault)

    def _settle(self, operation: ClientOperation) -> None:
        del self._pending[operation]
        self._pending_by_key[operation.key] -= 1


def by_key(operations: Iterable[ClientOperation]) -> dict[Hashable, list[ClientOperation]]:
    """Partition operations by their key, keeping their order."""
    partition: dict[Hashable, list[ClientOperation]] = {}
    for operation in operations:
        partition.setdefault(operation.key, []).append(operation)
    return partition
