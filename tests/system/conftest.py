"""Where the system tests keep the members' data: on a real file system, whatever the temporary directory is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.file_systems import is_in_memory

_PROJECT_DIR = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A fresh directory on a disk, so that what a test says about durability means something."""
    if not is_in_memory(tmp_path):
        yield tmp_path / "data"
        return
    directory = _PROJECT_DIR / ".test-data" / f"{os.getpid()}-{tmp_path.name}"
    directory.mkdir(parents=True)
    yield directory
    shutil.rmtree(directory)
