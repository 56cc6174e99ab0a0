"""Directed scenarios of clients that mean no good: they read nothing, say nothing, or take all sessions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from trimaran.client import ClusterClient, ConnectRejectedError
from trimaran.cluster.testing.simulation.services.registers import Request, RequestKind
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import Purpose

if TYPE_CHECKING:
    from .scenarios import Scene

_DEAF_COUNT: Final = 8
_EGRESS_LIMIT_BYTES: Final = 256 << 10
"""For all clients here; the product's own limit would take minutes to reach."""
_HIGH_WATER_BYTES: Final = 8 << 10
_SILENT_COUNT: Final = 20
_SETUP_TIMEOUT_S: Final = 5.0
_SESSION_SHARE: Final = 3


def clients_that_read_nothing(scene: Scene) -> None:
    """Eight clients send and read nothing: what waits for all of them has one limit, and others are served."""
    leader = scene.start()
    assert leader.node is not None
    ingress = leader.node.parts.links.ingress
    egress = ingress.egress
    egress.limit_bytes = _EGRESS_LIMIT_BYTES
    scene.add_client()
    for number in range(_DEAF_COUNT):
        _add_deaf_client(scene, number)
    for _ in range(80):
        for connection in ingress.connections.values():
            if connection.egress.transport is not None:
                connection.egress.transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        scene.run(0.05)
        held_bytes = egress.held_bytes
        expect(held_bytes <= _EGRESS_LIMIT_BYTES, "egress that waits is bounded for all clients", held_bytes=held_bytes)
    expect(egress.cut_off_count > 0, "clients that read nothing are cut off", egress=egress)
    scene.expect_service("clients that read are served meanwhile", for_s=2, gap_s=1)


def connections_that_say_nothing(scene: Scene) -> None:
    """Twenty connections to the leader's ingress say nothing: soon they are ended."""
    leader = scene.start()
    scene.add_client()
    for number in range(_SILENT_COUNT):
        _add_silent_client(scene, f"silent-{number}", Endpoint.parse(leader.config.me.ingress))
    assert leader.node is not None
    gate = leader.node.parts.ground.gate
    scene.run_until(lambda: gate.count(Purpose.INGRESS) >= _SILENT_COUNT, 5, "the connections come")
    scene.run(_SETUP_TIMEOUT_S + 1)
    count = gate.count(Purpose.INGRESS)
    expect(count <= 1, "a connection that does not say what it is is ended", connections=count)
    scene.expect_service("clients are served meanwhile", for_s=1, gap_s=1)


def a_client_that_takes_all_sessions(scene: Scene) -> None:
    """One machine opens session after session: it gets its share, is told so, and others get theirs."""
    leader = scene.start()
    for member in scene.cluster.members.values():
        assert member.node is not None
        ctx = member.node.module.ctx
        ctx.config = replace(ctx.config, session_limit=4 * _SESSION_SHARE, client_session_limit=_SESSION_SHARE)
    refusals = _add_greedy_client(scene)
    scene.run_until(lambda: len(refusals) > 1, 10, "a client that takes all sessions is refused")
    assert leader.node is not None
    count = len(leader.node.module.sessions.sessions)
    expect(count <= _SESSION_SHARE, "one client leaves sessions to the others", sessions=count, share=_SESSION_SHARE)
    scene.add_client()
    scene.expect_service("other clients get a session meanwhile", for_s=1, gap_s=1)


def _add_greedy_client(scene: Scene) -> list[ConnectRejectedError]:
    """Start a process that opens sessions without end; gives how it is refused."""
    refusals: list[ConnectRejectedError] = []

    async def take() -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(5 * _SESSION_SHARE):
                config = replace(scene.client_config(), make_secret=partial(bytes, b"greedy %d" % number))
                try:
                    await stack.enter_async_context(ClusterClient.connect([], config=config))
                except ConnectRejectedError as error:
                    refusals.append(error)
            await asyncio.sleep(1e6)

    scene.cluster.add_client("greedy", take)
    return refusals


def _add_deaf_client(scene: Scene, number: int) -> None:
    """Start a client that sends without end and takes one answer."""

    async def send() -> None:
        config = replace(scene.client_config(), egress_queue_limit=1)
        async with ClusterClient.connect([], config=config) as client:
            for sequence in itertools.count(1):
                value = number * 1_000_000 + sequence
                await client.offer(Request(RequestKind.APPEND, 1_000 + number, sequence, 100 + number, value).encode())
                if sequence % 16 == 0:
                    await asyncio.sleep(0.004)

    scene.cluster.add_client(f"deaf-{number}", send)


def _add_silent_client(scene: Scene, name: str, endpoint: Endpoint) -> None:
    """Start a process that connects once and says nothing."""

    async def connect() -> None:
        await scene.cluster.network.dial(Purpose.INGRESS, endpoint, asyncio.Protocol)
        await asyncio.sleep(1e6)

    scene.cluster.add_client(name, connect)
