"""What a real Aeron Cluster left on disk: one member of three, with two fail-overs and two snapshots."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Final

from .morning import data_directory

SAMPLE: Final = Path(__file__).resolve().parents[1] / "data" / "aeron-three-node-failover-node0.tar.gz"


def aeron_member() -> Path:
    """The member's directory, unpacked if it is not there: written by Aeron 1.52.2, not by this project."""
    directory = data_directory() / "aeron"
    if not directory.is_dir():
        unfinished = directory.with_name(f"{directory.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with tarfile.open(SAMPLE) as archive:
            # Python 3.11.3 and older have neither the argument nor the filter; the data is our own.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
            archive.extractall(unfinished)
        unfinished.rename(directory)
    return directory / "node0"
