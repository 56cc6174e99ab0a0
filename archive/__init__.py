"""Durable recordings of byte streams in Aeron's format; knows nothing of Raft.

Write: `conductor` (Archive) -> `recording` -> `segment_files`, `catalog`, `worker`. Change: `editing`, `edit_journal`.
Read: `range_reader`, `reader`, `verify`, `repair`. Serve: `control`, `server`, `control_session`, `replay`; `client`,
`connection`, `publication`, `replay_merge`. Copy: `replication`. Disk: `file_system`. Command line: `tool`.

A name is loaded when it is first asked for: an executor of Spark reads recordings without loading what serves them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ArchiveConfig as ArchiveConfig
    from .errors import ArchiveError as ArchiveError
    from .errors import ArchiveErrorCode as ArchiveErrorCode
    from .errors import CorruptionError as CorruptionError
    from .format.descriptor import RecordingDescriptor as RecordingDescriptor
    from .format.descriptor import RecordingState as RecordingState
    from .net.client import ArchiveClient as ArchiveClient
    from .net.publication import Publication as Publication
    from .net.server.archive_server import ArchiveServer as ArchiveServer
    from .reading.frame_batches import ReadProblem as ReadProblem
    from .reading.frame_batches import frames as frames
    from .store.conductor import Archive as Archive
    from .store.recording import Recording as Recording
else:
    from .exports import __dir__ as __dir__
    from .exports import __getattr__ as __getattr__
