"""Who may read the metrics, and the file of the token."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.cluster.auth.metrics_access import MetricsAccess, load_token
from trimaran.service_api.access.connection_purpose import Purpose
from trimaran.service_api.access.identity import STRANGER, Caller, CallerRole, Proof
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate

TOKEN = b"0123456789abcdef"
GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n"


def from_address(peer: object, caller: Caller = STRANGER) -> AcceptedConnection:
    accepted = ConnectionGate().enter(Purpose.METRICS, peer)
    assert accepted is not None
    accepted.shown = caller
    return accepted


def status(access: MetricsAccess, accepted: AcceptedConnection, request: bytes = GET) -> int:
    refusal = access.refusal(accepted, request)
    return 200 if refusal is None else refusal[0]


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (("127.0.0.1", 1), 200),
        (("127.9.9.9", 1), 200),
        (("::1", 1, 0, 0), 200),
        (("::ffff:127.0.0.1", 1, 0, 0), 200),
        (("10.0.0.1", 1), 401),
        (("1270.example", 1), 401),
        (("fe80::1", 1, 0, 0), 401),
        (None, 401),
    ],
)
def test_loopback_may_read_and_other_addresses_may_not(peer: object, expected: int) -> None:
    assert status(MetricsAccess(None), from_address(peer)) == expected


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (CallerRole.OBSERVER, 200),
        (CallerRole.OPERATOR, 200),
        (CallerRole.MEMBER, 200),
        (CallerRole.CLIENT, 403),
        (CallerRole.STRANGER, 401),
    ],
)
def test_a_certificate_of_a_reader_is_enough(role: CallerRole, expected: int) -> None:
    caller = STRANGER if role is CallerRole.STRANGER else Caller(role, "1", Proof.CERTIFICATE)

    assert status(MetricsAccess(None), from_address(("10.0.0.1", 1), caller)) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"Authorization: Bearer 0123456789abcdef\r\n", 200),
        (b"authorization:\tbearer  0123456789abcdef \r\n", 200),
        (b"Authorization: Bearer 0123456789abcdee\r\n", 401),
        (b"Authorization: Bearer 0123456789abcdef0\r\n", 401),
        (b"Authorization: Bearer 0123456789abcdef x\r\n", 401),
        (b"Authorization: Bearer \r\n", 401),
        (b"Authorization: Basic 0123456789abcdef\r\n", 401),
        (b"X: Authorization: Bearer 0123456789abcdef\r\n", 401),
        (b"", 401),
    ],
)
def test_the_token_is_enough(header: bytes, expected: int) -> None:
    assert status(MetricsAccess(lambda: TOKEN), from_address(("10.0.0.1", 1)), GET + header) == expected


def test_without_a_token_none_fits() -> None:
    assert status(MetricsAccess(None), from_address(("10.0.0.1", 1)), GET + b"Authorization: Bearer x\r\n") == 401


def test_a_token_that_has_changed_counts_at_once() -> None:
    tokens = [TOKEN]
    access, accepted = MetricsAccess(lambda: tokens[0]), from_address(("10.0.0.1", 1))
    request = GET + b"Authorization: Bearer " + TOKEN + b"\r\n"
    before = status(access, accepted, request)
    tokens[0] = b"another-token-that-is-long"

    assert (before, status(access, accepted, request)) == (200, 401)


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_token_is_one_line(tmp_path: Path) -> None:
    assert load_token(write(tmp_path / "token", "0123456789abcdef\n")) == TOKEN


@pytest.mark.parametrize(
    "text", ["", "short", "two words that are long", "0123456789abcdef\n0123456789abcdef", "é" * 20]
)
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="16 to 512") as caught:
        load_token(write(tmp_path / "token", text))

    assert not text.strip() or text.strip() not in str(caught.value)


def test_a_token_that_is_missing_or_may_be_read_by_others_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"metrics token.*file=.*absent"):
        load_token(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=r"metrics token.*file=.* mode=0644"):
        load_token(write(tmp_path / "token", "0123456789abcdef", 0o644))
