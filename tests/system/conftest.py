"""Where the system tests keep the members' data: on a real file system, whatever the temporary directory is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.directory_checker import check_directory
from tests.system.file_systems import is_in_memory


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A fresh directory on a disk, so that what a test says about durability means something."""
    if not is_in_memory(tmp_path):
        yield tmp_path / "data"
        return
    directory = ROOT / ".test-data" / f"{os.getpid()}-{tmp_path.name}"
    directory.mkdir(parents=True)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(autouse=True)
def left_directories(request: pytest.FixtureRequest, tmp_path: Path, data_dir: Path) -> Iterator[None]:
    """Hold every directory that a node of ours leaves against the independent checker, whatever the test was about.

    `SystemCluster` does so, too, and knows who was stopped in order; here are also the nodes that commands start. A
    test that damages directories on purpose says `damages_directories`.
    """
    yield
    if request.node.get_closest_marker("damages_directories") is not None:
        return
    for root in {tmp_path, data_dir}:
        for redo_file in sorted(root.rglob("archive.catalog.redo")):  # nor Aeron nor an import makes one
            directory = redo_file.parent.parent
            if (directory / "cluster" / "recording.log").is_file():
                check_directory(directory, stopped=False, by_aeron=data_dir / "aeron" in directory.parents)
