"""What the objects of the campaign's service must answer: the oracle, written apart from the service.

A key is the name of an object: `("register", 3)`, `("list", 0)`, `("ids", 0)`, `("bank", 0)`. The state of a list is
how many values it has and the digest of all of them, so one answer says which values came before, and in which order.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from ...cluster.testing.simulation.clients.history import ClientOperation
from ...cluster.testing.simulation.clients.linearizability import SequentialModel
from .service import ACCOUNT_COUNT, FIRST_BALANCE, ChaosOperation, ChaosOperationKind, chain

ObjectKey = tuple[str, int]
ObjectState = tuple[int, ...] | None
"""None: nobody has touched it."""

_OBJECTS: Final = {
    ChaosOperationKind.GET: "register",
    ChaosOperationKind.PUT: "register",
    ChaosOperationKind.SWAP: "register",
    ChaosOperationKind.APPEND: "list",
    ChaosOperationKind.READ_LIST: "list",
    ChaosOperationKind.NEXT_ID: "ids",
    ChaosOperationKind.TRANSFER: "bank",
    ChaosOperationKind.BALANCES: "bank",
}
_EMPTY: Final = {"register": (0,), "list": (0, 0), "ids": (0,), "bank": (FIRST_BALANCE,) * ACCOUNT_COUNT}


def object_key(operation: ChaosOperation) -> ObjectKey:
    """Return the object that an operation is about."""
    return _OBJECTS[operation.kind], operation.key


class ChaosModel(SequentialModel[ObjectState]):
    """One object of any kind, one operation at a time; the argument of an operation is its `ChaosOperation`."""

    def initial_state(self) -> ObjectState:
        """Nobody has touched it; what that means depends on the operation that comes first."""
        return None

    def apply(self, state: ObjectState, operation: ClientOperation) -> tuple[ObjectState, Hashable]:
        """Apply an operation."""
        asked = operation.argument
        assert isinstance(asked, ChaosOperation)
        before = _EMPTY[_OBJECTS[asked.kind]] if state is None else state
        match asked.kind:
            case ChaosOperationKind.GET:
                return before, (1, before[0])
            case ChaosOperationKind.PUT:
                return (asked.a,), (1, before[0])
            case ChaosOperationKind.SWAP:
                if before[0] == asked.a:
                    return (asked.b,), (1, before[0])
                return before, (0, before[0])
            case ChaosOperationKind.APPEND:
                digest = chain(before[1].to_bytes(8, "little", signed=True), asked.a)
                after = (before[0] + 1, int.from_bytes(digest, "little", signed=True))
                return after, after
            case ChaosOperationKind.NEXT_ID:
                return (before[0] + 1,), (before[0] + 1,)
            case ChaosOperationKind.TRANSFER:
                return _transfer(before, asked)
            case _:
                return before, before


def _transfer(before: tuple[int, ...], asked: ChaosOperation) -> tuple[ObjectState, Hashable]:
    if before[asked.a] < asked.c:
        return before, (0, before[asked.a], before[asked.b])
    after = list(before)
    after[asked.a] -= asked.c
    after[asked.b] += asked.c
    return tuple(after), (1, after[asked.a], after[asked.b])
