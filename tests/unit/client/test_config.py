"""The settings of a client: TLS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tls import CLUSTER, OTHER_CLUSTER, Issuer
from trimaran.client import ClientConfig
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.net.transport import SOCKETS
from trimaran.service_api.tls import TlsSettings, TlsStack

ENDPOINTS = ("127.0.0.1:9000",)


def test_a_client_with_tls_dials_with_its_certificate(tmp_path: Path) -> None:
    tls = Issuer.create(tmp_path).of(CallerRole.CLIENT, "app")

    config = ClientConfig(endpoints=ENDPOINTS, tls=tls)
    again = replace(config, connect_timeout_s=1.0)

    assert isinstance(config.network, TlsStack)
    assert config.network.cluster_id == config.known_cluster_id == CLUSTER
    assert again.network is config.network
    assert ClientConfig(endpoints=ENDPOINTS).network is SOCKETS


def test_the_cluster_of_the_setting_and_of_the_certificate_are_one(tmp_path: Path) -> None:
    tls = Issuer.create(tmp_path).of(CallerRole.CLIENT, "app")

    with pytest.raises(ConfigurationError, match=r"certificate.*another cluster"):
        ClientConfig(endpoints=ENDPOINTS, tls=tls, cluster_id=f"{OTHER_CLUSTER:016x}")


def test_files_that_cannot_be_used_are_named_when_the_configuration_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"authorities.*read: file=.*nowhere\.pem"):
        ClientConfig(endpoints=ENDPOINTS, tls=TlsSettings(authorities=str(tmp_path / "nowhere.pem")))
