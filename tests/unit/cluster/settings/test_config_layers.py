"""The settings of TLS in every layer: a table in the file, and one file for all members."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.cluster.settings.config_layers import load_node_config, load_tls
from trimaran.cluster.settings.variables import NO_SETTINGS
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsSettings

FLAGS = {
    "members": "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020",
    "directory": "/data",
    "service": "a:B",
}
FILE = """
[tls]
authorities = "ca.pem"
certificate = "member-{member_id}.pem"
key = "keys/{member_id}.key"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("member_id", ["0", "2"])
def test_one_file_does_for_all_members(file: Path, member_id: str) -> None:
    config = load_node_config(file, {**FLAGS, "member_id": member_id}).config

    assert config.tls == TlsSettings(
        authorities="ca.pem", certificate=f"member-{member_id}.pem", key=f"keys/{member_id}.key"
    )


def test_a_flag_and_a_variable_come_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_TLS_AUTHORITIES", "other.pem")
    loaded = load_node_config(file, {**FLAGS, "member_id": "1", "tls_key": "my.key"})

    assert loaded.config.tls == TlsSettings(authorities="other.pem", certificate="member-1.pem", key="my.key")
    assert loaded.origins["tls_certificate"] == f"{file}:4"
    assert loaded.origins["tls_authorities"] == "TRIMARAN_TLS_AUTHORITIES"


@pytest.mark.parametrize("variable", sorted(NO_SETTINGS))
def test_a_variable_that_is_no_setting_is_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "something")
    config = load_node_config(None, {**FLAGS, "member_id": "1"}).config

    assert config.member_id == 1
    monkeypatch.setenv(f"{variable}S", "something")
    with pytest.raises(ConfigurationError, match=f"unknown setting: {variable}S"):
        load_node_config(None, {**FLAGS, "member_id": "1"})


def test_a_command_does_not_show_the_certificates_of_members(file: Path) -> None:
    assert load_tls(file) == TlsSettings(authorities="ca.pem")
    assert load_tls(file, {"tls_certificate": "ops.pem", "tls_key": "ops.key"}) == TlsSettings(
        authorities="ca.pem", certificate="ops.pem", key="ops.key"
    )
    assert load_tls() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tls]\nauthoritie = "ca.pem"\n', "tls_authoritie in .*tls_authorities"),
        ("tls = 5\n", "unknown.* tls in"),
        ("[tls]\nkey = 5\n", "tls_key=5 from .*expected text"),
        ('[tls]\nauthorities = "ca.pem"\n', "both files"),
        ('[tls]\ncertificate = "c.pem"\nkey = "k"\n', "tls authorities=''"),
        ('[tls]\nauthorities = "ca.pem"\ncertificate = "c.pem"\n', "certificate='c.pem' and key=''"),
        ('[tls]\nverify = "never"\n', "tls_verify='never'"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=message):
        load_node_config(path, {**FLAGS, "member_id": "0"})


PATTERN = "dns://node-{member_id}.svc:9000?size=3"


@pytest.mark.parametrize(
    ("member_id", "members", "join"),
    [
        ("2", [0, 1, 2], ""),
        ("3", [3], "0=node-0.svc:9000,1=node-1.svc:9000,2=node-2.svc:9000"),
    ],
)
def test_a_member_that_a_pattern_does_not_name_joins_those_it_names(
    member_id: str, members: list[int], join: str
) -> None:
    """One text of settings does for the members that begin and for those that come later."""
    loaded = load_node_config(None, {**FLAGS, "members": PATTERN, "member_id": member_id})

    assert [member.member_id for member in loaded.config.members] == members
    assert (loaded.config.join, loaded.config.me.ingress) == (join, f"node-{member_id}.svc:9000")


def test_what_cannot_be_bound_is_a_bad_setting() -> None:
    with pytest.raises(ConfigurationError, match="listen='::': bad endpoint"):
        load_node_config(None, {**FLAGS, "member_id": "1", "listen": "::"})
