"""Plain text is for loopback: what is judged is the address that is bound."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.tls import CLUSTER, Issuer
from trimaran.cluster.runtime.ground.member_network import make_network
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.tls import TlsStack


def config(**settings: object) -> NodeConfig:
    values = {"directory": Path("/data"), "service": "a:B", "member_id": 1, **settings}
    return NodeConfig(members=parse_members("0=10.0.0.9:9000,1=10.0.0.8:9000"), **values)  # type: ignore[arg-type]


async def listen(host: str, purpose: Purpose = Purpose.LOG, **settings: object) -> None:
    """Listen as a member does, on any port that is free."""
    network = make_network(config(**settings))
    listener = await network.listen(purpose, Endpoint(host, 0), lambda _: asyncio.Protocol(), gate=ConnectionGate())
    listener.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
async def test_loopback_needs_no_tls_whatever_others_dial(host: str) -> None:
    with capture_logs() as logged:
        await listen(host)

    assert logged == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_other_addresses_need_tls_or_to_be_told(host: str) -> None:
    with pytest.raises(ConfigurationError, match="no TLS"):
        await listen(host)

    with capture_logs() as logged:
        await listen(host, insecure_plaintext=True)
    assert [event["event"] for event in logged] == ["node.plaintext"]


async def test_metrics_have_a_rule_of_their_own() -> None:
    await listen("0.0.0.0", Purpose.METRICS)


def test_a_member_with_tls_listens_anywhere(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    files = {"tls_authorities": "authorities.pem", "tls_certificate": "member-1.pem", "tls_key": "member-1.key"}
    issuer.member(1)

    network = make_network(config(**{name: str(tmp_path / file) for name, file in files.items()}))

    assert isinstance(network, TlsStack)
    assert network.cluster_id == CLUSTER
