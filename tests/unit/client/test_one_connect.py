"""Every client connects in one way: the same `connect`, with the same keywords, and errors that say what to pass."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from trimaran.archive.net.client import ArchiveClient
from trimaran.client import (
    ClientConfig,
    ClusterClient,
    ConnectRejectedError,
    GroupedClient,
    PasswordCredentials,
    SessionPool,
    SharedConnection,
    SyncClusterClient,
    SyncGroupedClient,
    SyncSessionPool,
    SyncSharedConnection,
)
from trimaran.client.config import ConnectSettings
from trimaran.client.ready_made import (
    CountersClient,
    ElectionClient,
    KvClient,
    LocksClient,
    QueueClient,
    SyncCountersClient,
    SyncElectionClient,
    SyncKvClient,
    SyncLocksClient,
    SyncQueueClient,
)
from trimaran.client.typed import SyncTypedClient, TypedClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.access.password_proof import SaltedSecret
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError
from trimaran.service_api.service import ClusteredService
from trimaran.service_api.types import MemberId

TYPED: Any = (TypedClient, KvClient, LocksClient, ElectionClient, QueueClient, CountersClient)
CLIENTS: Any = (ClusterClient, SharedConnection, SessionPool, GroupedClient, *TYPED)
BLOCKING: Any = (
    *(SyncClusterClient, SyncSharedConnection, SyncSessionPool, SyncGroupedClient, SyncTypedClient, SyncKvClient),
    *(SyncLocksClient, SyncElectionClient, SyncQueueClient, SyncCountersClient),
)


class Echo(ClusteredService):
    def on_request(self, session: object, timestamp: int, payload: memoryview) -> bytes:
        return bytes(payload)


@pytest.fixture(scope="module")
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster(Echo, members=1) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.__name__)
def test_a_connect_is_awaited_or_entered_once(memory: MemoryCluster, kind: Any) -> None:
    config = memory._client_config({})

    async def test() -> None:
        client = await kind.connect(config=config)
        assert type(client) is kind
        async with client as same:
            assert same is client
        connecting = kind.connect(config=config)
        async with connecting as client:
            assert type(client) is kind
        with pytest.raises(LocalProtocolError, match="connect"):
            await connecting

    memory.run(test())


@pytest.mark.parametrize("kind", [*CLIENTS, *BLOCKING], ids=lambda kind: kind.__name__)
def test_help_shows_the_keywords_of_every_connect_with_their_defaults(kind: Any) -> None:
    defaults = {field.name: field.default for field in fields(ClientConfig)} | {"config": None}

    parameters = inspect.signature(kind.connect).parameters

    shown = {name: parameters[name].default for name in ConnectSettings.__annotations__}
    assert shown == {name: defaults[name] for name in ConnectSettings.__annotations__}


def test_a_keyword_has_the_type_of_the_setting_of_that_name() -> None:
    of_config = inspect.get_annotations(ClientConfig)
    of_connect = inspect.get_annotations(ConnectSettings)

    found = {name: getattr(each, "__forward_arg__", each) for name, each in of_connect.items()}

    assert found == {name: of_config.get(name, "ClientConfig | None") for name in found}


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.__name__)
def test_a_keyword_that_no_connect_has_is_named(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"password.*credentials"):
        kind.connect("127.0.0.1:9000", password="sesame")


@pytest.mark.parametrize("kind", [KvClient, SharedConnection, GroupedClient])
def test_a_keyword_beside_a_configuration_is_refused(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"arguments=connect_timeout_s.*config"):
        kind.connect(config=ClientConfig(endpoints=("127.0.0.1:9000",)), connect_timeout_s=1.0)


# --- credentials


@pytest.mark.parametrize("credentials", ["sesame", bytearray(b"sesame"), None, ("ops", "sesame")])
def test_what_cannot_be_credentials_is_refused_by_its_type_and_not_shown(credentials: Any) -> None:
    for connect in (ClusterClient.connect, KvClient.connect, ArchiveClient.connect):
        with pytest.raises(ConfigurationError) as caught:
            connect("127.0.0.1:9000", credentials=credentials)
        assert f"credentials of type {type(credentials).__name__}" in str(caught.value)
        assert "PasswordCredentials" in str(caught.value)
        assert "sesame" not in str(caught.value)


def test_a_password_is_text_or_bytes_and_anything_else_is_refused_by_name() -> None:
    assert SaltedSecret.of(b"sesame", bytes(16), 1) == SaltedSecret.of("sesame", bytes(16), 1)
    PasswordCredentials("ops", b"sesame")
    with pytest.raises(ConfigurationError, match=r"secret.*int"):
        PasswordCredentials("ops", 7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"principal=b'ops'.*str"):
        PasswordCredentials(b"ops", "sesame")  # type: ignore[arg-type]


# --- ports


@pytest.mark.parametrize("port", ["consensus", "log", "catchup", "archive"])
@pytest.mark.parametrize("kind", [ClusterClient, KvClient, SharedConnection, SessionPool])
def test_a_client_at_another_port_of_a_member_is_told_where_the_ingress_is(
    memory: MemoryCluster, kind: Any, port: str
) -> None:
    member = memory._cluster.members[MemberId(0)].config.me
    begin_ns = memory._cluster.now_ns

    async def test() -> None:
        endpoint = getattr(member, port)
        connecting = kind.connect(config=memory._client_config({"endpoints": (endpoint,)}))
        if kind is SharedConnection:
            connecting = (await connecting).open_session()
        with pytest.raises(ConnectRejectedError, match=f"{endpoint}.* member 0.*ingress, {member.ingress}") as caught:
            await connecting
        assert caught.value.code == "WRONG_PORT"

    memory.run(test())

    assert memory._cluster.now_ns - begin_ns < 1_000_000_000


@pytest.mark.parametrize("port", ["consensus", "log", "catchup", "archive"])
def test_a_client_with_one_right_endpoint_connects(memory: MemoryCluster, port: str) -> None:
    member = memory._cluster.members[MemberId(0)].config.me

    async def test() -> None:
        endpoints = getattr(member, port), member.ingress
        async with ClusterClient.connect(config=memory._client_config({"endpoints": endpoints})) as client:
            assert await client.request(b"1") == b"1"
            assert client.endpoints == (member.ingress,)

    memory.run(test())
