"""The table of operations on registers: how each is asked for and how often, and what its answer may be.

A new kind of operation is one row here, and what the service does about it.

A state is the values of one register, oldest first; an outcome is whether the operation succeeded, and the values
before it. `apply` is written independently of the service: it is the oracle of the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ..services.registers import RequestKind
from .history import ClientOperation

GET: Final = "get"
PUT: Final = "put"
COMPARE_AND_SET: Final = "compare_and_set"
APPEND: Final = "append"
WRITE_LATER: Final = "write_later"
CLOSE: Final = "close"
FIRE: Final = "fire"
"""The write of a timer."""

_KEPT: Final = 8

Values = tuple[int, ...]


class RegisterOutcome(NamedTuple):
    """The answer to an operation."""

    succeeded: bool
    values: Values
    """The values that the register held before it."""


class Swap(NamedTuple):
    """The argument of a compare and set; 0 is expected of an empty register."""

    expected: int
    value: int


def _no_argument(value: int, last_seen: int) -> None:
    return None


def _value(value: int, last_seen: int) -> int:
    return value


def _swap(value: int, last_seen: int) -> Swap:
    return Swap(last_seen, value)


def _read(state: Values, argument: object) -> tuple[bool, Values]:
    return True, state


def _put(state: Values, value: int) -> tuple[bool, Values]:
    return True, (value,)


def _append(state: Values, value: int) -> tuple[bool, Values]:
    return True, (*state, value)[-_KEPT:]


def _compare_and_set(state: Values, swap: Swap) -> tuple[bool, Values]:
    is_expected = (state[-1] if state else 0) == swap.expected
    return is_expected, (swap.value,) if is_expected else state


@dataclass(slots=True, frozen=True)
class RegisterOperation:
    """One kind of operation. Its weights are its frequencies among the operations that are asked for in one way."""

    name: str
    request_kind: RequestKind | None
    """The kind of a request for it; None where no client asks for it."""
    argue: Callable[[int, int], Hashable]
    """Returns the argument. It is given a value that nobody has written, and the one that the client saw last or 0."""
    apply: Callable[[Values, Any], tuple[bool, Values]]  # Any: what `argue` returns
    """Returns True if it succeeds, and the values after it."""
    messages: float = 0
    timer_key_messages: float = 0
    """The weight among messages about keys that timers write to."""
    requests: float = 0
    is_later: bool = False
    """True if a timer writes the value."""
    ends_session: bool = False


OPERATIONS: Final = {
    row.name: row
    for row in (
        RegisterOperation(GET, RequestKind.GET, _no_argument, _read, messages=30, timer_key_messages=2.4, requests=20),
        RegisterOperation(PUT, RequestKind.PUT, _value, _put, messages=25, requests=20),
        RegisterOperation(
            APPEND, RequestKind.APPEND, _value, _append, messages=25, timer_key_messages=0.8, requests=40
        ),
        RegisterOperation(
            COMPARE_AND_SET, RequestKind.COMPARE_AND_SET, _swap, _compare_and_set, messages=20, requests=20
        ),
        RegisterOperation(WRITE_LATER, RequestKind.WRITE_LATER, _value, _read, timer_key_messages=3.2, is_later=True),
        RegisterOperation(CLOSE, RequestKind.CLOSE, _no_argument, _read, messages=0.1, ends_session=True),
        RegisterOperation(FIRE, None, _value, _append),
    )
}
"""The table, by name."""


def written_value(operation: ClientOperation) -> int | None:
    """Return the value that an operation may write or have written; None if it only reads."""
    argument = operation.argument
    if isinstance(argument, Swap):
        return argument.value
    assert argument is None or isinstance(argument, int)
    return argument
