"""An S3 server on this machine, spoken to over HTTP, that can be slow, refuse, cut connections and list what was.

moto answers as S3 does; faults come before it. Objects are in the memory of this process;
other processes reach them with the variables of `environment`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NoReturn

from werkzeug.serving import WSGIRequestHandler, make_server

BUCKET: Final = "backups"
SLOW_S: Final = 0.3
"""How long a slow answer takes; a client only has to wait for it."""


class FaultKind(Enum):
    """What happens to a request."""

    UNAVAILABLE = auto()
    """It is answered with 503 and has no effect."""
    DENIED = auto()
    """It is answered with 403, as for a wrong key, and has no effect."""
    SLOW = auto()
    CUT = auto()
    """Half of its body is read, then the connection is closed; it has no effect."""
    LOST_ANSWER = auto()
    """It has its effect, and the connection is closed instead of an answer."""
    STALE_LISTING = auto()
    """It is answered as the first one of the same listing was."""


@dataclass(slots=True)
class Fault:
    """What the next requests meet whose method and object fit."""

    kind: FaultKind
    method: str = ""
    name: str = ""
    """How the object's name ends; the empty text fits every object."""
    count: int = 1 << 30
    """How many requests."""

    def takes(self, method: str, path: str) -> bool:
        """Whether it happens to this request; it counts it."""
        if self.count < 1 or self.method not in ("", method) or not path.endswith(self.name):
            return False
        self.count -= 1
        return True


@dataclass(slots=True)
class S3Server:
    """A server that runs."""

    endpoint: str
    _application: Callable[..., Iterable[bytes]]
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request so far."""
    _listings: dict[str, tuple[str, list[Any], bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find the server, as it would to find any S3 server that is not Amazon's."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",  # s3fs tries five times; with botocore's own attempts it gives up after minutes
        }

    def written(self) -> list[str]:
        """Names of the objects that were written, in order."""
        return [path.rpartition("/")[2] for method, path in self.requests if method == "PUT"]

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """Answer one request, unless a fault comes before."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        fault = next((found for found in self.faults if found.takes(method, path)), None)
        kind = None if fault is None else fault.kind
        if kind is FaultKind.UNAVAILABLE:
            _read_body(environ)
            start("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]
        if kind is FaultKind.DENIED:
            _read_body(environ)
            start("403 Forbidden", [("Content-Type", "application/xml")])
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            return [] if method == "HEAD" else [body]
        if kind is FaultKind.CUT:
            _read_body(environ, part=2)
            _cut(environ)
        if kind is FaultKind.SLOW:
            threading.Event().wait(SLOW_S)
        if kind is FaultKind.LOST_ANSWER:
            b"".join(self._application(environ, lambda *_: None))
            _cut(environ)
        if "list-type" in environ.get("QUERY_STRING", ""):
            return self._list(environ, start, is_stale=kind is FaultKind.STALE_LISTING)
        return self._application(environ, start)

    def _list(self, environ: dict[str, Any], start: Any, *, is_stale: bool) -> Iterable[bytes]:
        key = f"{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        noted: list[Any] = []
        if not is_stale or key not in self._listings:
            body = b"".join(self._application(environ, lambda status, headers, *_: noted.extend((status, headers))))
            self._listings.setdefault(key, (noted[0], noted[1], body))
            start(*noted)
            return [body]
        status, headers, body = self._listings[key]
        start(status, headers)
        return [body]


class _Handler(WSGIRequestHandler):
    """Writes nothing to the terminal."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - as werkzeug names it
        """Log nothing."""


def _read_body(environ: dict[str, Any], *, part: int = 1) -> None:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0) // part)


def _cut(environ: dict[str, Any]) -> NoReturn:
    """End the connection without an answer.

    Raises:
        ConnectionResetError: always; werkzeug takes it for a client that has gone.
    """
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server with the bucket `BUCKET`; what opens `s3://` URLs in this process and its children finds it.

    Servers of one process share their objects: a test writes below a name of its own.
    """
    # Here, not above: every worker imports every file of tests, and these two take a second.
    import s3fs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    application = DomainDispatcherApplication(create_backend_app)
    server = S3Server("", application)
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=_Handler)
    server.endpoint = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, name="s3-server")
    thread.start()
    before = {name: os.environ.get(name) for name in server.environment}
    os.environ.update(server.environment)
    s3fs.S3FileSystem.clear_instance_cache()  # fsspec keeps file systems by their options, not by the environment
    try:
        with suppress(FileExistsError):  # moto keeps the objects for all servers of a process, one that ended too
            s3fs.S3FileSystem().mkdir(BUCKET)
        yield server
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        s3fs.S3FileSystem.clear_instance_cache()
        http.shutdown()
        thread.join()
        http.server_close()
