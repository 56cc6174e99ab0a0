"""The file of a member's cluster id: written once, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, ClusterIdFile
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from trimaran.service_api.errors import ClusterError, InvariantViolation

DIRECTORY = Path("/member/cluster")
PATH = DIRECTORY / CLUSTER_ID_FILE_NAME


def disk() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(DIRECTORY)
    return made


def test_an_id_is_durable_once_it_is_stored() -> None:
    files = disk()
    file = ClusterIdFile.open(DIRECTORY, files)
    before = file.cluster_id
    file.store(ClusterId(5))
    files.crash()

    assert (before, file.cluster_id) == (NULL_CLUSTER_ID, 5)
    assert ClusterIdFile.open(DIRECTORY, files).cluster_id == 5
    assert files.content(PATH)[:17] == b"0000000000000005 "


def test_an_id_never_changes() -> None:
    file = ClusterIdFile.open(DIRECTORY, disk())
    file.store(ClusterId(5))

    with pytest.raises(InvariantViolation, match="cluster id"):
        file.store(ClusterId(6))


@pytest.mark.parametrize("offset", [0, 15, 16, 20])
def test_a_damaged_file_is_named_with_what_to_do(offset: int) -> None:
    files = disk()
    ClusterIdFile.open(DIRECTORY, files).store(ClusterId(5))
    files.damage(PATH, offset, bytes([files.content(PATH)[offset] ^ 1]))

    with pytest.raises(ClusterError, match=rf"cluster id: path={PATH} .*remove"):
        ClusterIdFile.open(DIRECTORY, files)
