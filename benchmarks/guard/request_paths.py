"""The paths of a client's requests: one by one with a caller each, as a batch, and the same with typed commands.

A chunk is so many requests of one session: they are made, written, answered, and their callers have the replies.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...client import ClusterClient
from ...client.typed import TypedClient
from ...client.typed.exchange import Route
from ...service_api.types import EGRESS_STREAM_ID
from ...service_api.wire.frame import encode_message
from ...service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE, RequestCode
from ...service_api.wire.session_frame import SessionField
from ..services.typed_request import Number, Numbered
from .stand_ins import (
    MTU_LENGTH_BYTES,
    TERM,
    TIMESTAMP_MS,
    ChunkPath,
    OpeningMember,
    PassLoop,
    opening_config,
    receive,
)

_SESSION_ID = 1
_SEQUENCE = struct.Struct("<q")
_FIRST_NUMBER = 1 << 20
"""The first of numbers that are all equally long in MessagePack."""

Asks = Callable[[ClusterClient], Sequence[Coroutine[Any, Any, object]]]
"""Makes what a client's tasks run for one chunk."""


def make_request_paths(payloads: Sequence[bytes]) -> Mapping[str, Callable[[], ChunkPath]]:
    """Make the paths by name, with a request for each payload."""
    return {
        "client_request": lambda: _ask(payloads, lambda client: [client.request(payload) for payload in payloads]),
        "client_request_many": lambda: _ask(payloads, lambda client: [client.request_many(payloads)]),
        "client_call": lambda: _call(payloads, lambda typed, commands: [typed.call(each) for each in commands]),
        "client_call_many": lambda: _call(payloads, lambda typed, commands: [typed.call_many(commands)]),
    }


def _ask(replies: Sequence[bytes], asks: Asks) -> ChunkPath:
    """A session makes requests, and takes the replies."""
    member, loop = OpeningMember(), PassLoop()
    clients: list[ClusterClient] = []

    async def open_session() -> None:
        clients.append(await ClusterClient.connect(config=opening_config(member)))

    loop.complete(open_session())
    member.is_open = True
    (client,), (connection,) = clients, member.protocols
    header = REQUEST_HEADER.pack(*REQUEST_MESSAGE, TERM, _SESSION_ID, TIMESTAMP_MS, 0, RequestCode.REPLY)
    frames = [
        encode_message(header + reply, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES) for reply in replies
    ]
    data, length = bytearray(b"".join(frames)), len(frames[0])
    places = range(SessionField.REQUEST_SEQUENCE.offset, len(data), length)
    next_sequence = 1

    def begin() -> list[asyncio.Task[object]]:
        return [asyncio.get_running_loop().create_task(ask) for ask in asks(client)]

    def run() -> None:
        nonlocal next_sequence
        tasks = list[asyncio.Task[object]]()
        loop.run(lambda: tasks.extend(begin()))
        for sequence, place in enumerate(places, next_sequence):
            _SEQUENCE.pack_into(data, place, sequence)
        next_sequence += len(places)
        loop.run(lambda: receive(connection, bytes(data)))
        for task in tasks:
            task.result()

    return run


def _call(
    payloads: Sequence[bytes], make: Callable[[TypedClient, list[Number]], Sequence[Coroutine[Any, Any, object]]]
) -> ChunkPath:
    """A typed client makes commands and reads the replies, which say the same."""
    route = Route(Number)
    reply = route.header_of_reply + route.reply.encode(Numbered(_FIRST_NUMBER, payloads[0]))

    def asks(client: ClusterClient) -> Sequence[Coroutine[Any, Any, object]]:
        typed = TypedClient(client)
        typed._routes[Number] = route
        return make(typed, [Number(_FIRST_NUMBER, payload) for payload in payloads])

    return _ask([reply] * len(payloads), asks)
