"""One rule for `host:port`, wherever it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from trimaran.archive import ArchiveError
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.server.replication_requests import parse_channel
from trimaran.archive.spark.streaming.stream_options import parse_stream_options
from trimaran.client.config import ClientConfig, parse_ingress_endpoints
from trimaran.cluster.cli.shared.setting_flags import load_members_from_flags
from trimaran.cluster.documents.query import StatusQueryError, query_document
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import load_node_config
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net.transport import P, Purpose, SocketStack
from trimaran.service_api.types import STATUS_STREAM_ID, MemberId

VALID = [
    "127.0.0.1:9000",
    "localhost:1",
    "member-0.cluster_a.example:65531",
    "[::1]:9000",
    "[2001:db8::7]:9000",
    "[fe80::1%eth0]:9000",
    "[::ffff:10.0.0.1]:9000",
    "müllheim:9000",
]
INVALID = [
    "",
    ":",
    "host",
    "host:",
    ":9000",
    "host:port",
    "host:-1",
    "host:+1",
    "host:1.0",
    "host:1_0",
    "host:09000",
    "host:\u00b2",
    "host:\u0661",
    "host:65536",
    "host:99999999999999999999",
    "::1:9000",
    "::1",
    "[::1]",
    "[::1]9000",
    "[::1:9000",
    "::1]:9000",
    "[]:9000",
    "[host]:9000",
    "[127.0.0.1]:9000",
    "[[::1]]:9000",
    "[fe80::1%e h]:9000",
    "a b:9000",
    "a:b:9000",
    "a/b:9000",
    "http://host:9000",
    "user@host:9000",
    "host?:9000",
]


def node_config(text: str) -> object:
    return NodeConfig(member_id=0, directory=Path("/d"), service="a:B", members=(MemberEndpoints.from_base(0, text),))


def metrics_endpoint(text: str) -> object:
    """The endpoint of one setting, which may also be empty or have port 0."""
    members = (MemberEndpoints.from_base(0, "h:1"),)
    return NodeConfig(member_id=0, directory=Path("/d"), service="a:B", members=members, metrics_endpoint=text)


def layered_metrics_endpoint(text: str) -> object:
    flags = {"member_id": "0", "members": "0=h:1", "directory": "/d", "service": "a:B", "metrics_endpoint": text}
    return load_node_config(None, flags)


class Nowhere(SocketStack):
    """A network in which no process listens: what is an endpoint gets as far as to be dialled."""

    async def dial(
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: Callable[[], P],
        *,
        member_id: MemberId | None = None,
    ) -> tuple[asyncio.Transport, P]:
        raise ConnectionRefusedError(111, f"connection refused: {endpoint}")


def archive_client(text: str) -> object:
    async def connect() -> None:
        async with ArchiveClient.connect(text, network=Nowhere()):
            pass

    with pytest.raises(ArchiveError, match="not reached"):
        asyncio.run(connect())
    return None


def status_query(text: str) -> object:
    with pytest.raises(StatusQueryError, match="no process"):
        asyncio.run(query_document(text, STATUS_STREAM_ID, 1, network=Nowhere()))
    return None


def replication(text: str) -> object:
    try:
        return parse_channel(text)
    except ArchiveError as error:
        raise ConfigurationError(str(error)) from None


ENTRY_POINTS: dict[str, Callable[[str], object]] = {
    "Endpoint": Endpoint.parse,
    "NodeConfig": node_config,
    "NodeConfig.metrics_endpoint": metrics_endpoint,
    "setting in layers": layered_metrics_endpoint,
    "CLI --members": lambda text: load_members_from_flags({"members": f"0={text}"}),
    "CLI --members in Aeron's form": lambda text: load_members_from_flags({"members": f"0,{text},h:1,h:2,h:3,h:4"}),
    "ClientConfig": lambda text: ClientConfig(endpoints=(text,)),
    "endpoints that members send": lambda text: parse_ingress_endpoints(f"0={text}"),
    "Spark commitFrom": lambda text: parse_stream_options({"path": "a", "commitFrom": f"h:1,{text},h:2"}),
    "archive client": archive_client,
    "replication": replication,
    "replication in Aeron's form": lambda text: replication(f"aeron:udp?term-length=64k|endpoint={text}|alias=a"),
    "status query": status_query,
}
EMPTY_IS_NONE = {"NodeConfig.metrics_endpoint", "setting in layers", "Spark commitFrom"}
"""Where no text means no endpoint."""


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_takes_and_refuses_the_same(name: str) -> None:
    read = ENTRY_POINTS[name]
    for text in VALID:
        read(text)
    for text in INVALID:
        if text or name not in EMPTY_IS_NONE:
            with pytest.raises((ConfigurationError, ValidationError)):
                read(text)


@given(st.text(alphabet="ah0129:.[]%-_ ²/=", max_size=12))
def test_entry_points_agree_on_any_text(text: str) -> None:
    """Of those that take the text as it is: a list strips its parts, and `=` begins its members."""

    def takes(read: Callable[[str], object]) -> bool:
        try:
            read(text)
        except (ConfigurationError, ValidationError):
            return False
        return True

    expected = takes(Endpoint.parse)
    assert expected == takes(ENTRY_POINTS["ClientConfig"]) == takes(ENTRY_POINTS["replication"])
    if text and not text.endswith(":0"):
        assert expected == takes(metrics_endpoint) == takes(layered_metrics_endpoint)
    if expected:
        assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize("text", VALID)
def test_an_endpoint_is_written_as_it_was_read(text: str) -> None:
    assert str(Endpoint.parse(text)) == text


def test_an_ipv6_host_has_brackets_in_text_alone() -> None:
    assert Endpoint.parse("[::1]:9000") == Endpoint("::1", 9000)


def test_port_0_is_one_to_listen_on_where_that_is_said() -> None:
    assert Endpoint.parse("host:0", may_be_ephemeral=True) == Endpoint("host", 0)
    with pytest.raises(ConfigurationError, match=r"port='0' .*1 to 65535"):
        Endpoint.parse("host:0")
    with pytest.raises(ConfigurationError, match=r"port='65536' .*0 to 65535"):
        Endpoint.parse("host:65536", may_be_ephemeral=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("host", "it has no port"),
        (":1", "it has no host"),
        ("host:x", "port='x' is no number from 1 to 65535"),
        ("::1:9000", "host='::1' is an IPv6 address, and needs brackets around it"),
        ("[host]:9000", "host='[host]' is no IPv6 address in brackets"),
        ("a b:9000", "host='a b' is no host name"),
    ],
)
def test_error_names_the_text_the_problem_and_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Endpoint.parse(text)

    assert str(caught.value) == (
        f"bad endpoint: endpoint={text!r}: {problem}; "
        "expected host:port, such as 127.0.0.1:9000, member-0.example:9000 or [::1]:9000"
    )
