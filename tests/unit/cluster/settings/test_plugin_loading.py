"""Finding a user's authorisation service, and living with what it does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.runtime.ground.authorisation import GuardedAuthorisation
from trimaran.cluster.settings.plugin_loading import load_authenticator, load_authorisation
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.errors import ConfigurationError

PLUGINS = """
class OnlyOps:
    def is_authorised(self, schema_id, template_id, request_type, encoded_principal):
        return encoded_principal == b"ops"

class Fails(OnlyOps):
    def is_authorised(self, schema_id, template_id, request_type, encoded_principal):
        raise ValueError("no answer")

class Vague(OnlyOps):
    def is_authorised(self, schema_id, template_id, request_type, encoded_principal):
        return "perhaps"

class NeedsMore(OnlyOps):
    def __init__(self, file):
        pass

class Other:
    pass
"""


@pytest.fixture
def service_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory with a module of plugins; the import path and the loaded modules are put back."""
    (tmp_path / "some_plugins.py").write_text(PLUGINS)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_users_authorisation_service_is_found_beside_its_service(service_dir: Path) -> None:
    service = load_authorisation("some_plugins:OnlyOps", service_dir)

    assert service.is_authorised(111, 26, 0, b"ops")
    assert not service.is_authorised(111, 26, 0, b"guest")


def test_a_built_in_one_needs_no_module(tmp_path: Path) -> None:
    assert isinstance(load_authorisation("allow-all", tmp_path / "absent"), AllowAll)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("allowall", "authorisation=allowall"),
        ("absent:OnlyOps", "module=absent"),
        ("some_plugins:Absent", "['OnlyOps', 'Fails', 'Vague', 'NeedsMore']"),
        ("some_plugins:Other", "is_authorised"),
        ("some_plugins:NeedsMore", "authorisation=some_plugins:NeedsMore reason=TypeErr"),
    ],
)
def test_an_authorisation_service_that_cannot_be_used_is_one_clear_line(
    service_dir: Path, name: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_authorisation(name, service_dir)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["Fails", "Vague"])
def test_an_authorisation_service_that_raises_or_is_vague_has_said_no(service_dir: Path, name: str) -> None:
    guarded = GuardedAuthorisation(load_authorisation(f"some_plugins:{name}", service_dir))

    assert not guarded.is_authorised(111, 26, 0, b"ops")


def test_authenticators_are_found_by_name_or_made_of_the_secrets_file(service_dir: Path) -> None:
    (service_dir / "doormen.py").write_text(
        "from trimaran.service_api.authenticator import AcceptAll\n"
        "class Doorman(AcceptAll): pass\n"
        "class Half:\n    def on_connect_request(self, *_): pass\n"
    )
    secrets = SecretsFile.empty(lambda length: bytes(length))

    def load(name: str) -> object:
        return load_authenticator(name, service_dir, secrets=lambda: secrets, random=lambda: 0.5)

    assert [type(load(name)).__name__ for name in ("accept-all", "password", "doormen:Doorman")] == [
        "AcceptAll",
        "PasswordAuthenticator",
        "Doorman",
    ]
    with pytest.raises(ConfigurationError, match="on_connect_request, on_connected_session"):
        load("doormen:Half")
