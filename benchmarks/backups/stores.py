"""The object store of a run: a directory, one that is there already, or an S3 server that is started for the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from ..peers.peer import wait_until
from ..rig.processes import ProcessGroup, find_base_ports

Store: TypeAlias = Annotated[
    str, typer.Option(help="none, file, s3 (an S3 server in memory that the run starts), or the URL of a store.")
]

_BUCKET: Final = "benchmark"


@dataclass(slots=True, frozen=True)
class RunStore:
    """Where a backup is shipped to, and what a process needs to find it."""

    url: str
    environment: Mapping[str, str]


@contextmanager
def store_of(wanted: str, data_dir: Path) -> Iterator[RunStore | None]:
    """Give the store that is `wanted`: "none", "file", "s3" for a server of the run's own, or a URL.

    The server is moto's: it keeps objects in memory, so what it shows is HTTP and the copy, not Amazon's disks.

    Raises:
        ClusterError: the server did not start.
    """
    if wanted == "none":
        yield None
    elif wanted == "file":
        yield RunStore(f"file://{data_dir.absolute()}/store", os.environ)
    elif wanted != "s3":
        yield RunStore(wanted, os.environ)
    else:
        import moto  # noqa: F401  # here: only such runs need it
        import s3fs  # noqa: F401

        with ProcessGroup() as group:
            yield _start_server(group, data_dir)


def _start_server(group: ProcessGroup, data_dir: Path) -> RunStore:
    port = find_base_ports(1)[0]
    endpoint = f"http://127.0.0.1:{port}"
    log_path = data_dir / "s3-server.log"
    group.spawn(
        "s3-server",
        (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)),
        log_path=log_path,
    )
    wait_until(lambda: _answers(port), f"the S3 server: log={log_path}", group)
    found = {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    os.environ.update(found)
    import s3fs

    s3fs.S3FileSystem().mkdir(_BUCKET)
    return RunStore(f"s3://{_BUCKET}/backup", os.environ)


def _answers(port: int) -> bool:
    with closing(HTTPConnection("127.0.0.1", port, timeout=2)) as connection:
        connection.request("GET", "/moto-api/")
        return connection.getresponse().status == HTTPStatus.OK
