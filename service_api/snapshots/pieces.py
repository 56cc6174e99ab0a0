"""Large states in snapshots: many values in each message, encoded and decoded by msgspec, in C.

The problem: a service that writes each of two million orders as a message of its own, encoded in Python, needs a
minute on three members that share two cores. The idea: a message, a *piece*, holds as many values as fit into one frame
of the recording.

    byte 0    how long the name is, in bytes
    then      the name, in UTF-8: which part of the state
    then      MessagePack: an array of values

Rejected: one piece for each part. It would hold the event loop while it is encoded, and the state twice in memory.
`cluster.runtime.snapshots.snapshot_recording` has what becomes of the pieces, and where the time goes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from ..cluster import SnapshotImage
from ..errors import LocalProtocolError, RemoteProtocolError

PIECE_BYTES: Final = 48 << 10
"""What a piece is meant to be long: it fits into one frame of a recording, which holds 64 KiB."""

_NAME_LIMIT_BYTES: Final = 255
_COUNT_LIMIT: Final = 1 << 14
_LONGEST_BYTES: Final = 4 * PIECE_BYTES
"""What comes out longer, since values have become longer, is cut again."""


def encode_pieces(name: str, values: Iterable[Any]) -> Iterator[bytes]:
    """Yield the values of one part of the state as messages of about `PIECE_BYTES` each, in order.

    Values are what msgspec writes: numbers of 64 bits, str, bytes, None, lists, tuples, dicts, dataclasses,
    `msgspec.Struct` (the quickest), enums, datetimes. Of a dict give `items()`. Order counts: sort what stands in a
    set. No values give no piece.

    Raises:
        LocalProtocolError: the name is empty or longer than 255 bytes, or a value has no form in bytes; says which.
    """
    encoded_name = name.encode()
    if not 1 <= len(encoded_name) <= _NAME_LIMIT_BYTES:
        raise LocalProtocolError(f"name={name!r} expected 1 to {_NAME_LIMIT_BYTES} bytes")
    prefix = bytes((len(encoded_name),)) + encoded_name
    encode, left, count = msgspec.msgpack.Encoder().encode, iter(values), 1
    while some := list(islice(left, count)):
        try:
            bodies = list(_encode_cut(encode, some))
        except (msgspec.MsgspecError, TypeError, OverflowError, ValueError, NotImplementedError) as error:
            raise LocalProtocolError(f"{name}: {error}") from error
        length_bytes = 0
        for body in bodies:
            yield prefix + body
            length_bytes += len(body)
        count = min(max(1, len(some) * PIECE_BYTES // length_bytes), count * 2, _COUNT_LIMIT)


def _encode_cut(encode: Callable[[Any], bytes], values: list[Any]) -> Iterator[bytes]:
    """Encode values as one array, or as several where that is much too long."""
    body = encode(values)
    if len(body) <= _LONGEST_BYTES or len(values) == 1:
        yield body
        return
    half = len(values) // 2
    yield from _encode_cut(encode, values[:half])
    yield from _encode_cut(encode, values[half:])


async def read_pieces(snapshot: SnapshotImage, kinds: Mapping[str, Any]) -> AsyncIterator[tuple[str, list[Any]]]:
    """Read what `encode_pieces` wrote: the name of a part and some of its values, piece after piece, in order.

    `kinds` says of what type the values of each part are:

        async for name, orders in read_pieces(snapshot, {"orders": tuple[int, Order]}):
            self.orders.update(orders)

    Raises:
        RemoteProtocolError: a message is no piece, or of a part that `kinds` does not have, or has a value of another
            type; says which.
    """
    decoders = {name: msgspec.msgpack.Decoder(list[kind]).decode for name, kind in kinds.items()}  # type: ignore[valid-type]
    async for message in snapshot:
        begin = 1 + message[0] if message else 1
        name = bytes(message[1:begin]).decode(errors="replace")
        decode = decoders.get(name)
        if decode is None or len(message) <= begin:
            raise RemoteProtocolError(
                f"the snapshot has a message that is no piece of {', '.join(map(repr, kinds))}: "
                f"name={name!r} length={len(message)}"
            )
        try:
            values = decode(memoryview(message)[begin:])
        except (msgspec.MsgspecError, ValueError) as error:
            raise RemoteProtocolError(f"the snapshot's {name}: {error}") from error
        yield name, values
