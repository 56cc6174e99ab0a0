"""Settings that a member keeps to while it runs: connections from one address, and the token for its metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cluster.runtime.fake_gate import let_in
from trimaran.cluster.auth.metrics_access import MetricsAccess
from trimaran.cluster.runtime.ground.gate_limits import make_gate
from trimaran.cluster.runtime.ground.secret_files import SecretFiles
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.service_api.access.rights import Rights
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net.transport import SOCKETS, Purpose

TOKEN = "0123456789abcdef"


def config(**settings: object) -> NodeConfig:
    values = {"member_id": 0, "directory": Path("/data"), "service": "a:B", **settings}
    return NodeConfig(members=parse_members("0=127.0.0.1:9000"), **values)  # type: ignore[arg-type]


async def test_one_address_has_no_more_connections_than_its_setting() -> None:
    gate = make_gate(config(address_connection_limit=2), None, Rights())
    ended: list[str] = []

    first = let_in(gate, Purpose.INGRESS, "10.0.0.1")
    first.end = ended.append
    for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        let_in(gate, Purpose.INGRESS, host)

    assert len(ended) == 1
    assert gate.count(Purpose.INGRESS) == 3


def test_metrics_are_for_who_sends_the_token_of_the_file_in_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    secrets = SecretFiles(config(metrics_token_file=str(file)), SOCKETS)
    access = MetricsAccess(secrets.metrics_token)
    gate = make_gate(config(), None, Rights())

    def status(token: str) -> int:
        request = f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n".encode()
        refusal = access.refusal(let_in(gate, Purpose.METRICS, "10.0.0.1"), request)
        return 200 if refusal is None else refusal[0]

    assert (status(TOKEN), status(TOKEN[::-1])) == (200, 401)


def test_a_token_that_others_may_read_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)

    with pytest.raises(ConfigurationError, match=str(file)):
        SecretFiles(config(metrics_token_file=str(file)), SOCKETS)
