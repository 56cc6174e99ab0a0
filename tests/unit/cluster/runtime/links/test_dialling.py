"""Dialling a member again and again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from trimaran.cluster.runtime.links.dialling import dial_forever
from trimaran.service_api.connection_gate import ConnectionGate
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import SOCKETS, Purpose
from trimaran.service_api.types import MemberId


async def test_a_name_that_nobody_knows_is_asked_for_again_until_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose name is not in the DNS yet is as one that is not there yet."""
    connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listener = await SOCKETS.listen(
        Purpose.LOG, Endpoint("127.0.0.1", 0), lambda accepted: asyncio.Protocol(), gate=ConnectionGate()
    )
    endpoint = Endpoint("member-2.example", listener.endpoint.port)
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def resolve_late(host: str, *arguments: Any, **options: Any) -> Any:  # as in the standard library
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve("127.0.0.1", *arguments, **options)

    class Dialling(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.set_result(None)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    dialling = asyncio.create_task(
        dial_forever(SOCKETS, Purpose.LOG, endpoint, lambda closed: Dialling(), member_id=MemberId(1))
    )
    async with asyncio.timeout(60):
        await connected

    assert asked == ["member-2.example"] * 3
    dialling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dialling
    listener.close()
