"""A cluster whose every connection is TLS: nothing works without it, and everything does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from examples.access_quota import AccessQuota, Request
from tests.tls import CLUSTER, Issuer
from tests.waiting import patient, until, within
from trimaran.archive import ArchiveError
from trimaran.archive.net.client import ArchiveClient
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client import ClientConfig, ClusterClient, ConnectTimeoutError
from trimaran.cluster.documents.query import StatusQueryError, query_document
from trimaran.cluster.node.node import Node
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.runtime.ground.member_network import make_network
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.documents.document import read_document
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.net.transport import SocketStack
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.types import STATUS_STREAM_ID

DEADLINE_S: Final = 120


@asynccontextmanager
async def running(config: NodeConfig) -> AsyncIterator[Node]:
    """Run one member in this process, whose priority stays as it is."""
    host = replace(Host.of_operating_system(make_network(config)), set_session_nice=lambda nice: True)
    async with Node.open(config, AccessQuota(), host=host) as node, asyncio.TaskGroup() as tasks:
        run = tasks.create_task(node.run())
        try:
            yield node
        finally:
            node.stop()
            with suppress(asyncio.CancelledError):
                await run


async def test_every_connection_of_a_cluster_is_encrypted(tmp_path: Path) -> None:
    """The third member comes last: it copies the log, catches up and joins the live log."""
    base_ports = find_base_ports(3)
    members = tuple(MemberEndpoints.from_base(i, f"127.0.0.1:{port}") for i, port in enumerate(base_ports))
    issuer = Issuer.create(tmp_path / "certs")
    for member_id in range(3):
        issuer.member(member_id)
    operator = TlsStack(issuer.of(CallerRole.OPERATOR, "ops"))

    def config(member_id: int) -> NodeConfig:
        return NodeConfig(
            member_id=member_id,
            members=members,
            directory=tmp_path / str(member_id),
            service="examples.access_quota:AccessQuota",
            file_sync_level=0,
            term_length_bytes=1 << 16,
            segment_length_bytes=1 << 16,
            mtu_length_bytes=1408,
            metrics_endpoint="127.0.0.1:0",
            tls_authorities=str(tmp_path / "certs/authorities.pem"),
            tls_certificate=str(tmp_path / "certs/member-{member_id}.pem"),
            tls_key=str(tmp_path / "certs/member-{member_id}.key"),
        )

    endpoints = tuple(member.ingress for member in members[:2])
    async with within(DEADLINE_S), AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(running(config(member_id))) for member_id in (0, 1)]
        client_config = ClientConfig(endpoints=endpoints, connect_timeout_s=patient(DEADLINE_S), network=operator)
        client = await stack.enter_async_context(ClusterClient.connect(config=client_config))
        for number in range(200):
            reply = await client.request(Request("203.0.113.7", 60 * number, "/" + "x" * 1000).encode())
            assert reply == b"allowed\t9"

        third = await stack.enter_async_context(running(config(2)))
        end = max(node.module.ctx.append_position for node in nodes)
        await until(lambda: third.delivered_position >= end and third.module.follower is not None)

        status = read_document(
            MemberStatus, await query_document(members[2].consensus, STATUS_STREAM_ID, 20, network=operator)
        )
        assert (status.member_id, status.role) == (2, "FOLLOWER")
        assert status.cluster_id == f"{CLUSTER:016x}"
        async with ArchiveClient.connect(members[2].archive, network=operator) as archive:
            assert await archive.list_recordings()

        remote = SocketStack(uses_control_sockets=False)
        with pytest.raises(StatusQueryError):
            await query_document(members[2].consensus, STATUS_STREAM_ID, 1, network=remote)
        with pytest.raises(ArchiveError):
            async with ArchiveClient.connect(members[2].archive, timeout_s=1):
                pass
        with pytest.raises(ConnectTimeoutError):
            await ClusterClient.connect(endpoints, connect_timeout_s=1)
