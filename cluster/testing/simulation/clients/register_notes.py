"""The notes of one client on its operations: they go to the history of the group that owns the key.

An operation is settled once: what comes later, as when a process that was killed is buried, is not noted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence

from .....service_api.groups.group import GroupTable
from ..services.registers import Answer, AnswerStatus
from .history import ClientOperation, History
from .register_operations import OPERATIONS, RegisterOutcome, Values, written_value


class RegisterNotes:
    """The operations of one client that are under way, and what it has seen."""

    def __init__(self, histories: Sequence[History], now_ns: Callable[[], int]) -> None:
        """Note in `histories`, one for each group; `now_ns` is a clock that all clients of the histories share."""
        self.now_ns = now_ns
        self.last_seen: dict[Hashable, int] = {}
        """By key, the value written last as far as this client knows."""
        self.seen_position = 0
        """The highest position that this client was told of."""
        self._histories, self._table = histories, GroupTable(len(histories))
        self._in_flight: dict[ClientOperation, None] = {}

    def __repr__(self) -> str:
        return f"<RegisterNotes in_flight={len(self._in_flight)} seen_position={self.seen_position}>"

    def history_of(self, key: Hashable) -> History:
        """Return the history of the group that owns a key."""
        assert isinstance(key, int)
        return self._histories[self._table.group_of(key)]

    def invoke(self, client_id: int | None, key: int, name: str, argument: Hashable) -> ClientOperation:
        """Note that an operation begins."""
        operation = self.history_of(key).invoke(client_id, key, name, argument, now_ns=self.now_ns())
        self._in_flight[operation] = None
        return operation

    def acknowledge(self, operation: ClientOperation, answer: Answer, log_position: int) -> None:
        """Note the answer to an operation."""
        if not self._settle(operation):
            return
        values = self.see(operation.key, answer, log_position)
        outcome = RegisterOutcome(answer.status is AnswerStatus.OK, values)
        self.history_of(operation.key).acknowledge(operation, outcome, log_position=log_position, now_ns=self.now_ns())
        written = written_value(operation)
        if written is not None and outcome.succeeded and not OPERATIONS[operation.kind].is_later:
            self.last_seen[operation.key] = written
        elif values:
            self.last_seen[operation.key] = values[-1]

    def reject(self, operation: ClientOperation) -> None:
        """Note that an operation never ran, and never will."""
        if self._settle(operation):
            self.history_of(operation.key).reject(operation)

    def give_up(self, operation: ClientOperation) -> None:
        """Note that nobody will learn what became of an operation, unless something was noted before."""
        if self._settle(operation):
            self.history_of(operation.key).give_up(operation)

    def give_up_all(self) -> None:
        """Give up everything that is under way: the process is dead."""
        for operation in [*self._in_flight]:
            self.give_up(operation)

    def see(self, key: Hashable, answer: Answer, log_position: int) -> Values:
        """Take in the values that an answer shows, and return them."""
        self.seen_position = max(self.seen_position, log_position)
        history, now_ns = self.history_of(key), self.now_ns()
        for write in answer.writes:
            history.sight(key, write.value, log_position=write.log_position, now_ns=now_ns)
        return tuple(write.value for write in answer.writes)

    def decode(self, payload: bytes) -> Answer | None:
        """Read an answer; one that is not valid is a fault."""
        try:
            return Answer.decode(payload)
        except (struct.error, ValueError):
            self.report(f"an answer that is not valid: length={len(payload)}")
            return None

    def report(self, fault: str) -> None:
        """Note a fault."""
        self._histories[0].report(fault)

    def _settle(self, operation: ClientOperation) -> bool:
        return self._in_flight.pop(operation, self) is not self
