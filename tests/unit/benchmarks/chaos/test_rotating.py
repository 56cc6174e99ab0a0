"""Certificates that a campaign replaces: what is trusted, and which one a member shows that it uses."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from trimaran.benchmarks.chaos.rotating import CertificateKeeper
from trimaran.benchmarks.rig.certificates import certificates_in
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.tls.issuing import files_of


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The certificates of a cluster."""
    return certificates_in(tmp_path).directory


def _stack(directory: Path, name: str) -> TlsStack:
    return TlsStack(files_of(directory, name))


def test_a_new_certificate_is_read_and_is_another_one(directory: Path) -> None:
    keeper, member, other = CertificateKeeper(directory, Random(1)), _stack(directory, "member-1"), "member-2"
    before, untouched = member.expires, _stack(directory, other).expires

    keeper.renew(1)

    assert member.renew()
    assert member.expires != before
    assert _stack(directory, other).expires == untouched


def test_an_authority_is_replaced_while_one_of_both_is_trusted_by_everybody(directory: Path) -> None:
    keeper, operator = CertificateKeeper(directory, Random(1)), _stack(directory, "operator-operator")
    old = operator.credentials.authorities

    keeper.trust_new_authority()
    operator.renew()
    both = operator.credentials.authorities
    keeper.renew_users()
    keeper.distrust_old_authority()
    operator.renew()

    assert len(both) == 2
    assert both[1:] == old
    assert operator.credentials.authorities == both[:1]
