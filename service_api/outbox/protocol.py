"""What workers and operators ask an outbox and settle with it, in bytes: the same for plain and typed services.

Each payload begins with the header of `wire.payload_header`: kind OUTBOX, the service's id, and OUTBOX_MARK in place of
a fingerprint. MessagePack follows, each struct as an array of its fields. A question is a query, a settlement is a
request. So a settlement is one entry of the log, and all members settle the same.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeVar

import msgspec

from ..errors import RemoteProtocolError
from ..wire.payload_header import HEADER_BYTES, MAGIC, PayloadKind, split_header, tag_of

OUTBOX_MARK: Final = b"outbox\x00\x01"
"""Says that a payload is of this module, and which version of it."""

ANSWER_LIMIT_BYTES: Final = 32 << 10
"""An answer holds effects up to this length, and one at least."""

ROW_OVERHEAD_BYTES: Final = 1 << 10
"""What is in an answer beside the payload of one effect and the schema, at most."""


class EffectsQuestion(msgspec.Struct, array_like=True, frozen=True):
    """A question for the effects of one outbox, pending or given up, behind a key; without a name for all outboxes."""

    outbox: str
    after: tuple[int, int] = (-1, 0)
    is_given_up: bool = False


class OutboxFacts(msgspec.Struct, array_like=True, frozen=True):
    """One outbox of a service."""

    name: str
    effect_name: str
    """The class of its effects on the wire; empty where effects are bytes."""
    schema: bytes
    """By which the payloads of its effects are written, as JSON; empty where they are bytes."""
    pending_count: int
    given_up_count: int


class EffectRow(msgspec.Struct, array_like=True, frozen=True):
    """One effect in an answer."""

    log_position: int
    number: int
    payload: bytes
    attempt_count: int
    reason: str


class EffectsAnswer(msgspec.Struct, array_like=True, frozen=True):
    """The answer to a question."""

    service_id: int
    outboxes: list[OutboxFacts]
    """The one that was named, or all."""
    effects: list[EffectRow]
    """In ascending order of their keys."""
    is_last: bool
    """Whether no effect is behind these."""


class SettledAs(IntEnum):
    """How an effect is settled."""

    DONE = 0
    GIVEN_UP = 1
    """By a worker, after its attempts: it stays in the state, for an operator."""
    RETRIED = 2
    """By an operator: what was given up is pending again."""
    DROPPED = 3
    """By an operator: it will not be done."""


class SettledRow(msgspec.Struct, array_like=True, frozen=True):
    """One effect in a settlement."""

    log_position: int
    number: int
    settled_as: SettledAs
    attempt_count: int = 0
    reason: str = ""


class Settlement(msgspec.Struct, array_like=True, frozen=True):
    """Effects that are settled."""

    outbox: str
    rows: list[SettledRow]
    result: bytes = b""
    """The payload of a typed command, which runs if the one effect in `rows` was not settled before; may be empty."""


class SettlementReply(msgspec.Struct, array_like=True, frozen=True):
    """The reply to a settlement."""

    settled_count: int
    """Effects that were in the outbox; others had been settled before."""
    refused: list[tuple[int, int]]
    """Keys of effects that stay pending, since too many are given up."""
    answer: bytes = b""
    """What the service answered to the command of the result."""


M = TypeVar("M", bound=msgspec.Struct)

_encode: Final = msgspec.msgpack.Encoder().encode
_DECODERS: Final[dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (EffectsQuestion, EffectsAnswer, Settlement, SettlementReply)
}


def encode_outbox_message(message: msgspec.Struct, service_id: int) -> bytes:
    """Write a question, a settlement, or what answers it."""
    return bytes((MAGIC, tag_of(PayloadKind.OUTBOX, service_id))) + OUTBOX_MARK + _encode(message)


def is_outbox_message(payload: bytes | memoryview, service_id: int | None = None) -> bool:
    """Whether a payload is of this module, and for a service if one is named."""
    header = split_header(payload)
    return (
        header is not None
        and header[0] == PayloadKind.OUTBOX
        and service_id in (None, header[1])
        and payload[2:HEADER_BYTES] == OUTBOX_MARK
    )


def decode_outbox_message(payload: bytes | memoryview, kind: type[M]) -> M:
    """Read a payload of this module.

    Raises:
        RemoteProtocolError: it is none of this kind; the text is the same with every version of msgspec.
    """
    if not is_outbox_message(payload):
        raise RemoteProtocolError(
            f"payload={bytes(payload[:16])!r} expected a {kind.__name__}: what answers is no outbox of this version"
        )
    try:
        message: M = _DECODERS[kind].decode(payload[HEADER_BYTES:])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise RemoteProtocolError(f"payload of {len(payload)} bytes expected a {kind.__name__}") from None
    return message
