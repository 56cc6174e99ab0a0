"""The directory that Aeron's ClusterBackup keeps, made of what a real member has recorded."""

from __future__ import annotations

from pathlib import Path

from tests.unit.archive.streams import extract_sample
from trimaran.cluster.messages.mark import ClusterComponentType
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME, read_cluster_mark_file
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME


def lay_out_cluster_backup(scenario: str, target: Path) -> Path:
    """Unpack a member's recording as a backup has it: it never votes, runs no service, and says that it is a backup."""
    directory = extract_sample(scenario, target) / "node0"
    cluster = directory / "cluster"
    (cluster / NODE_STATE_FILE_NAME).unlink()
    (cluster / "cluster-mark-service-0.dat").unlink()
    mark = cluster / MARK_FILE_NAME
    header = read_cluster_mark_file(mark).model_copy(update={"component_type": ClusterComponentType.BACKUP})
    encoded = header.encode()
    mark.write_bytes(encoded + mark.read_bytes()[len(encoded) :])
    return directory
