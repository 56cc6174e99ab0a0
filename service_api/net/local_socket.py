"""The control socket: how a command on a member's machine reaches it, and shows that it may operate it.

    DIRECTORY/control.sock                              mode 0600, in the member's directory, which is 0700
    RUNTIME/NET.MOUNT-ENDPOINT -> DIRECTORY             a link, so that a command finds it by the consensus endpoint

RUNTIME is a directory of the user alone: `trimaran` in `$XDG_RUNTIME_DIR` and in `/run/user/UID`, and `trimaran-UID`
in the directory for temporary files. A process that runs as a service may not see all of them, so a member links its
directory in each that it can use, and a command looks in each, or in the directory that it is given. NET and MOUNT are
the inodes of the member's network and mount namespaces: in two network namespaces two members may have the same
endpoint. Nothing is followed that others could have put there: the directory must belong to this user with mode 0700,
and must be no link itself.

A path of a Unix socket has at most 107 bytes. So the directory is opened, and the socket is named through
`/proc/self/fd/N`, however long the path is.

Without `/proc`, as on macOS, where it has at most 103 bytes, a longer path is named through a link in a new temporary
directory of this user, which is removed at once.

Both sides look at who is at the other end (SO_PEERCRED; LOCAL_PEERCRED on macOS and BSD): a member listens to its own
user and to root, and a command believes these alone. A system that does not tell has no control socket, and commands
use TCP. What a dead member left is replaced when a member starts: the socket in its directory, which is locked, its
link, and other links to that directory. A link to a directory that is not there is removed by members of
the same mount namespace alone: for others that directory may be there, with a member that runs. Links go for other
reasons, too: a cleaner of old files, a runtime directory that is made when its user logs in. So a member looks after
its links for as long as it runs (`ControlSocket.mend`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Final

from ..endpoint import Endpoint
from ..operating_system import effective_user_id, optional_flag

CONTROL_SOCKET_NAME: Final = "control.sock"

_SOCKET_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700
_BACKLOG: Final = 64
_LINK_LIMIT: Final = 1_000
"""Links that are looked at when a member starts, for whether they are of use."""
_NAME_LIMIT: Final = 200
_PATH_LIMIT_BYTES: Final = 103
"""The longest path of a Unix socket on every system."""
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_BSD_PEER: Final = struct.Struct("=2I")  # the beginning of struct xucred: version, uid
_BSD_PEER_LENGTH: Final = 76  # with the groups
_BSD_PEER_VERSION: Final = 0
_BSD_LEVEL: Final = 0  # SOL_LOCAL
AF_UNIX: Final[int] = getattr(socket, "AF_UNIX", -1)
"""The family of Unix sockets; no family's number on a system without them."""
_DESCRIPTORS: Final = "/proc/self/fd"
_DIRECTORY_FLAGS: Final = os.O_RDONLY | optional_flag("O_DIRECTORY") | optional_flag("O_CLOEXEC")
LOCAL_PEER: Final = ("local",)
"""The address of every process that connects here, for the gate and for logs."""


def runtime_directories() -> list[Path]:
    """Name the directories in which members of this user may be found; they need not exist.

    A machine may have no temporary directory that this user can write to, and a system no control sockets at all.
    """
    uid, named = effective_user_id(), os.environ.get("XDG_RUNTIME_DIR", "")
    if uid is None or not has_control_sockets():
        return []
    found = [Path(named) / "trimaran"] if os.path.isabs(named) else []
    found.append(Path(f"/run/user/{uid}/trimaran"))
    with contextlib.suppress(FileNotFoundError):
        found.append(Path(tempfile.gettempdir()) / f"trimaran-{uid}")
    return [*dict.fromkeys(found)]


def has_control_sockets() -> bool:
    """Return True if this system has Unix sockets, and says which user is at the other end."""
    return AF_UNIX != -1 and (hasattr(socket, "SO_PEERCRED") or hasattr(socket, "LOCAL_PEERCRED"))


def is_own_peer(sock: socket.socket) -> bool:
    """Return True if the process at the other end of a Unix socket runs as this user, or as root.

    Raises:
        OSError: the system does not tell, for instance because that process has gone.
    """
    return _find_peer_user_id(sock) in (effective_user_id(), 0)


def _find_peer_user_id(sock: socket.socket) -> int:
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is not None:
        return int(_PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _PEER.size))[1])
    option = getattr(socket, "LOCAL_PEERCRED", None)
    if option is None:
        raise OSError(errno.ENOTSUP, "this system does not say which user is at the other end of a Unix socket")
    told = sock.getsockopt(_BSD_LEVEL, option, _BSD_PEER_LENGTH)
    if len(told) < _BSD_PEER.size:
        raise OSError(errno.ENOTCONN, "the other end has gone")
    version, uid = _BSD_PEER.unpack_from(told)
    if version != _BSD_PEER_VERSION:
        raise OSError(errno.ENOTSUP, f"struct xucred version={version} expected {_BSD_PEER_VERSION}")
    return int(uid)


def connect_locally(endpoint: Endpoint, directory: Path | None = None) -> socket.socket | None:
    """Connect to the control socket of the member with this consensus endpoint; None: there is none, or nobody listens.

    `directory` is that member's where the user has named it; it is tried first. The socket does not block.
    """
    named = [] if directory is None else [str(directory)]
    for each in chain(named, *(_find_links(place, endpoint) for place in runtime_directories())):
        sock = _connect(each)
        if sock is not None:
            return sock
    return None


def why_not_local(endpoint: Endpoint) -> str:
    """Say why there is no control socket for an endpoint, for somebody who was refused without one."""
    problems = []
    for runtime_directory in runtime_directories():
        try:
            with _opened_runtime_directory(runtime_directory, create=False):
                pass
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{runtime_directory} is not used: {error.strerror}")
    looked = ", ".join(str(each) for each in runtime_directories())
    advice = "on that member's machine, as its user, name its directory with --directory DIR, or set XDG_RUNTIME_DIR"
    return "; ".join([f"no control socket of {endpoint} answers (looked in {looked})", *problems, advice])


class ControlSocket:
    """The control socket of one member: bound and listening until `close`."""

    def __init__(self, directory: Path, endpoint: Endpoint) -> None:
        """Replace what a dead member left. The directory must be locked by this process.

        Raises:
            OSError: there can be no socket; nothing is left of it.
        """
        if not has_control_sockets():
            raise OSError(errno.ENOTSUP, "this system has no Unix sockets that say which user is at the other end")
        self._directory = os.path.abspath(directory)
        self._name = _link_name(endpoint)
        self.problems: list[str] = []
        """Why commands of this user may not find it: what is wrong with each of the runtime directories."""
        self._handle = os.open(directory, _DIRECTORY_FLAGS)
        self.socket = socket.socket(AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind()
        except OSError:
            self.socket.close()
            os.close(self._handle)
            raise
        self._inode = os.stat(CONTROL_SOCKET_NAME, dir_fd=self._handle, follow_symlinks=False).st_ino
        self._linked_directories: dict[Path, None] = {}
        self.mend()

    def __repr__(self) -> str:
        return f"<ControlSocket {self._directory}/{CONTROL_SOCKET_NAME} linked_in={[*self._linked_directories]}>"

    @property
    def is_published(self) -> bool:
        """Whether commands of this user find it."""
        return bool(self._linked_directories)

    @property
    def is_there(self) -> bool:
        """Return whether the socket is still where it was bound: nobody can connect to one that was removed."""
        try:
            return os.stat(CONTROL_SOCKET_NAME, dir_fd=self._handle, follow_symlinks=False).st_ino == self._inode
        except OSError:
            return False

    def mend(self) -> list[Path]:
        """Link the directory wherever it is not linked. Returns where that was to be done."""
        self.problems = []
        directories = runtime_directories()
        linked = [each for each in directories if self._is_linked(each)]  # also by a link from before it was killed
        mended = [each for each in directories if each not in linked and self._publish(each)]
        self._linked_directories |= dict.fromkeys([*linked, *mended])
        return mended

    def close(self) -> None:
        """Stop listening, and remove the socket and its links. The directory must still be locked by this process."""
        self.socket.close()
        with contextlib.suppress(OSError):
            os.unlink(CONTROL_SOCKET_NAME, dir_fd=self._handle)
        os.close(self._handle)
        for runtime_directory in self._linked_directories:
            with contextlib.suppress(OSError), _opened_runtime_directory(runtime_directory, create=False) as handle:
                if os.readlink(self._name, dir_fd=handle) == self._directory:
                    os.unlink(self._name, dir_fd=handle)

    def _bind(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(CONTROL_SOCKET_NAME, dir_fd=self._handle, follow_symlinks=False)
            if not stat.S_ISSOCK(found.st_mode):
                raise FileExistsError(errno.EEXIST, "is no socket", f"{self._directory}/{CONTROL_SOCKET_NAME}")
            os.unlink(CONTROL_SOCKET_NAME, dir_fd=self._handle)
        self.socket.setblocking(False)
        with _address(self._handle, self._directory) as address:
            self.socket.bind(address)
        # Nobody can connect before `listen`, whatever mode it was made with.
        os.chmod(CONTROL_SOCKET_NAME, _SOCKET_MODE, dir_fd=self._handle)
        self.socket.listen(_BACKLOG)

    def _is_linked(self, runtime_directory: Path) -> bool:
        try:
            with _opened_runtime_directory(runtime_directory, create=False) as handle:
                return os.readlink(self._name, dir_fd=handle) == self._directory
        except OSError:
            return False

    def _publish(self, runtime_directory: Path) -> bool:
        """Link the member's directory there. Whether that was possible."""
        temporary = f".{os.getpid()}-{self._name}"
        try:
            with _opened_runtime_directory(runtime_directory, create=True) as handle:
                _prune(handle, self._directory)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=handle)
                os.symlink(self._directory, temporary, dir_fd=handle)
                os.replace(temporary, self._name, src_dir_fd=handle, dst_dir_fd=handle)
        except FileNotFoundError:
            return False  # this user has no such place
        except OSError as error:
            self.problems.append(f"{runtime_directory}: {error.strerror}")
            return False
        return True


def _prune(handle: int, directory: str) -> None:
    """Remove the links to a directory, and those of this mount namespace to directories that are not there any more.

    A link to this directory is of an earlier member, which had another endpoint: it would lead to the wrong member.
    """
    namespaces = _namespaces()
    for name in sorted(os.listdir(handle))[:_LINK_LIMIT]:
        with contextlib.suppress(OSError):
            target = os.readlink(name, dir_fd=handle)
            is_of_here = name.partition("-")[0].partition(".")[2] == namespaces.partition(".")[2]
            if target == directory or (is_of_here and not os.path.isdir(target)):
                os.unlink(name, dir_fd=handle)


@contextmanager
def _opened_runtime_directory(path: Path, *, create: bool) -> Iterator[int]:
    """Open a directory that is this user's alone; with `create` it is made, unless its parent is missing.

    Raises:
        OSError: there is none, or it is not this user's alone.
    """
    if create:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_DIRECTORY_MODE)
    try:
        handle = os.open(path, _DIRECTORY_FLAGS | optional_flag("O_NOFOLLOW"))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OSError(error.errno, "it is a link or a file, expected a directory", str(path)) from error
        raise
    try:
        found, uid = os.fstat(handle), effective_user_id()
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != uid or mode & 0o077:
            raise PermissionError(
                errno.EPERM, f"owner={found.st_uid} mode={mode:04o} expected owner={uid} mode=0700", str(path)
            )
        yield handle
    finally:
        os.close(handle)


def _find_links(runtime_directory: Path, endpoint: Endpoint) -> Iterator[str]:
    """Yield where links for an endpoint lead: that of this mount namespace, then those of others, live or dead."""
    own_name = _link_name(endpoint)
    network, tail = own_name.partition(".")[0], own_name.partition("-")[2]
    with contextlib.suppress(OSError), _opened_runtime_directory(runtime_directory, create=False) as handle:
        names = [name for name in os.listdir(handle) if name.startswith(f"{network}.") and name.endswith(f"-{tail}")]
        for name in sorted(names, key=lambda name: (name != own_name, name)):
            yield os.readlink(name, dir_fd=handle)


def _connect(directory: str) -> socket.socket | None:
    if not has_control_sockets():
        return None
    try:
        handle = os.open(directory, _DIRECTORY_FLAGS)
    except OSError:
        return None
    sock = socket.socket(AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        with _address(handle, directory) as address:
            sock.connect(address)
        if not is_own_peer(sock):
            raise PermissionError(errno.EPERM, "another user listens")
    except OSError:
        sock.close()
        return None
    finally:
        os.close(handle)
    return sock


@contextmanager
def _address(handle: int, directory: str) -> Iterator[str]:
    """Name the socket in a directory that is open by a short path, which is good until the end of the block.

    Raises:
        OSError: no short path can be made.
    """
    if os.path.isdir(_DESCRIPTORS):
        yield f"{_DESCRIPTORS}/{handle}/{CONTROL_SOCKET_NAME}"
        return
    address = f"{directory}/{CONTROL_SOCKET_NAME}"
    if len(os.fsencode(address)) <= _PATH_LIMIT_BYTES:
        yield address
        return
    with tempfile.TemporaryDirectory(prefix="t-") as place:
        link = f"{place}/d"
        os.symlink(directory, link)
        yield f"{link}/{CONTROL_SOCKET_NAME}"


def _link_name(endpoint: Endpoint) -> str:
    host = "127.0.0.1" if endpoint.host == "localhost" else endpoint.host
    name = str(Endpoint(host, endpoint.port))
    short = name if len(name.encode()) <= _NAME_LIMIT else sha256(name.encode()).hexdigest()
    return f"{_namespaces()}-{short}"


def _namespaces() -> str:
    """Name the network and the mount namespace of this process; `0.0` where the system has none."""
    inodes = []
    for kind in ("net", "mnt"):
        try:
            inodes.append(os.stat(f"/proc/self/ns/{kind}").st_ino)
        except OSError:
            inodes.append(0)
    return ".".join(map(str, inodes))
