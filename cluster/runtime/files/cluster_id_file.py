"""The file `cluster-id`: the id of the cluster that this member belongs to, in 16 hexadecimal digits and a checksum.

    3f9a0c12d45e77b1 8d3f00ab

Written once, under another name first, and synced before the id is told to anybody: a member never shows one id and
after a power loss another. Aeron has no such file and reads none of this name. Every function here may block.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ....archive.disk.file_system import FileSystem, OsFileSystem, read_file, replace_file
from ....service_api.cluster_id import CLUSTER_ID_PATTERN, NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ....service_api.errors import ClusterError, invariant

CLUSTER_ID_FILE_NAME: Final = "cluster-id"
_LINE: Final = re.compile(rb"(%s) ([0-9a-f]{8})\n" % CLUSTER_ID_PATTERN.encode())


class ClusterIdFile:
    """The cluster id of one member's directory."""

    def __init__(self, path: Path, cluster_id: ClusterId, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.cluster_id = cluster_id
        """`NULL_CLUSTER_ID` until there is one; then it never changes."""
        self.on_stored: Callable[[ClusterId], None] = lambda cluster_id: None
        """Told when there is one."""

    def __repr__(self) -> str:
        return f"<ClusterIdFile cluster_id={format_cluster_id(self.cluster_id)} path={self._path}>"

    @classmethod
    def open(cls, directory: Path, file_system: FileSystem) -> ClusterIdFile:
        """Read the id in a member's cluster directory; there is none in a new one, or in one of Aeron's.

        Raises:
            ClusterError: the file is damaged.
            OSError: the disk refused.
        """
        path = directory / CLUSTER_ID_FILE_NAME
        try:
            data = read_file(file_system, path)
        except FileNotFoundError:
            return cls(path, NULL_CLUSTER_ID, file_system)
        line = _LINE.fullmatch(data)
        if line is None or int(line[2], 16) != zlib.crc32(line[1]):
            raise ClusterError(
                f"damaged cluster id: path={path} content={data[:40]!r}; remove the file: the member takes the id "
                "again from its cluster"
            )
        return cls(path, ClusterId(int(line[1], 16)), file_system)

    def store(self, cluster_id: ClusterId) -> None:
        """Make the id durable; there must be none yet.

        Raises:
            OSError: the disk refused; the member has no id then.
        """
        invariant(
            self.cluster_id == NULL_CLUSTER_ID,
            "a cluster id never changes",
            path=str(self._path),
            found=self.cluster_id,
            new=cluster_id,
        )
        text = f"{cluster_id:016x}".encode()
        replace_file(self._file_system, self._path, b"%s %08x\n" % (text, zlib.crc32(text)))
        self.cluster_id = cluster_id
        self.on_stored(cluster_id)


def kept_cluster_id(directory: Path, file_system: FileSystem | None = None) -> ClusterId:
    """Return the id in the cluster directory of a member; `NULL_CLUSTER_ID` if it has none.

    Raises:
        ClusterError: the file is damaged.
        OSError: the disk refused.
    """
    return ClusterIdFile.open(directory, OsFileSystem() if file_system is None else file_system).cluster_id
