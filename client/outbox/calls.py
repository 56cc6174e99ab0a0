"""Questions and settlements of outboxes as coroutines: what a worker and an operator share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...service_api.errors import LocalProtocolError, RemoteProtocolError
from ...service_api.outbox.effects import BEGINNING
from ...service_api.outbox.protocol import (
    EffectRow,
    EffectsAnswer,
    EffectsQuestion,
    OutboxFacts,
    SettledRow,
    Settlement,
    SettlementReply,
    decode_outbox_message,
    encode_outbox_message,
)
from ...service_api.payloads import encode_payload
from ...service_api.service_directory import ServiceEntry, decode_directory
from ...service_api.typed import Effect
from ...service_api.typed.codec import READ_ANY, MessageCodec, schema_from_bytes
from ...service_api.wire.payload_header import schemas_query
from ..cluster_client import ClusterClient
from ..errors import QueryRefusedError


@dataclass(slots=True, frozen=True)
class FoundOutbox:
    """An outbox of a cluster."""

    service_id: int
    service_name: str | None
    """Of a typed service; None for any other."""
    asked_id: int | None
    """The service that questions name; None where the cluster chooses the only one."""
    facts: OutboxFacts

    def __str__(self) -> str:
        return f"{self.service_name or self.service_id}.{self.facts.name}"


class OutboxCalls:
    """Asks the services of a cluster for their outboxes, and settles effects.

    All methods raise what `ClusterClient.query` and `ClusterClient.request` raise.
    """

    def __init__(self, cluster: ClusterClient, *, timeout_s: float | None = None) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"<OutboxCalls {self._cluster!r}>"

    async def find_all(self, name: str = "", *, service_id: int | None = None) -> list[FoundOutbox]:
        """Return the outboxes of all typed services, or of the one service that is asked; with a name only that one.

        Of a service that is not typed it is the first outbox, or the one that is named.
        """
        entries = [] if service_id is not None else await self._find_typed_services()
        found: list[FoundOutbox] = []
        for entry in entries:
            found += await self._find_outboxes("", entry.service_id, entry.name)
        if not entries:
            found = await self._find_outboxes(name, service_id, None)
        return [each for each in found if name in ("", each.facts.name)]

    async def pages(self, outbox: FoundOutbox, *, is_given_up: bool = False) -> AsyncIterator[EffectsAnswer]:
        """Iterate over all effects that are pending, or were given up, page by page in ascending order of keys."""
        after: tuple[int, int] = BEGINNING
        while True:
            question = EffectsQuestion(outbox.facts.name, after, is_given_up)
            answer = await self._ask(question, outbox.asked_id)
            yield answer
            if answer.is_last or not answer.effects:
                return
            after = answer.effects[-1].log_position, answer.effects[-1].number

    async def settle(self, outbox: FoundOutbox, rows: Sequence[SettledRow], *, result: bytes = b"") -> SettlementReply:
        """Settle effects; with a result, one effect.

        Raises:
            RemoteProtocolError: what answered is no outbox: the service does not hand requests to it.
        """
        settlement = encode_outbox_message(Settlement(outbox.facts.name, [*rows], result), outbox.service_id)
        return decode_outbox_message(
            await self._cluster.request(settlement, timeout_s=self._timeout_s), SettlementReply
        )

    async def _find_typed_services(self) -> list[ServiceEntry]:
        """Return the typed services; nothing where there is none."""
        try:
            return decode_directory(await self._query(schemas_query(), None))
        except (QueryRefusedError, RemoteProtocolError):
            return []

    async def _find_outboxes(self, name: str, asked_id: int | None, service_name: str | None) -> list[FoundOutbox]:
        answer = await self._ask(EffectsQuestion(name), asked_id)
        return [FoundOutbox(answer.service_id, service_name, asked_id, facts) for facts in answer.outboxes]

    async def _ask(self, question: EffectsQuestion, asked_id: int | None) -> EffectsAnswer:
        payload = encode_outbox_message(question, asked_id or 0)
        return decode_outbox_message(await self._query(payload, asked_id), EffectsAnswer)

    async def _query(self, payload: bytes, asked_id: int | None) -> bytes:
        return (await self._cluster.query(payload, service_id=asked_id, timeout_s=self._timeout_s)).payload


def choose_outbox(found: Sequence[FoundOutbox], name: str, effect: type[Effect] | None) -> FoundOutbox:
    """Choose the outbox that a worker is for.

    Raises:
        LocalProtocolError: there is none, or there are several; says which ones, and what to do.
    """
    wanted = None if effect is None else MessageCodec(effect).name
    fitting = [each for each in found if wanted in (None, each.facts.effect_name)]
    if len(fitting) != 1:
        known = ", ".join(f"{each} of {each.facts.effect_name or 'bytes'}" for each in found) or "none"
        raise LocalProtocolError(
            f"outbox={name!r} effect={wanted} expected one outbox, found {len(fitting)}; the cluster has: {known}; "
            "name it: OutboxWorker(..., name='payments')"
        )
    if effect is None and fitting[0].facts.effect_name:
        kind = fitting[0].facts.effect_name
        raise LocalProtocolError(f"{fitting[0]} holds {kind}: OutboxWorker(..., effect={kind})")
    return fitting[0]


class EffectReader:
    """Reads the payloads of effects: as a class, or as the bytes that they are."""

    def __init__(self, effect: type[Effect] | None) -> None:
        self._codec: MessageCodec[Any] | None = None if effect is None else MessageCodec(effect)
        self._schema = b""
        self._older: Any = None

    def __repr__(self) -> str:
        return f"<EffectReader {self._codec!r}>"

    def read(self, row: EffectRow, facts: OutboxFacts) -> Any:
        """Read the payload of an effect.

        Raises:
            RemoteProtocolError: the service has another class of this name, which cannot be read as this one; says
                which field differs.
        """
        codec = self._codec
        if codec is None:
            return row.payload
        if facts.schema != self._schema:
            schema = schema_from_bytes(facts.schema)
            self._schema, self._older = facts.schema, None if schema == codec.schema else schema
        return codec.decode(row.payload) if self._older is None else codec.decode_older(row.payload, self._older)


def describe_effect(row: EffectRow, facts: OutboxFacts) -> dict[str, Any]:
    """Return an effect as JSON can hold it, without its class: the fields by their names; of bytes text, or base64."""
    if not facts.schema:
        payload, encoding = encode_payload(row.payload)
        return {"effect": payload, "effect_encoding": encoding}
    names = [name for name, _, _ in schema_from_bytes(facts.schema)["fields"]]
    values = READ_ANY.decode(row.payload)
    return {"effect": msgspec.to_builtins(dict(zip(names, values, strict=True)))}
