"""Durable recordings of byte streams in Aeron's format.

`format` has the layouts, `disk` the file systems, `files` the files of an archive. `store` records, replays, repairs
and edits; `net` serves that to clients and is the client. `reading` reads recordings as frames, messages and columns;
`log` says which recording is a cluster's log, and is the one room that knows of Raft. `tool` is the command line,
`spark` the data source, `report` the page.

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
    from .net.server.served_archive import ServedArchive as ServedArchive
    from .reading.frame_batches import ReadProblem as ReadProblem
    from .reading.log_frames import frames as frames
    from .store.conductor import Archive as Archive
    from .store.recording import Recording as Recording
else:
    from ..service_api.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(__name__)
