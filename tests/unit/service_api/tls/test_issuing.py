"""The authority for development."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.tls import Issuer
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls.certificates import read_certificates
from trimaran.service_api.tls.issuing import Authority


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    Issuer.create(tmp_path / "certs").member(0)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certs").iterdir()}
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700
    assert modes == dict.fromkeys(("authorities.pem", "authority.key", "member-0.pem", "member-0.key"), 0o600)


def test_only_members_and_hosts_may_be_servers(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    issued = {
        role: issuer.of(role, "7")
        for role in (CallerRole.MEMBER, CallerRole.CLIENT, CallerRole.OBSERVER, CallerRole.OPERATOR)
    }

    servers = {
        role for role, made in issued.items() if "server" in read_certificates(Path(made.certificate), "c")[0].usages
    }
    assert servers == {CallerRole.MEMBER}


def test_an_authority_is_loaded_again_and_never_replaced(tmp_path: Path) -> None:
    first = Issuer.create(tmp_path)

    again = Authority.load(tmp_path)
    assert again.certificate == first.authority.certificate
    with pytest.raises(ConfigurationError, match=r"authority already: file=.*authorities\.pem"):
        Issuer.create(tmp_path)


def test_a_directory_without_an_authority_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"authorities.*read: file=.*authorities\.pem"):
        Authority.load(tmp_path)
