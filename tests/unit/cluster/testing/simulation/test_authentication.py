"""A whole cluster whose authenticator is `password`: real nodes, real clients, on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.facts import has_facts
from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from trimaran.client import ClusterClient, ConnectRejectedError, PasswordCredentials
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.core.sessions.sessions import SessionManager
from trimaran.service_api.access.password_proof import ITERATIONS_MIN
from trimaran.service_api.wire.log.messages import SessionOpenEvent

random_bytes = Random(3).randbytes


def guard(small: SmallCluster, path: Path) -> None:
    """Let nobody in but ops, whose secret is `right`."""
    write(path, ops="right")
    for member in small.cluster.members.values():
        member.config = member.config.model_copy(update={"authenticator": "password", "secrets_file": str(path)})


def write(path: Path, **secrets: str) -> None:
    """Let nobody in but these, each with a secret."""
    file = SecretsFile.empty(random_bytes, iterations=ITERATIONS_MIN)
    for principal, secret in secrets.items():
        file.add(principal, secret, random_bytes)
    file.save(path)


def connect(small: SmallCluster, principal: str, secret: str | bytes) -> list[str]:
    """Let a client try to come in; give what it met."""
    return meet(small, PasswordCredentials(principal, secret, random_bytes=random_bytes), lambda error: error.code)


def meet(
    small: SmallCluster, credentials: bytes | PasswordCredentials, said: Callable[[ConnectRejectedError], str] = str
) -> list[str]:
    """Let a client with these credentials try to come in; give what it met."""
    met: list[str] = []
    config = small.client_config(credentials=credentials, make_secret=lambda: b"s" * 32)

    async def use() -> None:
        try:
            async with ClusterClient.connect(config=config) as client:
                await client.offer(b"hello")
                met.append(bytes((await anext(client.egress())).payload).decode())
        except ConnectRejectedError as error:
            met.append(said(error))

    small.cluster.add_client(f"client-{len(small.cluster.clients)}", use)
    small.wait(lambda: bool(met))
    return met


@pytest.mark.parametrize(
    ("principal", "secret", "met"),
    [
        ("ops", "right", "hello"),
        ("ops", b"right", "hello"),
        ("ops", "wrong", "AUTHENTICATION_REJECTED"),
        ("nobody", "right", "AUTHENTICATION_REJECTED"),
    ],
)
def test_only_who_proves_to_know_the_secret_comes_in(
    tmp_path: Path, principal: str, secret: str | bytes, met: str
) -> None:
    with small_cluster() as small:
        guard(small, tmp_path / "secrets")
        small.start()

        assert connect(small, principal, secret) == [met]


@pytest.mark.parametrize(
    ("credentials", "given"), [(b"", "no credentials="), (b"right", "bytes without on_challenge=")]
)
def test_credentials_that_cannot_answer_are_told_which_can(tmp_path: Path, credentials: bytes, given: str) -> None:
    with small_cluster() as small:
        guard(small, tmp_path / "secrets")
        small.start()

        (met,) = meet(small, credentials)

    assert has_facts(met, "code=CHALLENGE", given, "credentials=PasswordCredentials(", "CredentialsSupplier")


def test_members_that_run_let_in_whoever_is_added_to_the_file(tmp_path: Path) -> None:
    with small_cluster() as small:
        guard(small, tmp_path / "secrets")
        small.start()
        before = connect(small, "app", "fine")

        write(tmp_path / "secrets", app="fine")
        seen_ns = small.cluster.now_ns + 2_000_000_000
        small.wait(lambda: small.cluster.now_ns >= seen_ns)

        assert before == ["AUTHENTICATION_REJECTED"]
        assert connect(small, "app", "fine") == ["hello"]
        assert connect(small, "ops", "right") == ["AUTHENTICATION_REJECTED"]


def test_principal_is_the_same_on_every_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the log: followers have it, whom nobody has asked."""
    with small_cluster() as small:
        guard(small, tmp_path / "secrets")
        small.start()
        principals: list[bytes] = []
        real = SessionManager.on_replay_session_open

        def on_replay_session_open(self: SessionManager, event: SessionOpenEvent, end_position: int) -> None:
            principals.append(event.encoded_principal)
            real(self, event, end_position)

        monkeypatch.setattr(SessionManager, "on_replay_session_open", on_replay_session_open)
        connect(small, "ops", "right")
        small.wait(lambda: len(principals) == 3)

        assert principals == [b"ops"] * 3
