"""macOS as its manual pages describe it: who is at a control socket, its short paths, the limit of open files."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
from pathlib import Path

import pytest

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net import descriptors, local_socket
from trimaran.service_api.net.local_socket import ControlSocket, connect_locally, has_control_sockets, is_own_peer

LOCAL_PEERCRED = 1


class XucredSocket:
    """A Unix socket of macOS, whose peer is a process of one user."""

    def __init__(self, uid: int, version: int = 0, length: int = 76) -> None:
        self._told = struct.pack("=2Ihh16I", version, uid, 1, 0, *[20] * 16)[:length]

    def getsockopt(self, level: int, option: int, length: int) -> bytes:
        assert (level, option, length) == (0, LOCAL_PEERCRED, 76)
        return self._told


@pytest.fixture
def _macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED", raising=False)
    monkeypatch.setattr(socket, "LOCAL_PEERCRED", LOCAL_PEERCRED, raising=False)


@pytest.mark.usefixtures("_macos")
@pytest.mark.parametrize(("uid", "is_own"), [(os.geteuid(), True), (0, True), (os.geteuid() + 1, False)])
def test_the_kernel_of_macos_says_who_is_at_the_other_end(uid: int, is_own: bool) -> None:
    assert is_own_peer(XucredSocket(uid)) is is_own  # type: ignore[arg-type]  # all that is called of a socket


@pytest.mark.usefixtures("_macos")
@pytest.mark.parametrize("peer", [XucredSocket(0, version=1), XucredSocket(0, length=0)])
def test_what_the_kernel_does_not_say_lets_nobody_in(peer: XucredSocket) -> None:
    with pytest.raises(OSError, match=r"version=1 expected 0|has gone"):
        is_own_peer(peer)  # type: ignore[arg-type]


def test_a_system_that_does_not_say_has_no_control_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    monkeypatch.delattr(socket, "LOCAL_PEERCRED", raising=False)

    assert not has_control_sockets()
    assert connect_locally(Endpoint("127.0.0.1", 9001), tmp_path) is None
    with pytest.raises(OSError, match="no Unix sockets") as caught:
        ControlSocket(tmp_path, Endpoint("127.0.0.1", 9001))
    assert caught.value.errno == errno.ENOTSUP


def test_a_long_directory_has_a_control_socket_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir(0o700)
    monkeypatch.setattr(local_socket, "_DESCRIPTORS", str(tmp_path / "absent"))
    monkeypatch.setattr(local_socket, "runtime_directories", lambda: [tmp_path / "runtime"])

    control = ControlSocket(directory, Endpoint("127.0.0.1", 9001))
    sock = connect_locally(Endpoint("127.0.0.1", 9001))

    assert sock is not None
    sock.close()
    control.close()


@pytest.mark.parametrize(("permitted", "limit"), [(1 << 20, 1 << 20), (70_000, 65_536), (12_000, 10_240), (300, 256)])
def test_the_limit_of_open_files_is_raised_as_far_as_the_system_permits(
    permitted: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def setrlimit(kind: int, limits: tuple[int, int]) -> None:
        if limits[0] > permitted:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)

    assert descriptors.raise_descriptor_limit() == limit
