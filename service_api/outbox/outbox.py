"""An outbox: what a service wants done outside the cluster, kept in its state until that is done.

The problem: a service may not act outside. Every member runs it, replays run it again, and an effect of a leader that
dies may or may not have happened.
The idea: the effect is state first. The service adds it to its outbox, in a callback of the log, so it is as durable as
the log. A worker outside (`trimaran.client.outbox_worker.OutboxWorker`) asks the leader what is pending, does it, and
settles it with a request, which removes it at one position of the log. If the leader or the worker dies in between,
what is not settled is still pending, and is done again with the same key. So an effect happens at least once; the
receiver makes it once by the key.

A worker that fails too often at an effect gives it up. The effect stays in the state, no worker does it, and an
operator retries or drops it.

A typed service declares its outboxes (`trimaran.outbox`) and calls none of the methods that are for the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, cast

import msgspec

from ..cluster import Cluster
from ..errors import BackPressureError, ConfigurationError, LocalProtocolError, RemoteProtocolError
from ..payloads import plain_bytes
from .effects import E, EffectKey, OutboxEntry, cut_reason
from .protocol import (
    ANSWER_LIMIT_BYTES,
    ROW_OVERHEAD_BYTES,
    EffectRow,
    EffectsAnswer,
    EffectsQuestion,
    OutboxFacts,
    SettledAs,
    SettledRow,
    Settlement,
    SettlementReply,
    decode_outbox_message,
    encode_outbox_message,
    is_outbox_message,
)

SNAPSHOT_MARK: Final = b"\xf7OUTBOX=\n"

EFFECT_LIMIT: Final = 10_000
_GIVEN_UP_SHARE: Final = 10
"""One effect of so many may be given up."""
_ATTEMPT_COUNT_LIMIT: Final = (1 << 31) - 1


class OutboxCounts(NamedTuple):
    """How many effects there are in an outbox."""

    name: str
    pending_count: int
    given_up_count: int


class Outbox(Generic[E]):
    """The effects of one service that are not settled. Part of the service's state.

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

        def outbox_counts(self):
            return [self.outbox.counts]  # for the member's metrics

    A typed service declares `payments: Outbox[Charge] = outbox()` instead, and needs no more than `add`.

    At most `effect_limit` effects are kept, and at most a tenth of them may be given up. A further effect is refused,
    at the same position on every member; one that a worker gives up beyond the tenth stays pending.
    """

    def __init__(self: Outbox[bytes], name: str = "outbox", *, effect_limit: int = EFFECT_LIMIT) -> None:
        """Make the outbox of a plain service; a service with several gives them names.

        Raises:
            ConfigurationError: the name is empty, or the limit below 1.
        """
        check_outbox(name, effect_limit)
        self.name = name
        self.effect_limit = effect_limit
        self._content: dict[tuple[int, int], OutboxEntry[bytes]] = {}
        self._cluster: Cluster | None = None
        self._newest = EffectKey(-1, 0)

    def __repr__(self) -> str:
        counts = self.counts
        return f"<Outbox {self.name} pending={counts.pending_count} given_up={counts.given_up_count}>"

    # --- for the service

    @property
    def entries(self) -> dict[tuple[int, int], OutboxEntry[E]]:
        """All effects by log position and number."""
        return cast("dict[tuple[int, int], OutboxEntry[E]]", self._content)  # of bytes; a subclass has its own

    @property
    def pending(self) -> dict[EffectKey, E]:
        """What is to be done, by key, in ascending order."""
        entries = self.entries
        return {EffectKey(*key): entries[key].effect for key in sorted(entries) if not entries[key].is_given_up}

    @property
    def given_up(self) -> dict[EffectKey, OutboxEntry[E]]:
        """What was given up, by key, in ascending order."""
        entries = self.entries
        return {EffectKey(*key): entries[key] for key in sorted(entries) if entries[key].is_given_up}

    @property
    def counts(self) -> OutboxCounts:
        """How many effects there are."""
        entries = self.entries
        given_up_count = sum(entry.is_given_up for entry in dict.values(entries))
        return OutboxCounts(self.name, len(entries) - given_up_count, given_up_count)

    def add(self, effect: E) -> EffectKey:
        """Add an effect, in a callback of the log; return its key.

        Raises:
            BackPressureError: `effect_limit` effects are kept: no worker does them.
            LocalProtocolError: `attach` was not called, or the effect is no bytes, or longer than an answer may be: no
                worker could read it.
        """
        entries = self.entries
        if len(entries) >= self.effect_limit:
            raise BackPressureError(f"outbox={self.name} effects={len(entries)} limit={self.effect_limit}")
        entry, length = self._check_effect(effect)
        limit = self._payload_limit_bytes - ROW_OVERHEAD_BYTES
        if length > limit:
            raise LocalProtocolError(f"effect too long: outbox={self.name} length={length} limit={limit}")
        key = self._make_key()
        entries[key.log_position, key.number] = entry
        return key

    # --- for the log

    def attach(self, cluster: Cluster) -> None:
        """Take the cluster that `on_start` was given."""
        self._cluster = cluster

    def on_request(self, payload: bytes | memoryview) -> bytes | None:
        """Take a settlement; return the reply to it. None for any other request.

        Raises:
            RemoteProtocolError: it begins as a settlement and is none, or has a result, which a typed service takes.
        """
        if not is_outbox_message(payload, self._service_id):
            return None
        settlement = decode_outbox_message(payload, Settlement)
        if settlement.outbox != self.name:
            return None
        if settlement.result:
            raise RemoteProtocolError(f"outbox={self.name}: the service is not typed, and takes no results")
        return encode_outbox_message(self.settle(settlement.rows), self._service_id)

    def on_query(self, payload: bytes | memoryview) -> bytes | None:
        """Answer a question for effects; None for any other query.

        Raises:
            RemoteProtocolError: it begins as that question and is not.
        """
        if not is_outbox_message(payload):  # the query itself says which service it is for
            return None
        question = decode_outbox_message(payload, EffectsQuestion)
        return answer_question(question, [self], self._service_id) if question.outbox in ("", self.name) else None

    def snapshot_messages(self) -> Iterator[bytes]:
        """Yield the messages that hold this outbox in a snapshot."""
        for key in sorted(self.entries):
            yield SNAPSHOT_MARK + msgspec.msgpack.encode((self.name, self._row(key)))

    def load(self, message: bytes | memoryview) -> bool:
        """Take a message of a snapshot; False if it is none of this outbox.

        Raises:
            RemoteProtocolError: it begins as one and is none.
        """
        if bytes(message[: len(SNAPSHOT_MARK)]) != SNAPSHOT_MARK:
            return False
        try:
            name, row = _SNAPSHOT_DECODER.decode(message[len(SNAPSHOT_MARK) :])
        except (msgspec.MsgspecError, ValueError):
            raise RemoteProtocolError(f"a message of {len(message)} bytes expected an effect of an outbox") from None
        if name != self.name:
            return False
        key = EffectKey(row.log_position, row.number)
        self._content[key.log_position, key.number] = OutboxEntry(row.payload, row.attempt_count, row.reason)
        self._newest = max(self._newest, key)
        return True

    def settle(self, rows: Iterable[SettledRow]) -> SettlementReply:
        """Settle effects; those that were settled before are passed over."""
        entries, settled_count = self.entries, 0
        refused: list[tuple[int, int]] = []
        room_count = max(1, self.effect_limit // _GIVEN_UP_SHARE) - self.counts.given_up_count
        for row in rows:
            key = row.log_position, row.number
            entry = entries.get(key)
            if entry is None:
                continue
            if row.settled_as is SettledAs.GIVEN_UP and not entry.is_given_up:
                if room_count <= 0:
                    refused.append(key)
                    continue
                room_count -= 1
                attempt_count = min(max(1, row.attempt_count), _ATTEMPT_COUNT_LIMIT)
                entries[key] = self._make_entry(entry.effect, attempt_count, cut_reason(row.reason))
            elif row.settled_as is SettledAs.RETRIED and entry.is_given_up:
                entries[key] = self._make_entry(entry.effect, 0, "")
            elif row.settled_as in (SettledAs.DONE, SettledAs.DROPPED):
                del entries[key]
            settled_count += 1
        return SettlementReply(settled_count, refused)

    @property
    def facts(self) -> OutboxFacts:
        """What a worker asks for first."""
        counts = self.counts
        return OutboxFacts(self.name, *self._schema, counts.pending_count, counts.given_up_count)

    def page(self, after: tuple[int, int], *, is_given_up: bool) -> tuple[list[EffectRow], bool]:
        """Return effects behind a key in order, as many as an answer holds, and whether these are the last."""
        entries, rows = self.entries, list[EffectRow]()
        keys = sorted(
            key for key, entry in dict.items(entries) if key > tuple(after) and entry.is_given_up == is_given_up
        )
        left_bytes = min(ANSWER_LIMIT_BYTES, self._payload_limit_bytes) - len(self._schema[1])
        for key in keys:
            row = self._row(key)
            left_bytes -= len(row.payload) + (ROW_OVERHEAD_BYTES if row.reason else _SHORT_ROW_BYTES)
            if rows and left_bytes < 0:
                return rows, False
            rows.append(row)
        return rows, True

    # --- what differs where effects are classes

    @property
    def _schema(self) -> tuple[str, bytes]:
        """The name and the schema of the effects' class."""
        return "", b""

    @property
    def _service_id(self) -> int:
        return 0 if self._cluster is None else self._cluster.service_id

    @property
    def _payload_limit_bytes(self) -> int:
        return ANSWER_LIMIT_BYTES if self._cluster is None else self._cluster.payload_limit_bytes

    def _check_effect(self, effect: Any) -> tuple[OutboxEntry[Any], int]:
        """Return what is kept of an effect, and the length of its payload."""
        data = bytes(plain_bytes("effect", effect))
        return self._make_entry(data, 0, ""), len(data)

    def _make_entry(self, effect: Any, attempt_count: int, reason: str) -> OutboxEntry[Any]:
        return OutboxEntry(effect, attempt_count, reason)

    def _encode_effect(self, effect: Any) -> bytes:
        data: bytes = effect
        return data

    def _make_key(self) -> EffectKey:
        if self._cluster is None:
            raise LocalProtocolError(f"outbox={self.name} has no cluster: call attach(cluster) in on_start")
        log_position = self._cluster.log_position
        number = self._newest.number + 1 if self._newest.log_position == log_position else 0
        self._newest = EffectKey(log_position, number)
        return self._newest

    def _row(self, key: tuple[int, int]) -> EffectRow:
        entry = dict.__getitem__(self.entries, key)
        return EffectRow(*key, self._encode_effect(entry.effect), entry.attempt_count, entry.reason)


_SHORT_ROW_BYTES: Final = 32
_SNAPSHOT_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, EffectRow])


def check_outbox(name: str, effect_limit: int) -> None:
    """Refuse what no outbox can be made of.

    Raises:
        ConfigurationError: the name is empty, or the limit below 1.
    """
    if not name:
        raise ConfigurationError("outbox: name='' expected a name, such as 'payments'")
    if type(effect_limit) is not int or effect_limit < 1:
        raise ConfigurationError(f"outbox={name}: effect_limit={effect_limit!r} expected a whole number from 1 on")


def answer_question(question: EffectsQuestion, outboxes: Sequence[Outbox[Any]], service_id: int) -> bytes:
    """Answer a question for the effects of one outbox of a service, or for its outboxes.

    Raises:
        RemoteProtocolError: the service has no such outbox; says which it has.
    """
    if not question.outbox:
        answer = EffectsAnswer(service_id, [each.facts for each in outboxes], [], True)
        return encode_outbox_message(answer, service_id)
    outbox = find_outbox(outboxes, question.outbox)
    rows, is_last = outbox.page(question.after, is_given_up=question.is_given_up)
    return encode_outbox_message(EffectsAnswer(service_id, [outbox.facts], rows, is_last), service_id)


def find_outbox(outboxes: Sequence[Outbox[Any]], name: str) -> Outbox[Any]:
    """Find an outbox of a service by its name.

    Raises:
        RemoteProtocolError: the service has none of that name; says which it has.
    """
    for each in outboxes:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in outboxes) or "none"
    raise RemoteProtocolError(f"outbox={name} expected one of this service's: {known}")
