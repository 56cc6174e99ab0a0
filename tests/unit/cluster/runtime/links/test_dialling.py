"""Dialling a member again and again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.facts import has_facts
from tests.tls import Issuer
from tests.waiting import until, within
from trimaran.cluster.runtime.links.dialling import dial_forever
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.tls import TlsStack
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
            raise socket.gaierror(socket.EAI_NONAME, "service not known")
        return resolve("127.0.0.1", *arguments, **options)

    class Dialling(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.set_result(None)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    dialling = asyncio.create_task(
        dial_forever(SOCKETS, Purpose.LOG, endpoint, lambda closed: Dialling(), member_id=MemberId(1))
    )
    with capture_logs() as logged:
        async with within(60):
            await connected

    assert [event["event"] for event in logged] == ["member_link.unresolved"]
    assert has_facts(logged[0]["reason"], "host=member-2.example", "service not known")
    assert asked == ["member-2.example"] * 3
    dialling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dialling
    listener.close()


async def test_a_member_that_may_not_have_moved_is_dialled_where_it_was_too() -> None:
    connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    listener = await SOCKETS.listen(
        Purpose.LOG, Endpoint("127.0.0.1", 0), lambda accepted: asyncio.Protocol(), gate=ConnectionGate()
    )
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))

        class Dialling(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connected.set_result(None)

        dialling = asyncio.create_task(
            dial_forever(
                SOCKETS,
                Purpose.LOG,
                Endpoint("127.0.0.1", nobody.getsockname()[1]),
                lambda closed: Dialling(),
                member_id=MemberId(1),
                find_former=lambda: listener.endpoint,
            )
        )
        async with within(60):
            await connected
    dialling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dialling
    listener.close()


async def test_a_member_whose_certificate_is_refused_says_so_once_and_dials_more_seldom(tmp_path: Path) -> None:
    """The handshake is over when the other side sees the certificate, so the refusal comes afterwards."""
    mine, theirs = Issuer.create(tmp_path / "mine"), Issuer.create(tmp_path / "theirs")
    settings = mine.member(0)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(settings.authorities).read_bytes() + Path(theirs.member(1).authorities).read_bytes())
    network = TlsStack(replace(settings, authorities=str(both)), member_id=MemberId(0))
    server = TlsStack(theirs.member(1), member_id=MemberId(1))
    refused = asyncio.Queue[str]()
    gate = ConnectionGate(warn=lambda event, **fields: refused.put_nowait(event))
    listener = await server.listen(
        Purpose.LOG, Endpoint("127.0.0.1", 0), lambda accepted: asyncio.Protocol(), gate=gate
    )
    pauses = []

    class Lost(asyncio.Protocol):
        def __init__(self, closed: asyncio.Future[None]) -> None:
            self._closed = closed

        def connection_lost(self, exc: Exception | None) -> None:
            pauses.append(asyncio.get_running_loop().time())
            self._closed.set_result(None)

    with capture_logs() as logged:
        dialling = asyncio.create_task(
            dial_forever(network, Purpose.LOG, listener.endpoint, Lost, member_id=MemberId(1))
        )
        await until(lambda: len(pauses) >= 7)
    dialling.cancel()
    listener.close()
    await listener.wait_closed()
    gate.close()

    assert [event["event"] for event in logged] == ["member_link.refused"]
    assert "refuse this" in logged[0]["reason"]
    assert pauses[-1] - pauses[-2] > 0.15
