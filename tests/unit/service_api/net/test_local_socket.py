"""The control socket: who finds it, who gets in, and what is left of it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.waiting import patient
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net import local_socket
from trimaran.service_api.net.local_socket import (
    CONTROL_SOCKET_NAME,
    ControlSocket,
    connect_locally,
    is_own_peer,
    runtime_directories,
    why_not_local,
)

ENDPOINT = Endpoint("127.0.0.1", 9001)
OTHER = Endpoint("127.0.0.1", 9002)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one runtime directory; it is not there yet."""
    found = tmp_path / "runtime"
    monkeypatch.setattr(local_socket, "runtime_directories", lambda: [found])
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "member"
    found.mkdir(mode=0o700)
    return found


def accept(control: ControlSocket) -> socket.socket:
    accepted, _ = control.socket.accept()
    return accepted


def is_reached(control: ControlSocket, endpoint: Endpoint) -> bool:
    """Whether somebody who means the endpoint comes to this socket."""
    sock = connect_locally(endpoint)
    if sock is None:
        return False
    with sock:
        try:
            accept(control).close()
        except BlockingIOError:
            return False
    return True


def test_the_socket_of_a_member_is_found_by_its_endpoint_and_removed_in_the_end(runtime: Path, directory: Path) -> None:
    control = ControlSocket(directory, ENDPOINT)
    mode = stat.S_IMODE(os.stat(directory / CONTROL_SOCKET_NAME).st_mode)

    assert (control.is_published, control.problems) == (True, [])
    assert (mode, stat.S_IMODE(runtime.stat().st_mode)) == (0o600, 0o700)
    assert is_reached(control, ENDPOINT)
    assert is_reached(control, Endpoint("localhost", ENDPOINT.port))
    assert connect_locally(OTHER) is None

    control.close()
    assert not os.path.lexists(directory / CONTROL_SOCKET_NAME)
    assert os.listdir(runtime) == []
    assert connect_locally(ENDPOINT) is None


def test_each_of_two_members_is_found_by_its_own_endpoint(runtime: Path, tmp_path: Path) -> None:
    controls = []
    for name, endpoint in (("one", ENDPOINT), ("two", OTHER)):
        (tmp_path / name).mkdir()
        controls.append(ControlSocket(tmp_path / name, endpoint))
    one, two = controls

    assert is_reached(one, ENDPOINT)
    assert is_reached(two, OTHER)
    one.close()
    assert connect_locally(ENDPOINT) is None
    assert is_reached(two, OTHER)
    two.close()


def test_a_path_may_be_longer_than_that_of_a_socket(runtime: Path, tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["d" * 100] * 5)
    directory.mkdir(parents=True)
    control = ControlSocket(directory, ENDPOINT)

    assert is_reached(control, ENDPOINT)
    assert (directory / CONTROL_SOCKET_NAME).is_socket()
    control.close()


@pytest.mark.parametrize("its_endpoint", [OTHER, ENDPOINT])
def test_what_a_dead_member_left_is_replaced(runtime: Path, directory: Path, its_endpoint: Endpoint) -> None:
    """Its socket is there, and nobody listens; its link names the endpoint that it had."""
    dead = ControlSocket(directory, its_endpoint)
    dead.socket.close()
    os.close(dead._handle)
    assert connect_locally(its_endpoint) is None

    control = ControlSocket(directory, ENDPOINT)

    assert (control.is_published, control.problems) == (True, [])
    assert is_reached(control, ENDPOINT)
    assert len(os.listdir(runtime)) == 1
    control.close()
    assert os.listdir(runtime) == []


def test_links_that_went_are_made_again_and_others_are_left_alone(runtime: Path, directory: Path) -> None:
    control = ControlSocket(directory, ENDPOINT)
    (link,) = runtime.iterdir()
    assert control.mend() == []

    link.unlink()
    assert connect_locally(ENDPOINT) is None
    assert control.mend() == [runtime]
    assert is_reached(control, ENDPOINT)

    link.unlink()
    link.symlink_to("/elsewhere")
    assert control.mend() == [runtime]
    assert is_reached(control, ENDPOINT)
    runtime.rename(runtime.with_name("gone"))
    assert control.mend() == [runtime]
    control.close()
    assert os.listdir(runtime) == []


def test_link_is_removed_only_by_a_member_that_would_see_the_directory(
    runtime: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of another mount namespace is that of a member that runs where the directory is there."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "dead").mkdir()
    own = local_socket._namespaces()
    dead = ControlSocket(tmp_path / "dead", Endpoint("127.0.0.1", 9003))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(local_socket, "_namespaces", lambda: f"{own.partition('.')[0]}.1")
        theirs = ControlSocket(tmp_path / "theirs", OTHER)
    (tmp_path / "theirs").rename(tmp_path / "hidden")
    (tmp_path / "dead").rename(tmp_path / "removed")

    control = ControlSocket(directory, ENDPOINT)

    assert sorted(name.partition("-")[2] for name in os.listdir(runtime)) == [str(ENDPOINT), str(OTHER)]
    (tmp_path / "hidden").rename(tmp_path / "theirs")
    assert is_reached(theirs, OTHER)
    assert is_reached(control, ENDPOINT)
    for each in (dead, theirs, control):
        each.close()


def test_directory_that_is_named_is_tried_first_and_needs_no_link(runtime: Path, directory: Path) -> None:
    control = ControlSocket(directory, ENDPOINT)
    for link in runtime.iterdir():
        link.unlink()

    sock = connect_locally(ENDPOINT, directory)

    assert sock is not None
    sock.close()
    assert connect_locally(ENDPOINT, directory.with_name("another")) is None
    assert has_facts(why_not_local(ENDPOINT), f"{ENDPOINT}", "--directory")
    control.close()


def test_socket_that_was_removed_or_replaced_is_known_to_be_gone(runtime: Path, directory: Path) -> None:
    control = ControlSocket(directory, ENDPOINT)
    assert control.is_there

    (directory / CONTROL_SOCKET_NAME).unlink()
    assert not control.is_there
    (directory / CONTROL_SOCKET_NAME).write_text("")
    assert not control.is_there
    control.close()
    assert not control.is_there


def test_what_is_no_socket_is_not_replaced(runtime: Path, directory: Path) -> None:
    (directory / CONTROL_SOCKET_NAME).write_text("precious")

    with pytest.raises(FileExistsError, match="socket"):
        ControlSocket(directory, ENDPOINT)

    assert (directory / CONTROL_SOCKET_NAME).read_text() == "precious"


@pytest.mark.parametrize("wrong", ["open", "link", "file"])
def test_a_runtime_directory_that_others_could_have_made_is_not_used(
    runtime: Path, directory: Path, tmp_path: Path, wrong: str
) -> None:
    """Neither side uses it: a link there would lead a command to somebody else's socket."""
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    if wrong == "open":
        runtime.mkdir(mode=0o700)
        runtime.chmod(0o770)
    elif wrong == "link":
        runtime.symlink_to(target)
    else:
        runtime.write_text("")

    control = ControlSocket(directory, ENDPOINT)

    assert not control.is_published
    assert [problem.split(": ")[0] for problem in control.problems] == [str(runtime)]
    assert list(target.iterdir()) == []
    assert connect_locally(ENDPOINT) is None
    assert has_facts(why_not_local(ENDPOINT), f"{runtime}", "used: ")
    control.close()


def test_a_runtime_directory_of_another_user_is_not_used(
    runtime: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlSocket(directory, ENDPOINT)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)

    assert connect_locally(ENDPOINT) is None
    assert f"owner={mine} mode=0700 expected owner={mine + 1}" in why_not_local(ENDPOINT)
    monkeypatch.undo()
    control.close()


def test_runtime_directories_are_named_by_the_environment_and_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/somewhere")
    named = runtime_directories()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")

    assert named[0] == Path("/somewhere/trimaran")
    assert runtime_directories() == named[1:]
    assert named[-1].name == f"trimaran-{os.geteuid()}"


@pytest.mark.parametrize("is_own", [True, False])
def test_only_processes_of_the_own_user_and_of_root_are_own_peers(
    runtime: Path, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    control = ControlSocket(directory, ENDPOINT)
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(str(directory / CONTROL_SOCKET_NAME))
        theirs = accept(control)
        if not is_own:  # the system calls these two one user: the kernel's answer is read with another layout
            uid = os.geteuid() + 1
            monkeypatch.setattr(local_socket, "_PEER", _OtherUser(uid))

        assert is_own_peer(theirs) is is_own
        theirs.close()
    control.close()


class _OtherUser:
    """What the kernel says of a peer that is another user's process."""

    size = 12

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def unpack(self, answer: bytes) -> tuple[int, int, int]:
        return 1, self._uid, 1


def test_a_command_does_not_believe_another_user_who_listens(
    runtime: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlSocket(directory, ENDPOINT)
    monkeypatch.setattr(local_socket, "is_own_peer", lambda sock: False)

    assert connect_locally(ENDPOINT) is None
    monkeypatch.undo()
    control.close()


def test_a_process_of_another_user_does_not_get_in(runtime: Path, directory: Path, tmp_path: Path) -> None:
    """It cannot open the socket; and where somebody has opened the directory to all, the kernel says whose it is.

    Where the tests are not root they cannot be another user: there the process stays the same user, and gets in.
    """
    control = ControlSocket(directory, ENDPOINT)
    is_root = os.geteuid() == 0
    code = """
    import os, socket, sys
    handle = os.open(sys.argv[1], os.O_PATH) if sys.argv[2] == "handle" else -1
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(f"/proc/self/fd/{handle}/control.sock" if handle >= 0 else f"{sys.argv[1]}/control.sock")
    except OSError as error:
        print(type(error).__name__)
    else:
        print("connected")
    """

    def attempt(how: str) -> str:
        command = [sys.executable, "-c", textwrap.dedent(code), str(directory), how]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=patient(60)).stdout.strip()

    refused = "PermissionError" if is_root else "connected"
    assert attempt("path") == refused
    assert attempt("handle") == refused
    os.chmod(directory, 0o711)
    os.chmod(directory / CONTROL_SOCKET_NAME, 0o666)
    assert attempt("handle") == "connected"

    peers: list[bool] = []
    while len(peers) < (1 if is_root else 3):
        theirs = accept(control)
        peers.append(is_own_peer(theirs))
        theirs.close()
    assert peers == ([False] if is_root else [True] * 3)
    control.close()


def test_a_machine_without_a_temporary_directory_has_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command said that no member answers: Python finds no place for temporary files, and raises."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nonexistent"])
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/here")

    assert runtime_directories() == [Path("/run/here/trimaran"), Path(f"/run/user/{os.geteuid()}/trimaran")]
