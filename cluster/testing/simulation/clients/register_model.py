"""A model of the registers: the oracle of the checks.

A state is the values of one register, oldest first; an outcome is whether the operation succeeded, and the values
before it. Log positions are no part of it.

`explained` prepares what clients saw. Values are unique, so an answer that shows a value proves that its write took
effect, where, and until when at the latest; a write whose own answer never came is given that place and that time. A
write of a timer is nobody's operation, so one is made: it lies between the request that set the timer and the first
answer that shows the value. Nor can such a write have been there before an answer that does not show it, if a later
operation does: what a register has lost never comes back. Without that bound a timer's write would overlap with
everything between its request and its end, and the search would not come to one.

A write that was neither answered nor shown is left out, unless a compare and set expects its value. Every answer shows
the whole register, so if such a write took effect, other unanswered ones put it out again before anybody looked: by
taking the register's place, or by pushing it out at the old end, and they do the same where it never was. The search
would have to try it at every step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from .history import ClientOperation, History, Sighting, by_key
from .linearizability import SequentialModel
from .register_operations import FIRE, OPERATIONS, RegisterOutcome, Swap, Values, written_value

_LOOK_BACK: Final = 16
"""Answers looked at for one that does not show a value."""


class RegisterModel(SequentialModel[Values]):
    """One register, one operation at a time."""

    def initial_state(self) -> Values:
        """Return an empty register."""
        return ()

    def apply(self, state: Values, operation: ClientOperation) -> tuple[Values, Hashable]:
        """Apply an operation."""
        succeeded, after = OPERATIONS[operation.kind].apply(state, operation.argument)
        return after, RegisterOutcome(succeeded, state)


def explained(history: History) -> list[ClientOperation]:
    """The operations of a history, with what its sightings say about writes that nobody acknowledged.

    Those that only read and were never answered are left out. Faults found on the way go to the history.
    """
    operations: list[ClientOperation] = []
    timer_writes: list[ClientOperation] = []
    written = {(some.key, written_value(some)) for some in history.operations}
    expected = {(some.key, some.argument.expected) for some in history.operations if isinstance(some.argument, Swap)}
    for operation in history.operations:
        place = (operation.key, written_value(operation))
        sighting = history.sightings.get(place)
        if operation.is_rejected:
            if sighting is not None:
                history.report(f"key={operation.key} {operation}: rejected, and shown as written: {sighting}")
            continue
        if OPERATIONS[operation.kind].is_later:
            if sighting is not None or place in expected:
                timer_writes.append(_timer_write(history, operation, sighting))
            sighting = None
        if operation.is_acknowledged:
            operations.append(operation)
            if sighting is not None and sighting.log_position != operation.log_position:
                history.report(f"key={operation.key} {operation}: shown as written at {sighting.log_position}")
        elif sighting is not None:
            operations.append(replace(operation, log_position=sighting.log_position, returned_ns=sighting.seen_ns))
        elif place in expected and not OPERATIONS[operation.kind].is_later:
            operations.append(operation)
    for key, shown in history.sightings:
        if (key, shown) not in written:
            history.report(f"key={key} value={shown} was shown, and nobody wrote it")
    # Numbered in the order in which they took effect, so that the search tries that one first.
    timer_writes.sort(key=lambda write: -1 if write.log_position is None else write.log_position)
    for number, write in enumerate(timer_writes, start=len(history.operations)):
        write.operation_id = number
    operations += timer_writes
    for some in by_key(operations).values():
        _tighten(some)
    return operations


def _tighten(operations: Sequence[ClientOperation]) -> None:
    """Bound the writes of one register that were shown and not acknowledged by what other answers say of them."""
    writes: dict[int, ClientOperation] = {}
    answers: list[tuple[int, int, Values]] = []
    showing_ns: dict[int, int] = {}
    for operation in operations:
        value = written_value(operation)
        if operation.is_acknowledged and operation.returned_ns is not None:
            assert isinstance(operation.outcome, RegisterOutcome)
            answers.append((operation.returned_ns, operation.invoked_ns, operation.outcome.values))
            for shown in operation.outcome.values:
                showing_ns[shown] = max(showing_ns.get(shown, 0), operation.invoked_ns)
        elif value is not None and operation.returned_ns is not None:
            writes[value] = operation
    answers.sort()
    for value, write in writes.items():
        end = bisect_left(answers, (showing_ns.get(value, 0),))
        latest = answers[max(end - _LOOK_BACK, 0) : end]
        missing = (invoked_ns for _, invoked_ns, values in latest if value not in values)
        write.invoked_ns = max(write.invoked_ns, *missing, 0)
    for *_, values in answers:
        for older, newer in pairwise(values):
            if older in writes and newer in writes:
                writes[newer].invoked_ns = max(writes[newer].invoked_ns, writes[older].invoked_ns)


def _timer_write(history: History, setter: ClientOperation, sighting: Sighting | None) -> ClientOperation:
    """The write of the timer that an operation may have set."""
    write = ClientOperation(-1, None, setter.key, FIRE, setter.argument, invoked_ns=setter.invoked_ns)
    if sighting is not None:
        write.log_position, write.returned_ns = sighting.log_position, sighting.seen_ns
        if setter.log_position is not None and sighting.log_position <= setter.log_position:
            history.report(f"key={setter.key} {setter}: its timer wrote at {sighting.log_position}")
    return write
