"""The settings of TLS, which have the same names everywhere."""

from __future__ import annotations

import pytest

from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsSettings


def test_settings_are_read_from_the_environment() -> None:
    environment = {"TRIMARAN_TLS_AUTHORITIES": "a.pem", "TRIMARAN_TLS_VERIFY": "name", "TRIMARAN_TLS_KEY": ""}

    assert TlsSettings.of_environment(environment) == TlsSettings(authorities="a.pem", verify="name")
    assert TlsSettings.of_environment({}) is None
    assert TlsSettings.of_environment({"TRIMARAN_TLS_VERIFY": "auto"}) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"certificate": "c.pem", "key": "k"}, "tls authorities=''"),
        ({"authorities": "a", "certificate": "c.pem"}, r"certificate='c\.pem' .*key=''.*both"),
        ({"authorities": "a", "key": "k"}, "certificate='' .*key='k'.*both"),
        ({"authorities": "a", "verify": "never"}, "verify='never'.*auto, name, cluster"),
        ({"authorities": "a", "spiffe_prefix": "spiffe://a/b/"}, "spiffe_prefix='spiffe://a/b/'.*without a slash"),
        ({"authorities": "a", "spiffe_prefix": "https://a/b"}, "spiffe_prefix='https://a/b'.*trust domain"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        TlsSettings.of_values(values)
