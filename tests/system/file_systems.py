"""What kind of file system a directory lies on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

IN_MEMORY: Final = frozenset(("tmpfs", "ramfs", "devtmpfs"))


def is_in_memory(directory: Path) -> bool:
    """Whether what is written there is gone with the power, by the table of mounts; False where there is none."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return False
    path = directory.resolve()
    kinds = {Path(point): kind for _, point, kind, *_ in mounts}
    for parent in (path, *path.parents):
        if parent in kinds:
            return kinds[parent] in IN_MEMORY
    return False
