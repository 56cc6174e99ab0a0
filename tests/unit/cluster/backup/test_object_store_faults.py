"""A backup in an S3 store over HTTP that is slow, refuses, loses connections and lists what was: nothing goes wrong.

Either the client tries again until it succeeds, or the copy ends with an error that names the object; then the store
holds the backup before, and the next copy goes on where that one ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3_server import BUCKET, Fault, FaultKind, S3Server
from tests.unit.cluster.backup.test_agent import payloads
from tests.unit.cluster.simulation.test_snapshots import Keeper
from trimaran.cluster.backup.fetching import fetch_backup
from trimaran.cluster.backup.shipping import ship_backup
from trimaran.cluster.backup.verification import verify_backup

NOW_MS = 1_800_000_000_000
OFTEN = 1 << 30
"""More requests than a client tries again."""


@pytest.fixture
def url(s3: S3Server, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def content(url: str, target: Path) -> list[str]:
    """What the store's backup holds."""
    fetch_backup(url, target)
    assert [check.problem for check in verify_backup(str(target), service=Keeper) if check.problem] == []
    return payloads(target)


@pytest.mark.parametrize("method", ["PUT", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.SLOW, FaultKind.LOST_ANSWER])
def test_copy_and_restore_go_through_a_store_that_fails_now_and_then(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, kind: FaultKind, method: str
) -> None:
    s3.faults.append(Fault(kind, method, count=1))

    for stage in stages[1:]:
        ship_backup(stage, url, now_ms=NOW_MS)

    assert content(url, tmp_path / "back") == payloads(stages[2])
    assert s3.faults[0].count == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (FaultKind.CUT, "0-131072.rec"),
        (FaultKind.LOST_ANSWER, "0-196608.rec"),
        (FaultKind.UNAVAILABLE, "archive.catalog"),
        (FaultKind.LOST_ANSWER, "recording.log"),
        (FaultKind.CUT, "manifest.json"),
        (FaultKind.LOST_ANSWER, "manifest.json"),
    ],
)
def test_copy_that_is_cut_off_leaves_the_backup_before_and_the_next_one_goes_on(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, kind: FaultKind, name: str
) -> None:
    ship_backup(stages[1], url, now_ms=NOW_MS)
    s3.faults.append(Fault(kind, "PUT", name, OFTEN))

    with pytest.raises(OSError, match=name):
        ship_backup(stages[2], url, now_ms=NOW_MS)

    is_there = kind is FaultKind.LOST_ANSWER and name == "manifest.json"
    assert content(url, tmp_path / "before") == payloads(stages[2 if is_there else 1])
    s3.faults.clear()
    again = ship_backup(stages[2], url, now_ms=NOW_MS)
    assert (again.written_count == 0) == is_there
    assert content(url, tmp_path / "after") == payloads(stages[2])
