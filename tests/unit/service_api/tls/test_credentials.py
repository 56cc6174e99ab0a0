"""What is wrong with a file of TLS is found before anything listens, and told with the file's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.tls import CLUSTER, OTHER_CLUSTER, Issuer
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsSettings
from trimaran.service_api.tls.credentials import TlsCredentials
from trimaran.service_api.types import MemberId


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer.create(tmp_path / "certs")


def load_member(settings: TlsSettings, member_id: int = 1) -> TlsCredentials:
    loaded = TlsCredentials.load(settings, now=datetime.now(UTC))
    loaded.expect_member(MemberId(member_id), NULL_CLUSTER_ID)
    return loaded


def test_a_members_files_are_read_and_name_what_expires_first(issuer: Issuer) -> None:
    loaded = load_member(issuer.member(1))

    assert loaded.expires is not None
    assert loaded.expires.subject == "CN=member-1"
    assert str(loaded.identity()) == "trimaran://3f9a0c12d45e77b1/member/1"
    assert "client" in loaded.chain[0].usages
    assert loaded.chain[0].names == ("localhost", "127.0.0.1", "::1")


def _missing(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    Path(settings.certificate).unlink()
    return settings


def _no_key(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    Path(settings.key).unlink()
    return settings


def _directory(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return replace(settings, authorities=str(issuer.authority.directory))


def _garbage(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    Path(settings.certificate).write_text("no certificate")
    return settings


def _garbage_key(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    Path(settings.key).write_text("no key")
    return settings


def _other_key(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return replace(settings, key=issuer.member(2).key)


def _readable_key(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    Path(settings.key).chmod(0o644)
    return settings


def _password(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    key = load_pem_private_key(Path(settings.key).read_bytes(), password=None)
    encryption = BestAvailableEncryption(b"secret")
    Path(settings.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return settings


def _expired(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return issuer.of(CallerRole.MEMBER, "1", begins_in=timedelta(days=-9), lifetime=timedelta(days=1))


def _early(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return issuer.of(CallerRole.MEMBER, "1", begins_in=timedelta(days=2))


def _other_authority(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    other = Issuer.create(issuer.authority.directory / "other")
    return replace(settings, authorities=str(other.authority.directory / "authorities.pem"))


def _other_member(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return issuer.member(2)


def _client(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return issuer.of(CallerRole.CLIENT, "app")


def _no_identity(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return issuer.host("localhost")


def _none(issuer: Issuer, settings: TlsSettings) -> TlsSettings:
    return replace(settings, certificate="", key="")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_missing, r"certificate.*read: file=.*member-1\.pem reason=No such file"),
        (_no_key, r"key.*used: file=.*member-1\.key .*reason=No such file"),
        (_directory, r"authorities.*read: file=.*certs reason=Is a directory"),
        (_garbage, r"certificate.*PEM.*file=.*member-1\.pem"),
        (_garbage_key, r"key.*used: file=.*member-1\.key"),
        (_other_key, r"fit.*key=.*member-2\.key certificate=.*member-1\.pem"),
        (_readable_key, r"key.*others: file=.*member-1\.key mode=0644 .*chmod 600"),
        (_password, r"key.*password: file=.*member-1\.key"),
        (_expired, r"expired: file=.*member-1\.pem not_after=\d{4}-\d\d-\d\d .*new"),
        (_early, r"valid yet: file=.*member-1\.pem not_before=\d{4}-\d\d-\d\d"),
        (_other_authority, r"refused.*member-1\.pem authorities=.*other.* reason="),
        (_other_member, r"member 1's: file=.*member-2\.pem identity=trimaran://\w+/member/2 .*URI"),
        (_client, r"member 1's: file=.*client-app\.pem identity=trimaran://\w+/client/app"),
        (_no_identity, r"member 1's: file=.*host\.pem identity=none"),
        (_none, "member: certificate='' .*files"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_what_to_do(
    issuer: Issuer, spoil: Callable[[Issuer, TlsSettings], TlsSettings], message: str
) -> None:
    settings = spoil(issuer, issuer.member(1))

    with pytest.raises(ConfigurationError, match=message):
        load_member(settings)


def test_a_certificate_of_another_cluster_than_the_setting_says_is_refused(issuer: Issuer) -> None:
    loaded = TlsCredentials.load(issuer.member(1), now=datetime.now(UTC))

    assert loaded.expect_member(MemberId(1), CLUSTER).member_id == 1
    with pytest.raises(ConfigurationError, match=r"3f9a.*cluster_id=0000000000000001"):
        loaded.expect_member(MemberId(1), OTHER_CLUSTER)


def test_a_key_of_root_may_be_read_by_its_group(issuer: Issuer) -> None:
    settings = issuer.member(1)
    key = Path(settings.key)
    key.chmod(0o640)

    if key.stat().st_uid == 0:
        load_member(settings)
    else:
        with pytest.raises(ConfigurationError, match="by others"):
            load_member(settings)
