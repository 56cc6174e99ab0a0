"""An outbox: what a service wants done outside the cluster, kept in its state until that is done.

The problem: a service may not act outside. Every member runs it, replays run it again, and an effect of a leader that
dies may or may not have happened.
The idea: the effect is state first. The service adds it to its outbox, in a callback of the log, so it is as durable as
the log. A worker outside (`trimaran.client.outbox_worker.OutboxWorker`) asks the leader what is pending, does it, and
acknowledges it with a request, which removes it at one position of the log. If somebody dies in between, what is not
acknowledged is still pending, and is done again with the same key. So an effect happens at least once; the receiver
makes it once by the key.

    question   QUERY_MARK, position (8), number (4): what is pending behind that key
    answer     for each effect: position (8), number (4), length (4), payload
    ack        ACK_MARK, then position (8), number (4) for each effect
    snapshot   SNAPSHOT_MARK, then an effect as in an answer: one message for each
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ..cluster import Cluster
from ..errors import BackPressureError, LocalProtocolError, RemoteProtocolError
from ..payloads import plain_bytes

QUERY_MARK: Final = b"\xf7OUTBOX?\n"
ACK_MARK: Final = b"\xf7OUTBOX-\n"
SNAPSHOT_MARK: Final = b"\xf7OUTBOX=\n"
ACKNOWLEDGED: Final = b"\xf7OUTBOX+\n"
"""The reply to an acknowledgement."""

EFFECT_LIMIT: Final = 10_000
ANSWER_LIMIT_BYTES: Final = 32 << 10
"""An answer holds effects up to this length, and one at least."""

_KEY: Final = struct.Struct("<qI")
_EFFECT: Final = struct.Struct("<qII")


class EffectKey(NamedTuple):
    """Which effect it is: the same on every member, in every replay, and of no other effect of the cluster."""

    log_position: int
    """Of the entry whose callback added it."""
    number: int
    """How many effects this callback had added before."""

    def __str__(self) -> str:
        """Return the key for idempotence, to be given to the receiver."""
        return f"{self.log_position}-{self.number}"


BEGINNING: Final = EffectKey(-1, 0)
"""Before every key."""


class Effect(NamedTuple):
    """What a service wants done outside."""

    key: EffectKey
    payload: bytes


class Outbox:
    """The effects of one service that are not acknowledged, oldest first. Part of the service's state.

        def __init__(self):
            self.outbox = Outbox()

        async def on_start(self, cluster, snapshot):
            self.outbox.attach(cluster)
            if snapshot is not None:
                async for message in snapshot:
                    if not self.outbox.load(message):
                        ...  # the service's own message

        async def on_take_snapshot(self, snapshot):
            for message in self.outbox.snapshot_messages():
                await snapshot.offer(message)

        def on_request(self, session, timestamp, payload):
            reply = self.outbox.on_request(payload)
            if reply is None:
                self.outbox.add(b"send the invoice")
                reply = b"ordered"
            return reply

        def on_query(self, payload):
            answer = self.outbox.on_query(payload)
            return b"no such question" if answer is None else answer

    At most `effect_limit` effects wait; a further one is refused, at the same position on every member.
    """

    def __init__(self, *, effect_limit: int = EFFECT_LIMIT) -> None:
        self.pending: dict[EffectKey, bytes] = {}
        """In the order in which they were added."""
        self._effect_limit = effect_limit
        self._cluster: Cluster | None = None
        self._newest = BEGINNING

    def __repr__(self) -> str:
        return f"<Outbox pending={len(self.pending)} newest={self._newest}>"

    def attach(self, cluster: Cluster) -> None:
        """Take the cluster that `on_start` was given."""
        self._cluster = cluster

    def add(self, payload: bytes | bytearray | memoryview) -> EffectKey:
        """Add an effect, in a callback of the log; return its key.

        Raises:
            BackPressureError: `effect_limit` effects are pending: no worker does them.
            LocalProtocolError: `attach` was not called, or the payload is no bytes, or longer than an answer may be: no
                worker could read it.
        """
        if self._cluster is None:
            raise LocalProtocolError("the outbox has no cluster: call attach(cluster) in on_start")
        if len(self.pending) >= self._effect_limit:
            raise BackPressureError(f"effects pending={len(self.pending)} limit={self._effect_limit}")
        data, limit = bytes(plain_bytes("payload", payload)), self._cluster.payload_limit_bytes - _EFFECT.size
        if len(data) > limit:
            raise LocalProtocolError(f"payload too long: length={len(data)} limit={limit}")
        log_position = self._cluster.log_position
        number = self._newest.number + 1 if self._newest.log_position == log_position else 0
        key = self._newest = EffectKey(log_position, number)
        self.pending[key] = data
        return key

    def on_request(self, payload: bytes | memoryview) -> bytes | None:
        """Take an acknowledgement; return the reply to it. None for any other request.

        Raises:
            RemoteProtocolError: it begins as an acknowledgement and is none.
        """
        if bytes(payload[: len(ACK_MARK)]) != ACK_MARK:
            return None
        keys = bytes(payload[len(ACK_MARK) :])
        if len(keys) % _KEY.size:
            raise RemoteProtocolError(f"acknowledgement: length={len(keys)} expected a multiple of {_KEY.size}")
        for fields in _KEY.iter_unpack(keys):
            self.pending.pop(EffectKey(*fields), None)  # it was acknowledged before, by the same worker or another one
        return ACKNOWLEDGED

    def on_query(self, payload: bytes | memoryview) -> bytes | None:
        """Return what is pending, if that is the question; None for any other query.

        Raises:
            RemoteProtocolError: it begins as that question and is not.
        """
        if bytes(payload[: len(QUERY_MARK)]) != QUERY_MARK:
            return None
        key = bytes(payload[len(QUERY_MARK) :])
        if len(key) != _KEY.size:
            raise RemoteProtocolError(f"question for effects: length={len(key)} expected {_KEY.size}")
        after, answer = EffectKey(*_KEY.unpack(key)), bytearray()
        limit = (
            ANSWER_LIMIT_BYTES if self._cluster is None else min(ANSWER_LIMIT_BYTES, self._cluster.payload_limit_bytes)
        )
        for effect in self._effects():
            if effect.key <= after:
                continue
            if answer and len(answer) + _EFFECT.size + len(effect.payload) > limit:
                break
            answer += _encode(effect)
        return bytes(answer)

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield the messages that hold this outbox in a snapshot."""
        for effect in self._effects():
            yield SNAPSHOT_MARK + _encode(effect)

    def load(self, message: bytes | memoryview) -> bool:
        """Take a message of a snapshot; False if it is none of an outbox.

        Raises:
            RemoteProtocolError: it begins as one and is none.
        """
        if bytes(message[: len(SNAPSHOT_MARK)]) != SNAPSHOT_MARK:
            return False
        for effect in decode_effects(bytes(message[len(SNAPSHOT_MARK) :])):
            self.pending[effect.key] = effect.payload
            self._newest = max(self._newest, effect.key)
        return True

    def _effects(self) -> Iterator[Effect]:
        for key, payload in self.pending.items():
            yield Effect(key, payload)


def encode_question(after: EffectKey) -> bytes:
    """Return the query for what is pending behind a key."""
    return QUERY_MARK + _KEY.pack(*after)


def encode_acknowledgement(keys: Iterable[EffectKey]) -> bytes:
    """Return the request that acknowledges effects."""
    return ACK_MARK + b"".join(_KEY.pack(*key) for key in keys)


def decode_effects(answer: bytes) -> list[Effect]:
    """Read the effects of an answer.

    Raises:
        RemoteProtocolError: it is none: the service does not hand such queries to its outbox.
    """
    effects, offset = [], 0
    while offset < len(answer):
        if len(answer) - offset < _EFFECT.size:
            raise RemoteProtocolError(f"effects: length={len(answer)} ends inside one at {offset}")
        log_position, number, length = _EFFECT.unpack_from(answer, offset)
        offset += _EFFECT.size
        if length > len(answer) - offset:
            raise RemoteProtocolError(f"effects: length={len(answer)} ends inside one at {offset}")
        effects.append(Effect(EffectKey(log_position, number), answer[offset : offset + length]))
        offset += length
    return effects


def _encode(effect: Effect) -> bytes:
    return _EFFECT.pack(*effect.key, len(effect.payload)) + effect.payload
