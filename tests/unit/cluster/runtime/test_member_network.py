"""Plain text is for loopback."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.tls import CLUSTER, Issuer
from trimaran.cluster.runtime.member_network import make_network
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.transport import SOCKETS


def config(host: str, **settings: object) -> NodeConfig:
    values = {"directory": Path("/data"), "service": "a:B", "member_id": 1, **settings}
    return NodeConfig(members=parse_members(f"0=10.0.0.9:9000,1={host}:9000"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_loopback_needs_no_tls(host: str) -> None:
    with capture_logs() as logged:
        assert make_network(config(host)) is SOCKETS

    assert logged == []


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "[::]", "node-1.example", "127.0.0.1.example"])
def test_other_addresses_need_tls_or_to_be_told(host: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no TLS: any process that can connect"):
        make_network(config(host))

    with capture_logs() as logged:
        assert make_network(config(host, insecure_plaintext=True)) is SOCKETS
    assert [event["event"] for event in logged] == ["node.plaintext"]


def test_a_member_with_tls_listens_anywhere(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    files = {"tls_authorities": "authorities.pem", "tls_certificate": "member-1.pem", "tls_key": "member-1.key"}
    issuer.member(1)

    network = make_network(config("10.0.0.1", **{name: str(tmp_path / file) for name, file in files.items()}))

    assert isinstance(network, TlsStack)
    assert network.cluster_id == CLUSTER
