"""The schemas of typed messages that are in the snapshots of an archive: a log without its beginning may lack them."""

from __future__ import annotations

from collections.abc import Iterator

from ...service_api.errors import ClusterError
from ...service_api.typed.snapshots import read_known_schemas
from ...service_api.types import SERVICE_SNAPSHOT_STREAM_ID
from ..files.catalog import read_catalog
from ..files.reader import MessageReader
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.log_file import LogFile
from ..log.member_directory import ArchiveLocation


def read_snapshot_schemas(location: ArchiveLocation) -> Iterator[bytes]:
    """Yield what each snapshot of a service there has of clients' schemas, older snapshots first.

    A snapshot that is damaged, or not of a typed service, has none. Each is read up to its last schema.

    Raises:
        ClusterError: the catalog cannot be read.
        OSError: the disk or the store refused.
    """
    for descriptor in read_catalog(location.file_system, location.directory).readable:
        if descriptor.stream_id == SERVICE_SNAPSHOT_STREAM_ID and descriptor.state is RecordingState.VALID:
            yield from _read_one(location, descriptor)


def _read_one(location: ArchiveLocation, descriptor: RecordingDescriptor) -> list[bytes]:
    messages = MessageReader(LogFile(location, descriptor).reader())
    try:
        return [*read_known_schemas(bytes(message.payload) for message in messages)]
    except ClusterError:
        return []
