"""What the tests of backups in object stores share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3_server import S3Server, s3_server
from tests.unit.cluster.operating.backup.backed_up import backed_up
from tests.unit.cluster.testing.simulation.test_snapshots import take
from trimaran.cluster.operating.backup.retention import KEEP_EVERYTHING, BackupRetention


@pytest.fixture(scope="package")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One backup at three moments: two segments, then a snapshot, then a third segment and another snapshot."""
    place = tmp_path_factory.mktemp("stages")
    found = []
    with backed_up() as (small, backup):
        backup.start(retention=BackupRetention(keep_snapshots=1))
        for number in range(3):
            small.send(100, length=800)
            position = take(small) if number else None
            backup.catch_up(snapshot_position=position)
            found.append(place / str(number))
            backup.write_to(found[-1])
    return found


@pytest.fixture(scope="package")
def long_past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup from position 0 on with five snapshots, each some seconds and a segment after the one before."""
    place = tmp_path_factory.mktemp("long") / "past"
    with backed_up() as (small, backup):
        backup.start(retention=KEEP_EVERYTHING)
        backup.catch_up()
        for _ in range(5):
            small.send(25, length=3_200)
            position = take(small)
            backup.catch_up(snapshot_position=position)
        backup.write_to(place)
    return place


@pytest.fixture(scope="package")
def running_server() -> Iterator[S3Server]:
    """An S3 server, over HTTP."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(running_server: S3Server) -> Iterator[S3Server]:
    """The server, without the requests and the faults of the test before."""
    running_server.requests.clear()
    yield running_server
    running_server.faults.clear()
