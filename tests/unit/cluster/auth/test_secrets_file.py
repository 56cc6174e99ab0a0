"""The secrets file, the authenticator that reads it, and the command that writes it."""

from __future__ import annotations

import asyncio
import io
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from tests.waiting import patient, until, within
from trimaran.client import PasswordCredentials
from trimaran.cluster.auth.file_watch import FileWatch
from trimaran.cluster.auth.password_authenticator import PasswordAuthenticator
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.cli import main
from trimaran.service_api.access.password_proof import ITERATIONS_MIN, PasswordChallenge, encode_principal
from trimaran.service_api.errors import ConfigurationError, RemoteProtocolError

KEY = "ab" * 32
GOOD = f"""# people
version 1
iterations 4096
decoy-key {KEY}
principal ops {"01" * 16} {"02" * 32}
"""


DEADLINE_S = 60.0

random_bytes = Random(1).randbytes


def file_of(**secrets: str) -> SecretsFile:
    file = SecretsFile.empty(random_bytes, iterations=ITERATIONS_MIN)
    for principal, secret in secrets.items():
        file.add(principal, secret, random_bytes)
    return file


async def test_a_file_that_was_refused_for_its_mode_is_read_once_that_is_put_right(tmp_path: Path) -> None:
    """The log asks for this chmod, and the file's length, time and inode stay as they are."""
    path = tmp_path / "secrets"
    path.write_text(GOOD)
    path.chmod(0o600)
    watch = FileWatch(path, SecretsFile.load, "secrets")
    path.write_text(GOOD.replace("principal ops", "principal dev"))
    path.chmod(0o640)
    path.chmod(0o644)

    with capture_logs() as logged:
        await watch.look()
        path.chmod(0o600)
        await watch.look()
        await watch.look()

    assert [line["event"] for line in logged] == ["secrets.refused", "secrets.changed"]


def always(file: SecretsFile) -> Callable[[], SecretsFile]:
    """Give the same file at any time."""
    return lambda: file


class Proxy:
    """A session at the door."""

    def __init__(self, session_id: int = -2, address: str = "10.0.0.1") -> None:
        self.session_id, self.address = session_id, address
        self.challenges: list[bytes] = []
        self.outcome: bytes | bool | None = None

    def challenge(self, encoded_challenge: bytes) -> bool:
        self.challenges.append(encoded_challenge)
        return True

    def authenticate(self, encoded_principal: bytes, proof_id: str = "") -> bool:
        self.outcome = encoded_principal
        return True

    def reject(self) -> None:
        self.outcome = False


def attempt(file: SecretsFile, credentials: PasswordCredentials, *, session_id: int = -2) -> bytes | bool | None:
    """Go through the whole dialogue."""
    authenticator, proxy = PasswordAuthenticator(always(file), random_bytes), Proxy(session_id)
    authenticator.on_connect_request(session_id, credentials.encoded_credentials(), 0)
    authenticator.on_connected_session(proxy, 0)
    (challenge,) = proxy.challenges
    authenticator.on_challenged_session(proxy, 0)
    assert proxy.outcome is None
    authenticator.on_challenge_response(session_id, credentials.on_challenge(challenge), 0)
    authenticator.on_challenged_session(proxy, 0)
    return proxy.outcome


# --- the file changes


def write(path: Path, **secrets: str) -> None:
    """Replace a file as `trimaran secrets` does."""
    new = path.with_suffix(".new")
    file_of(**secrets).save(new)
    new.replace(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_file_that_others_may_read_or_write_is_refused(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    file_of(ops="right").save(path)
    path.chmod(mode)
    monkeypatch.setattr("trimaran.service_api.access.private_files._FORBIDDEN_OF_ROOT", 0o077)  # tests may run as root

    with pytest.raises(ConfigurationError, match=rf"file=.*mode={mode:04o} expected 0600"):
        SecretsFile.load(path)


def watching(path: Path) -> FileWatch[SecretsFile]:
    return FileWatch(path, SecretsFile.load, "secrets")


def test_watch_of_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text("nonsense\n")
    path.chmod(0o600)

    with pytest.raises(ConfigurationError, match="line=1 begins with 'nonsense'"):
        watching(path)


async def test_file_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    write(path, ops="old")
    watch = watching(path)

    write(path, ops="old", app="new")
    before = [*watch().verifiers]
    await watch.look()

    assert before == [b"ops"]
    assert [*watch().verifiers] == [b"ops", b"app"]


async def test_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    write(path, ops="old")
    watch = watching(path)
    read = watch()

    await watch.look()

    assert watch() is read


async def test_loop_goes_on_while_the_file_is_read(tmp_path: Path) -> None:
    """A disk that stands still holds up nobody who is in."""
    path = tmp_path / "secrets"
    write(path, ops="old")
    is_passed, real = threading.Event(), SecretsFile.load

    def load(path: Path) -> SecretsFile:
        assert is_passed.wait(patient(DEADLINE_S)), "the loop waits for the disk"
        return real(path)

    is_passed.set()
    watch = FileWatch(path, load, "secrets")
    is_passed.clear()
    write(path, app="new")
    async with within(DEADLINE_S), asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(watch.look())
        await asyncio.sleep(0)
        is_passed.set()
        await looking

    assert [*watch().verifiers] == [b"app"]


async def test_running_watch_sees_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.auth.file_watch._LOOK_INTERVAL_S", 0.001)
    path = tmp_path / "secrets"
    write(path, ops="old")
    watch = watching(path)
    async with within(DEADLINE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watch.run())

        write(path, app="new")
        await until(lambda: [*watch().verifiers] == [b"app"])

        running.cancel()


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("version 7\n")])
async def test_file_that_is_spoilt_changes_nothing_and_is_said_once(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "secrets"
    write(path, ops="old")
    watch = watching(path)

    damage(path)
    with capture_logs() as logs:
        await watch.look()
        await watch.look()
    known = [*watch().verifiers]
    write(path, app="new")
    await watch.look()

    assert known == [b"ops"]
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("secrets.refused", "error")]
    assert [*watch().verifiers] == [b"app"]


def test_who_was_removed_comes_in_no_more_and_who_was_added_does() -> None:
    """Also one whose attempt was under way."""
    files = [file_of(ops="right"), file_of(app="fine")]
    current = [files[0]]
    authenticator, proxy = PasswordAuthenticator(lambda: current[0], random_bytes), Proxy()
    credentials = PasswordCredentials("ops", "right")
    authenticator.on_connect_request(-2, credentials.encoded_credentials(), 0)
    authenticator.on_connected_session(proxy, 0)
    current[0] = files[1]
    authenticator.on_connect_request(-3, b"app", 1_000)
    authenticator.on_challenge_response(-2, credentials.on_challenge(proxy.challenges[0]), 1_000)

    authenticator.on_challenged_session(proxy, 1_000)

    assert proxy.outcome is False
    assert attempt(files[1], PasswordCredentials("app", "fine")) == b"app"


def test_proof_counts_as_long_as_its_secret_is_in_the_file() -> None:
    """A secret is replaced because somebody else knows it: what the old one opened ends. Other changes end nothing."""
    current = [file_of(ops="right")]
    authenticator = PasswordAuthenticator(lambda: current[0], random_bytes)
    (proof_id,) = [entry.salt.hex() for entry in current[0].verifiers.values()]

    def change(principal: str) -> bool:
        current[0] = SecretsFile.parse(current[0].text(), "copy")
        current[0].add(principal, "another", random_bytes)
        return authenticator.still_admits(b"ops", proof_id)

    assert [authenticator.still_admits(b"ops", proof_id), change("dev"), change("ops")] == [True, True, False]
    assert not authenticator.still_admits(b"ops", "")
    assert not authenticator.still_admits(b"nobody", proof_id)


def test_secret_that_was_replaced_while_it_was_proven_lets_nobody_in() -> None:
    current = [file_of(ops="right")]
    authenticator, proxy = PasswordAuthenticator(lambda: current[0], random_bytes), Proxy()
    credentials = PasswordCredentials("ops", "right")
    authenticator.on_connect_request(-2, credentials.encoded_credentials(), 0)
    authenticator.on_connected_session(proxy, 0)
    current[0] = file_of(ops="new")
    authenticator.on_challenge_response(-2, credentials.on_challenge(proxy.challenges[0]), 0)

    authenticator.on_challenged_session(proxy, 0)

    assert proxy.outcome is False


# --- who comes in


@pytest.mark.parametrize("secret", ["s", "correct horse", "pässwörd ☃", " blanks count "])
def test_who_knows_the_secret_comes_in_as_that_principal(secret: str) -> None:
    assert attempt(file_of(ops=secret), PasswordCredentials("ops", secret)) == b"ops"


@pytest.mark.parametrize(
    ("principal", "secret"), [("ops", "wrong"), ("ops", ""), ("nobody", "right"), ("Ops", "right")]
)
def test_who_does_not_is_rejected(principal: str, secret: str) -> None:
    assert attempt(file_of(ops="right"), PasswordCredentials(principal, secret)) is False


def test_secret_of_one_principal_does_not_let_another_in() -> None:
    file = file_of(ops="right", dev="other")

    assert attempt(file, PasswordCredentials("dev", "right")) is False


def test_unknown_principal_is_challenged_like_a_known_one_the_same_way_every_time() -> None:
    """On every member and after every start, or whoever asks twice learns who is in the file."""
    file = file_of(ops="right")
    copies = [SecretsFile.parse(file.text(), "copy") for _ in range(2)]

    challenges: dict[bytes, set[tuple[bytes, int, int]]] = {}
    for copy in copies:
        for principal in (b"ops", b"nobody"):
            authenticator, proxy = PasswordAuthenticator(always(copy), random_bytes), Proxy()
            authenticator.on_connect_request(-2, principal, 0)
            authenticator.on_connected_session(proxy, 0)
            challenge = PasswordChallenge.decode(proxy.challenges[0])
            challenges.setdefault(principal, set()).add((challenge.salt, challenge.iterations, len(challenge.nonce)))

    assert [len(seen) for seen in challenges.values()] == [1, 1]
    ((ops_salt, *ops),) = challenges[b"ops"]
    ((nobody_salt, *nobody),) = challenges[b"nobody"]
    assert (ops, len(ops_salt)) == (nobody, len(nobody_salt))
    assert ops_salt != nobody_salt


def test_proof_that_was_overheard_does_not_help_again() -> None:
    """Every attempt has a nonce of its own."""
    file, credentials = file_of(ops="right"), PasswordCredentials("ops", "right")
    authenticator, first, second = PasswordAuthenticator(always(file), random_bytes), Proxy(-2), Proxy(-3)
    for proxy in (first, second):
        authenticator.on_connect_request(proxy.session_id, b"ops", 0)
        authenticator.on_connected_session(proxy, 0)
    overheard = credentials.on_challenge(first.challenges[0])

    authenticator.on_challenge_response(-3, overheard, 0)
    authenticator.on_challenged_session(second, 0)

    assert second.outcome is False


def test_stolen_file_is_no_key() -> None:
    """What is in the file proves nothing: a client key is needed, of which it holds the hash."""
    file = file_of(ops="right")
    entry = file.lookup(b"ops")

    assert attempt(file, PasswordCredentials("ops", entry.verifier.hex())) is False


@pytest.mark.parametrize("response", [b"", b"x" * 55, b"x" * 56, b"x" * 4096])
def test_malformed_proof_is_rejected(response: bytes) -> None:
    authenticator, proxy = PasswordAuthenticator(always(file_of(ops="right")), random_bytes), Proxy()
    authenticator.on_connect_request(-2, b"ops", 0)
    authenticator.on_connected_session(proxy, 0)

    authenticator.on_challenge_response(-2, response, 0)
    authenticator.on_challenged_session(proxy, 0)

    assert proxy.outcome is False


def test_attempts_that_are_never_finished_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.auth.password_authenticator._ATTEMPT_LIMIT", 10)
    authenticator = PasswordAuthenticator(always(file_of()), random_bytes)

    for session_id in range(-2, -102, -1):
        authenticator.on_connect_request(session_id, b"ops", 0)

    assert len(authenticator._attempts) == 10


@pytest.mark.parametrize(
    "challenge",
    [b"", bytes(45), PasswordChallenge(bytes(24), bytes(16), ITERATIONS_MIN - 1).encode(), bytes([2]) + bytes(44)],
)
def test_client_refuses_a_challenge_that_would_give_its_secret_away(challenge: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="password challenge"):
        PasswordCredentials("ops", "right").on_challenge(challenge)


@pytest.mark.parametrize("principal", ["", "two words", "tab\t", "line\n", "x" * 257])
def test_principal_is_one_printable_word(principal: str) -> None:
    with pytest.raises(ConfigurationError, match=r"1\.\.256 bytes"):
        encode_principal(principal)


# --- the file


def test_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file, path = file_of(ops="right", dev="other"), tmp_path / "secrets"
    file.save(path)

    assert SecretsFile.load(path) == file
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"right" not in path.read_bytes()
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("version 1", "version 2", "line=2 .*version 1"),
        ("iterations 4096", "iterations 1", r"line=3 .*iterations 4096\.\.2000000"),
        ("iterations 4096", "iterations many", r"line=3 .*iterations 4096\.\.2000000"),
        (KEY, KEY[:-2], "line=4 .*decoy-key <64 "),
        ("principal ops", "principal", "line=5 .*principal NAME <32 .*<64 "),
        ("principal ops", "password ops", "line=5 begins with 'password'"),
        ("# people\n", "version 1\n", "line=2 repeats version"),
        ("version 1\n", "", "file=secrets expected: version 1"),
        (GOOD, GOOD + GOOD.splitlines()[-1], "line=6 repeats principal"),
        ("02" * 32, "0G" * 32, "line=5 is malformed"),
    ],
)
def test_problem_in_the_file_is_named_with_line_and_expectation(old: str, new: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as caught:
        SecretsFile.parse(GOOD.replace(old, new), "secrets")

    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"secrets.*file=.*absent"):
        SecretsFile.load(tmp_path / "absent")
    (tmp_path / "binary").write_bytes(b"version \xff")
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"secrets.*UTF-8"):
        SecretsFile.load(tmp_path / "binary")


# --- the command


def run(*arguments: str, stdin: str = "") -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(["secrets", *arguments])
    return int(ended.value.code or 0)


def test_principals_are_added_changed_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "secrets")

    assert run("add", file, "ops", stdin="right\n") == 0
    assert run("add", file, "dev", stdin="other\n") == 0
    assert run("add", file, "ops", stdin="newer\n") == 0
    assert run("remove", file, "dev") == 0
    capsys.readouterr()
    assert run("list", file, "-o", "jsonl") == 0

    assert capsys.readouterr().out == '{"principal": "ops"}\n'
    assert attempt(SecretsFile.load(Path(file)), PasswordCredentials("ops", "newer")) == b"ops"
    assert attempt(SecretsFile.load(Path(file)), PasswordCredentials("ops", "right")) is False


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "expected"),
    [
        (("add", "FILE", "ops"), "", 2, "standard input"),
        (("add", "FILE", "ops"), "\n", 2, "standard input"),
        (("add", "FILE", "ops"), "x" * 2000, 2, "expected 1..1024 characters"),
        (("add", "FILE", "two words"), "right\n", 2, "without blanks"),
        (("list", "FILE"), "", 2, "secrets file"),
        (("add", "FILE", "ops", "right"), "", 2, "extra argument"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    stdin: str,
    status: int,
    expected: str,
) -> None:
    file = tmp_path / "secrets"

    assert run(*(str(file) if each == "FILE" else each for each in arguments), stdin=stdin) == status
    assert expected in capsys.readouterr().err
    assert not file.exists()


def test_removing_nobody_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "secrets")
    run("add", file, "ops", stdin="right\n")

    assert run("remove", file, "dev") == 1
    assert "principal='dev'" in capsys.readouterr().err
