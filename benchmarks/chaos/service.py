"""The service of the campaign: registers, append lists, unique ids and a bank, in one class.

An operation is a head, which tells it from all others of a run, a kind, the key of an object of that kind, and up to
three numbers. The answer is the same head and a tuple of numbers. What an operation must answer is told again, by other
code, in `models`.

The same operations come as requests, which run exactly once, and as messages, which run once or not at all.
"""

from __future__ import annotations

import hashlib
import json
import struct
from enum import IntEnum
from typing import Final, NamedTuple, Self

from ...service_api import (
    ClientSession,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)

REGISTER_COUNT: Final = 6
LIST_COUNT: Final = 3
ACCOUNT_COUNT: Final = 5
LONG_ANSWER_LIMIT: Final = 8_000
FIRST_BALANCE: Final = 1_000

HEAD: Final = struct.Struct("<qq")
"""The client's number and the number of its operation: no two operations of a run have the same."""
_BODY: Final = struct.Struct("<iiqqq")
_SNAPSHOT_PIECE_BYTES: Final = 16_384


class ChaosOperationKind(IntEnum):
    """What an operation does; the numbers `a`, `b`, `c` are its arguments."""

    GET = 1
    PUT = 2
    """a: the value."""
    SWAP = 3
    """a: the value that is expected; b: the one that is to be there."""
    APPEND = 4
    """a: the value."""
    READ_LIST = 5
    NEXT_ID = 6
    TRANSFER = 7
    """a: from; b: to; c: how much."""
    BALANCES = 8
    LONG_ANSWER = 9
    """a: of how many bytes a message is to be sent to the session; nothing changes."""


class ChaosOperation(NamedTuple):
    """One operation as clients send it; a query has the same layout."""

    client: int
    number: int
    kind: ChaosOperationKind
    key: int = 0
    a: int = 0
    b: int = 0
    c: int = 0

    def encode(self) -> bytes:
        """Lay it out."""
        return HEAD.pack(self.client, self.number) + _BODY.pack(self.kind, self.key, self.a, self.b, self.c)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Read the layout.

        Raises:
            ValueError: it is none.
        """
        if len(payload) < HEAD.size + _BODY.size:
            raise ValueError(f"an operation is too short: length={len(payload)} expected={HEAD.size + _BODY.size}")
        client, number = HEAD.unpack_from(payload)
        kind, key, a, b, c = _BODY.unpack_from(payload, HEAD.size)
        return cls(client, number, ChaosOperationKind(kind), key, a, b, c)


class ChaosAnswer(NamedTuple):
    """What the service says to one operation."""

    client: int
    number: int
    outcome: tuple[int, ...]

    def encode(self) -> bytes:
        """Lay it out."""
        return HEAD.pack(self.client, self.number) + struct.pack(f"<{len(self.outcome)}q", *self.outcome)

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Read the layout.

        Raises:
            ValueError: it is none.
        """
        if len(payload) < HEAD.size or len(payload) % 8:
            raise ValueError(f"an answer of length={len(payload)}")
        client, number, *outcome = struct.unpack(f"<{len(payload) // 8}q", payload)
        return cls(client, number, tuple(outcome))


class ChaosService(ClusteredService):
    """Four kinds of objects, whose answers show what happened before."""

    def __init__(self) -> None:
        self.registers: dict[int, int] = {}
        self.lists: dict[int, tuple[int, bytes]] = {}
        """By key: how many values it has, and the digest of all of them in their order."""
        self.last_id = 0
        self.balances = [FIRST_BALANCE] * ACCOUNT_COUNT

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the state."""
        if snapshot is None:
            return
        state = json.loads(b"".join([bytes(piece) async for piece in snapshot]))
        self.registers = {int(key): value for key, value in state["registers"].items()}
        self.lists = {int(key): (count, bytes.fromhex(digest)) for key, (count, digest) in state["lists"].items()}
        self.last_id, self.balances = state["last_id"], state["balances"]

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the state."""
        data = self._state()
        for begin in range(0, len(data), _SNAPSHOT_PIECE_BYTES):
            await snapshot.offer(data[begin : begin + _SNAPSHOT_PIECE_BYTES])

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Run an operation."""
        return self.run(payload)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Run an operation, and send its answer."""
        operation = ChaosOperation.decode(payload)
        if operation.kind is ChaosOperationKind.LONG_ANSWER:
            session.offer(bytes(min(max(operation.a, 0), LONG_ANSWER_LIMIT)))
            return
        session.offer(self.run(payload))

    def on_query(self, payload: memoryview) -> bytes:
        """Answer one of the operations that only read."""
        operation = ChaosOperation.decode(payload)
        if operation.kind not in (ChaosOperationKind.GET, ChaosOperationKind.READ_LIST, ChaosOperationKind.BALANCES):
            raise ValueError(f"a query that is to change something: {operation}")
        return self.run(payload)

    def state_hash(self) -> bytes:
        """Return a digest of all state."""
        return hashlib.sha256(self._state()).digest()

    def run(self, payload: bytes | memoryview) -> bytes:
        """Run an operation, and return its answer."""
        operation = ChaosOperation.decode(payload)
        return ChaosAnswer(operation.client, operation.number, self._apply(operation)).encode()

    def _apply(self, operation: ChaosOperation) -> tuple[int, ...]:
        kind, key = operation.kind, operation.key
        if kind in (ChaosOperationKind.GET, ChaosOperationKind.PUT, ChaosOperationKind.SWAP):
            return self._use_register(operation)
        if kind in (ChaosOperationKind.APPEND, ChaosOperationKind.READ_LIST):
            count, digest = self.lists.get(key, (0, bytes(8)))
            if kind is ChaosOperationKind.APPEND:
                count, digest = count + 1, chain(digest, operation.a)
                self.lists[key] = count, digest
            return count, int.from_bytes(digest, "little", signed=True)
        if kind is ChaosOperationKind.NEXT_ID:
            self.last_id += 1
            return (self.last_id,)
        if kind is ChaosOperationKind.TRANSFER:
            source, target, amount = operation.a, operation.b, operation.c
            is_covered = self.balances[source] >= amount
            if is_covered:
                self.balances[source] -= amount
                self.balances[target] += amount
            return int(is_covered), self.balances[source], self.balances[target]
        if kind is ChaosOperationKind.BALANCES:
            return tuple(self.balances)
        raise ValueError(f"no operation with an outcome: {operation}")

    def _use_register(self, operation: ChaosOperation) -> tuple[int, ...]:
        before = self.registers.get(operation.key, 0)
        is_done = True
        if operation.kind is ChaosOperationKind.PUT:
            self.registers[operation.key] = operation.a
        elif operation.kind is ChaosOperationKind.SWAP:
            is_done = before == operation.a
            if is_done:
                self.registers[operation.key] = operation.b
        return int(is_done), before

    def _state(self) -> bytes:
        state = {
            "registers": self.registers,
            "lists": {key: (count, digest.hex()) for key, (count, digest) in self.lists.items()},
            "last_id": self.last_id,
            "balances": self.balances,
        }
        return json.dumps(state, sort_keys=True).encode()


def chain(digest: bytes, value: int) -> bytes:
    """Return the digest of a list that got one more value: 8 bytes."""
    return hashlib.sha256(digest + value.to_bytes(8, "little", signed=True)).digest()[:8]
