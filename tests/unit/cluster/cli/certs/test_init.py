"""`trimaran certs`: what it makes is what members and clients take, and what it shows is what is in the file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from trimaran.cluster.cli.certs import app
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsSettings, TlsStack
from trimaran.service_api.types import MemberId


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def files_of(directory: Path, stem: str) -> TlsSettings:
    return TlsSettings(
        authorities=str(directory / "authorities.pem"),
        certificate=str(directory / f"{stem}.pem"),
        key=str(directory / f"{stem}.key"),
    )


def test_init_makes_everything_that_a_cluster_and_its_users_need(tmp_path: Path) -> None:
    directory = tmp_path / "certs"

    rows = json.loads(run("init", directory, "--members", "2", "--cluster-id", "3f9a0c12d45e77b1", "-o", "json"))

    assert [row["identity"] for row in rows] == [
        "member/0",
        "member/1",
        "client/client",
        "operator/operator",
        "observer/observer",
    ]
    for member_id in range(2):
        stack = TlsStack(files_of(directory, f"member-{member_id}"), member_id=MemberId(member_id))
        assert stack.cluster_id == ClusterId(0x3F9A0C12D45E77B1)
    for user in ("client-client", "operator-operator", "observer-observer"):
        assert TlsStack(files_of(directory, user)).cluster_id == ClusterId(0x3F9A0C12D45E77B1)


def test_init_draws_a_cluster_and_says_how_to_go_on(tmp_path: Path) -> None:
    first, second = run("init", tmp_path / "a"), run("init", tmp_path / "b")

    clusters = {line for text in (first, second) for line in text.splitlines() if line.startswith("cluster")}
    assert len(clusters) == 2
    assert "trimaran node --tls-authorities" in first


def test_init_keeps_an_authority_that_is_there(tmp_path: Path) -> None:
    run("init", tmp_path / "certs")

    with pytest.raises(ConfigurationError, match="authority already"):
        run("init", tmp_path / "certs")


def test_issue_replaces_one_certificate_and_adds_others(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    run("init", directory, "--members", "1", "--host", "node-0.example")
    before = (directory / "member-0.pem").read_bytes()

    assert "member-0.pem" in run("issue", directory, "member/0", "--days", "3", "--host", "10.0.0.1")
    run("issue", directory, "observer/spark")

    assert (directory / "member-0.pem").read_bytes() != before
    (shown,) = json.loads(run("show", directory / "member-0.pem", "-o", "json"))
    assert (shown["days_left"], shown["names"]) == (2, ["localhost", "127.0.0.1", "::1", "10.0.0.1"])
    (shown,) = json.loads(run("show", directory / "observer-spark.pem", "-o", "json"))
    assert shown["uses"][0].startswith("to read: status")


@pytest.mark.parametrize("identity", ["member/x", "member/01", "king/ops", "client/", "client/a b", "member"])
def test_issue_refuses_what_is_no_identity(tmp_path: Path, identity: str) -> None:
    run("init", tmp_path / "certs")

    with pytest.raises(ConfigurationError, match="bad identity"):
        run("issue", tmp_path / "certs", identity)


def test_issue_needs_a_directory_of_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="directory of `trimaran certs init`"):
        run("issue", tmp_path, "member/0")


def test_show_explains_members_authorities_and_what_has_expired(tmp_path: Path) -> None:
    directory = tmp_path / "certs"
    run("init", directory)

    text = run("show", directory / "member-1.pem")
    assert has_facts(text, "that member", "trimaran://")
    assert "as localhost" in text
    assert f"{datetime.now(UTC) + timedelta(days=365):%Y-%m}" in text
    assert "to sign" in run("show", directory / "authorities.pem")
