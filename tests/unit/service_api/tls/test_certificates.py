"""What a certificate says."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from tests.tls import Issuer
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls.certificates import read_certificates


def test_a_file_with_several_certificates_is_read_in_its_order(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    member = issuer.member(3)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(member.certificate).read_bytes() + Path(member.authorities).read_bytes())

    first, second = read_certificates(both, "certificate")
    assert (first.subject, first.issuer, first.is_authority) == ("CN=member-3", "CN=test authority", False)
    assert (second.subject, second.is_authority, second.usages) == ("CN=test authority", True, ())
    assert [str(identity) for identity in first.identities()] == ["trimaran://3f9a0c12d45e77b1/member/3"]
    assert first.uris == ("trimaran://3f9a0c12d45e77b1/member/3",)
    loaded = x509.load_pem_x509_certificate(Path(member.certificate).read_bytes())
    assert first.serial_number == loaded.serial_number


@pytest.mark.parametrize("content", [b"", b"text", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "c.pem"
    file.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"PEM.*file=.*c\.pem"):
        read_certificates(file, "certificate")
