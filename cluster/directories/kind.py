"""Whose directory it is: a member's or a backup's, ours or Aeron's. It decides what can go on with it, and how."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from ...archive.files.marks import locate_mark, read_mark_file
from ...service_api import ClusterError, RemoteProtocolError
from ..core.vocabulary.configuration import MemberKind
from ..messages.mark import ClusterComponentType, MarkFileHeader
from ..runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME
from ..runtime.files.mark_file import BOOT_ID_LENGTH, BOOT_ID_POSITION, CLUSTER_MARKS, MARK_FILE_NAME
from ..runtime.files.members_file import MEMBERS_FILE_NAME, read_members
from ..runtime.files.node_state_file import NODE_STATE_FILE_NAME

_OUR_NODE_STATE: Final = b"TRIMARAN"
_NODE_STATE_BYTES: Final = 256


class DirectoryKind(StrEnum):
    """Whose directory it is, by the files of the cluster's directory in it."""

    MEMBER = "a member's"
    """A voter, a learner or a standby of ours, or a directory that `import`, `restore` or `recover` wrote."""
    WITNESS = "a witness's"
    """Its snapshots are of the consensus module alone."""
    BACKUP = "a backup's"
    """A directory of `trimaran backup run`: nobody votes there."""
    AERON_MEMBER = "an Aeron member's"
    AERON_BACKUP = "an Aeron ClusterBackup's"
    """Nobody votes there."""

    @property
    def is_ours(self) -> bool:
        """True if one of our processes wrote it."""
        return self not in (DirectoryKind.AERON_MEMBER, DirectoryKind.AERON_BACKUP)


def find_kind(cluster: Path) -> DirectoryKind:
    """Tell whose directory it is; files that are damaged say nothing."""
    mark = _read_mark(cluster)
    is_ours = (
        (cluster / CLUSTER_ID_FILE_NAME).exists()
        or _OUR_NODE_STATE in _read(cluster / NODE_STATE_FILE_NAME, 0, _NODE_STATE_BYTES)
        or any(_read(cluster / MARK_FILE_NAME, BOOT_ID_POSITION, BOOT_ID_LENGTH))
    )
    if not is_ours:
        is_backup = mark is not None and mark.component_type is ClusterComponentType.BACKUP
        return DirectoryKind.AERON_BACKUP if is_backup else DirectoryKind.AERON_MEMBER
    if mark is None:
        return DirectoryKind.MEMBER if (cluster / NODE_STATE_FILE_NAME).exists() else DirectoryKind.BACKUP
    return DirectoryKind.WITNESS if _is_witness(cluster, mark) else DirectoryKind.MEMBER


def _is_witness(cluster: Path, mark: MarkFileHeader) -> bool:
    try:
        configuration = read_members(cluster / MEMBERS_FILE_NAME)
    except (RemoteProtocolError, OSError):
        return False
    mine = None if configuration is None else configuration.find(mark.member_id)
    return mine is not None and mine.kind is MemberKind.WITNESS


def _read_mark(cluster: Path) -> MarkFileHeader | None:
    try:
        return read_mark_file(locate_mark(cluster, CLUSTER_MARKS), CLUSTER_MARKS)[0]
    except (ClusterError, OSError):
        return None


def _read(path: Path, position: int, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read(length)
    except FileNotFoundError:
        return b""
