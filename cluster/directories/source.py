"""The directory of a member of an Aeron Cluster: where its files lie, and what its small files hold.

Nothing here changes anything. Unless asked otherwise, a member that may still be running is refused: what it would
write while it is read would be half of something.

Source: aeron.md §5.1, §5.2; samples set A README §4, §6, §7, §9.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...archive import ArchiveError, RecordingDescriptor, RecordingState
from ...archive.files.marks import ARCHIVE_MARKS, find_owner
from ...archive.format.catalog import CatalogContent, CatalogEntry
from ...archive.log.member_directory import ArchiveLocation, MemberDirectory
from ...service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ...service_api.types import NULL_VALUE
from ...service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME, RecordingLogEntry
from ..core.log.recording_log import RecordingLog
from ..runtime.files.mark_file import CLUSTER_MARKS
from ..runtime.files.node_state_file import NODE_STATE_FILE_NAME, parse_node_state
from ..runtime.files.recording_log_file import read_recording_log


@dataclass(slots=True, frozen=True)
class Source:
    """A member's files as they were found. The log is the recording that its leadership terms name."""

    name: str
    """As the user named it."""
    location: ArchiveLocation
    """The archive with the file system that both directories are in: this machine's, or that of a URL."""
    cluster: Path
    recording_log: RecordingLog
    entries: dict[int, CatalogEntry]
    """The catalog, by recording id."""
    next_recording_id: int
    candidate_term_id: int
    terms: tuple[RecordingLogEntry, ...]
    """The valid terms, oldest first; none where the log was seeded from a snapshot and not begun yet."""

    @property
    def archive(self) -> Path:
        """The directory of the archive."""
        return self.location.directory

    @property
    def log_recording_id(self) -> int:
        """The recording that holds the log.

        Raises:
            ClusterError: there is none yet.
        """
        if not self.terms:
            raise ClusterError(
                f"no leadership term in {self.name}: its log was seeded from a snapshot and not begun yet"
            )
        return self.terms[-1].recording_id

    @property
    def is_seeded(self) -> bool:
        """Whether the log begins with the state of a snapshot, valid or not, which is of a log before."""
        return self.recording_log.is_seeded

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What the catalog says about a recording that is to be read.

        Raises:
            ArchiveError: it says nothing, or nothing that can be used.
        """
        entry = self.entries.get(recording_id)
        if entry is None or entry.descriptor is None:
            raise ArchiveError("recording is not in the catalog", recording_id=recording_id)
        if entry.problem is not None:
            raise ArchiveError(f"catalog entry is not valid: {entry.problem}", recording_id=recording_id)
        if entry.descriptor.state is not RecordingState.VALID:
            raise ArchiveError(f"state={entry.descriptor.state.name} expected=VALID", recording_id=recording_id)
        return entry.descriptor


def read_source(name: str | ArchiveLocation, *, now_ms: int | None, candidate_term_id: int | None = None) -> Source:
    """Read the small files of a member that does not run; of one that may run if `now_ms` is None.

    Of a member that does not run, the log is what its disk has of it, without the segments in cold storage.

    Where the candidate term is given, the node state is not read: it may be damaged.

    `name` is a directory that holds a cluster's and an archive's directory, or is both; or the two of them, the
    cluster's first, with a comma between. It may be a URL that fsspec knows, or a location, where `now_ms` is None.

    Raises:
        ConfigurationError: there are no such files, or a process may run there.
        ClusterError: a file is damaged.
    """
    member = MemberDirectory.find(name)
    if member.recording_log is None:
        raise ConfigurationError(
            f"files={RECORDING_LOG_FILE_NAME} found=0 expected=1 in {name} or a directory in it; name both directories "
            "as CLUSTER_DIR,ARCHIVE_DIR"
        )
    archive, cluster = member.archive.directory, member.recording_log.parent
    if now_ms is not None and not member.archive.is_local:
        raise ConfigurationError(f"a member is taken over from a local directory: copy it first: path={name!r}")
    if now_ms is not None:
        running = find_running(cluster, archive, now_ms)
        if running is not None:
            raise ConfigurationError(running)
        member = member.on_disk()
    try:
        recording_log = read_recording_log(cluster / RECORDING_LOG_FILE_NAME, member.archive.file_system)
        content = member.read_catalog()
        if candidate_term_id is None:
            candidate_term_id = read_candidate_term_id(member, cluster / NODE_STATE_FILE_NAME)
    except OSError as error:
        raise ConfigurationError(f"directory cannot be read: {error}") from error
    return Source(
        name=str(name),
        location=member.archive,
        cluster=cluster,
        recording_log=recording_log,
        entries=_by_recording_id(content),
        next_recording_id=content.header.next_recording_id,
        candidate_term_id=candidate_term_id,
        terms=_terms_of(recording_log, cluster / RECORDING_LOG_FILE_NAME),
    )


def read_candidate_term_id(member: MemberDirectory, path: Path) -> int:
    """Read the highest term that the member voted in; -1 without a file, which old versions of Aeron had not.

    Raises:
        ClusterError: the file is damaged.
    """
    try:
        data = member.read_file(path)
    except FileNotFoundError:
        return NULL_VALUE
    try:
        return parse_node_state(data)[0].candidate_term_id
    except RemoteProtocolError as error:
        raise ClusterError(f"damaged node state: path={path}: {error}") from error


def find_running(cluster: Path, archive: Path, now_ms: int) -> str | None:
    """Say which process runs on a member's directories, ours or Aeron's, or why nobody can tell; None without one.

    Raises:
        OSError: the disk refused.
    """
    owner = find_owner(cluster, CLUSTER_MARKS, now_ms=now_ms)
    if owner is not None:
        return owner.describe("cluster", cluster)
    owner = find_owner(archive, ARCHIVE_MARKS, now_ms=now_ms)
    return None if owner is None else owner.describe("archive", archive)


def _by_recording_id(content: CatalogContent) -> dict[int, CatalogEntry]:
    """Sort entries by recording; one that says nothing ends the list, as what follows it cannot be found."""
    found: dict[int, CatalogEntry] = {}
    for entry in content.entries:
        if entry.descriptor is not None:
            found[entry.descriptor.recording_id] = entry
    return found


def _terms_of(recording_log: RecordingLog, path: Path) -> tuple[RecordingLogEntry, ...]:
    """Return the valid terms, which must be of one recording.

    Raises:
        ClusterError: there is none, nor a seed, or they are not.
    """
    terms = tuple(entry for entry in recording_log.entries if entry.is_valid_term)
    if not terms:
        if any(entry.is_seed and entry.is_valid for entry in recording_log.entries):
            return ()
        raise ClusterError(f"no leadership term in path={path}: there is no log to take over")
    recordings = sorted({term.recording_id for term in terms})
    if len(recordings) != 1:
        raise ClusterError(f"leadership terms of several recordings in path={path}: recording_ids={recordings}")
    return terms
