"""What people write: the configuration file, variables, secrets, and texts such as endpoints and cluster ids."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from tests.fuzz.target import expect, target
from trimaran.client.config import parse_ingress_endpoints
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.settings.config import NodeConfig, format_members, parse_members
from trimaran.cluster.settings.config_layers import load_health_limits, load_node_config, setting_kind
from trimaran.service_api.access.identity import Identity
from trimaran.service_api.access.password_proof import PasswordChallenge, is_proof
from trimaran.service_api.cluster_id import demanded_cluster_id, format_cluster_id, parse_cluster_id
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError, RemoteProtocolError
from trimaran.service_api.quantities import parse_app_version, parse_duration_ms, parse_size_bytes, parse_time
from trimaran.service_api.wire.session_token import channel_digest, token_channel

REQUIRED = {
    "member_id": "0",
    "members": "0=127.0.0.1:9000",
    "directory": "/tmp/member-0",
    "service": "my_app:Service",
}


def toml_of(settings: dict[str, str]) -> str:
    """Write settings as a TOML file."""
    return "".join(
        f"{name} = {value}\n" if value.isdigit() else f'{name} = "{value}"\n' for name, value in settings.items()
    )


@contextmanager
def environment_of(settings: dict[str, str]) -> Iterator[None]:
    """Have nothing of Trimaran in the environment but these."""
    before = {name: text for name, text in os.environ.items() if name.upper().startswith("TRIMARAN_")}
    for name in before:
        del os.environ[name]
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.upper().startswith("TRIMARAN_")]:
            del os.environ[name]
        os.environ.update(before)


@cache
def _scratch() -> Path:
    """Make a directory that lasts as long as the process."""
    directory = Path(tempfile.mkdtemp(prefix="trimaran-fuzz-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def scratch_file(name: str) -> Path:
    """Name a file that is written for every input."""
    return _scratch() / name


def _config_seeds() -> Iterator[bytes]:
    yield toml_of(REQUIRED).encode()
    yield toml_of(REQUIRED | {"term_length_bytes": "64MiB", "election_timeout_ms": "2s"}).encode()
    others = [(name, field.default) for name, field in NodeConfig.model_fields.items() if not field.is_required()]
    yield toml_of(REQUIRED | {name: setting_kind(name).show(value) for name, value in others}).encode()
    yield b"member_id = 99999999999999999999\n[tls]\na = [[[[{b = 1979-05-27T07:32:00Z}]]]]\nc = 1.5e99\n"


@target(_config_seeds, length_limit=8192)
def config_file(data: bytes) -> None:
    """The configuration file of a node."""
    path = scratch_file("node.toml")
    path.write_bytes(data)
    with environment_of({}):
        try:
            load_node_config(path)
        except ConfigurationError as error:
            expect(len(str(error)) > 0, "an error says something")
        with suppress(ConfigurationError):
            load_health_limits(path)


def _variable_seeds() -> Iterator[bytes]:
    yield b"\0".join(f"TRIMARAN_{name.upper()}={value}".encode() for name, value in REQUIRED.items())
    yield b"TRIMARAN_MEMBERS=0=[::1]:9000,1=host:9010\0TRIMARAN_CHECKSUMS=yes\0TRIMARAN_TERM_LENGTH_BYTES=64 MB"
    yield b"TRIMARAN_MEMBERS=0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5\0trimaran_cluster_id=3f9a0c12d45e77b1"


@target(_variable_seeds, length_limit=1024)
def environment(data: bytes) -> None:
    """The environment of a node: each variable is given as bytes, and names no other program's."""
    settings = {}
    for part in data.split(b"\0"):
        name, equals, value = part.partition(b"=")
        text = name.decode("ascii", "replace")
        if equals and text.isascii() and text.upper().startswith("TRIMARAN_"):
            settings[text] = os.fsdecode(value)
    with environment_of(settings), suppress(ConfigurationError):
        load_node_config()


def _secret_seeds() -> Iterator[bytes]:
    file = SecretsFile.empty(lambda length: bytes(length), iterations=4096)
    file.add("ops", "a secret", lambda length: bytes(length))
    yield file.text().encode()


@target(_secret_seeds, length_limit=1024)
def secrets_file(data: bytes) -> None:
    """The secrets file of the password authenticator."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        file = SecretsFile.parse(text, "secrets")
    except ConfigurationError:
        return
    again = SecretsFile.parse(file.text(), "secrets")
    expect(again == file, "a file is read as it was written", file=file, again=again)


def _password_seeds() -> Iterator[bytes]:
    yield PasswordChallenge(bytes(24), bytes(16), 60_000).encode() + bytes(56)


@target(_password_seeds, length_limit=256)
def password_proof(data: bytes) -> None:
    """A password challenge, and the answer to one."""
    try:
        challenge = PasswordChallenge.decode(data[:45])
    except RemoteProtocolError:
        return
    expect(challenge.encode() == data[:45], "a challenge is read as it was written", challenge=challenge)
    is_proof(data[45:], bytes(32), b"ops", challenge)


# --- texts


def _text_seeds() -> Iterator[bytes]:
    yield from (b"127.0.0.1:9000", b"[::1]:9000", b"member-0.example:65535", b"[fe80::1%eth0]:1")
    yield from (b"3f9a0c12d45e77b1", token_channel(b"secret").encode(), b"x?cluster-id=3f9a0c12d45e77b1|token-sha256=")
    yield from (b"0=127.0.0.1:9000,1=[::1]:9010", b"0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5")
    yield from (b"trimaran://3f9a0c12d45e77b1/member/1", b"trimaran://3f9a0c12d45e77b1/operator/ops")
    yield from (b"64MiB", b"1.2.3", b"500ms", b"2026-11-21T04:22:31Z", b"-9223372036854775808")


@target(_text_seeds, length_limit=8192)
def texts(data: bytes) -> None:
    """Texts that name something: endpoints, members, clusters, identities, channels, sizes, times, versions."""
    text = data.decode("utf-8", "surrogateescape")
    for parse in (Endpoint.parse, parse_members, parse_ingress_endpoints, parse_cluster_id, demanded_cluster_id):
        try:
            found = parse(text)
        except ConfigurationError:
            continue
        if isinstance(found, Endpoint):
            expect(Endpoint.parse(str(found)) == found, "an endpoint is read as it was written", endpoint=found)
        elif isinstance(found, tuple):
            expect(parse_members(format_members(found)) == found, "members are read as they were written", found=found)
        elif isinstance(found, int) and found and parse is parse_cluster_id:
            expect(format_cluster_id(found) == text, "a cluster id is written as it was read", found=found)
    for parse_quantity in (parse_size_bytes, parse_duration_ms, parse_time, parse_app_version):
        try:
            parse_quantity(text)
        except ValueError:
            continue
    channel_digest(text)
    try:
        identity = Identity.parse(text)
    except ConfigurationError:
        return
    expect(Identity.parse(str(identity)) == identity, "an identity is read as it was written", identity=identity)
