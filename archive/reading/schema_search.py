"""The schemas of typed messages that a log has, and those that it gets while it is read.

The log has the schema of a class before the first message of it. So a reader that meets a message whose schema it does
not know finds the schema before that message: it reads on from where it has read to, up to the end of what is recorded.
A schema stands for itself, by its fingerprint, so one that is not committed yet, or is of another group, does no harm.

Needs numpy and pyarrow. A `SchemaSearch` is pickled to Spark's executors, which have no pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ClusterError, RemoteProtocolError
from ...service_api.typed.log_schemas import LogSchemas, announced_schema
from ...service_api.typed.schema import Schema
from ...service_api.types import TimeUnit
from ...service_api.wire.log.fields import MESSAGE_HEADER_LENGTH
from ...service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from ..log.member_directory import ArchiveLocation
from .frame_batches import FrameSelection, find_entries, make_schema, read_batches

_MARK: Final = b'"fields"'
"""Each announced schema has it: rows without it are not looked at one by one."""
_COLUMNS: Final = ("position", "template_id", "payload")


@dataclass
class _Place:
    """One recording that is searched, and the position up to which it was."""

    location: ArchiveLocation
    recording_id: int
    position: int | None = None

    def read_on(self) -> Iterator[bytes]:
        """Yield the bodies of announced schemas after the position, and move it.

        Raises:
            ArchiveError: the recording is not there any more.
            OSError: the disk or the store refused.
        """
        (entry,) = find_entries(self.location.directory, self.recording_id, self.location.file_system)
        descriptor = entry.descriptor
        assert descriptor is not None
        start = None if self.position is None else max(self.position, descriptor.start_position)
        if start is not None and descriptor.stop_position is not None and start >= descriptor.stop_position:
            return
        for batch in read_batches(
            self.location,
            descriptor,
            FrameSelection(start_position=start, reassemble=True),
            make_schema(_COLUMNS, TimeUnit.MILLIS),
            lambda problem: None,  # who reads the messages is told of damage
        ):
            if batch.num_rows:
                # From the last whole message: what follows it may be half a message yet.
                self.position = batch.column(0)[-1].as_py()
            yield from _announced_in(batch)


@dataclass
class SchemaSearch:
    """The logs in which schemas are searched, and what was found; one log, or that of each group."""

    places: list[_Place]
    schemas: LogSchemas = field(default_factory=LogSchemas)

    @classmethod
    def open(cls, path: str | Path) -> SchemaSearch:
        """Read the schemas of a member's directory or URL: its log's, or its groups' logs', and its snapshots'.

        Raises:
            ConfigurationError: there is no log.
            ClusterError: the catalog is damaged.
            OSError: the disk or the store refused.
        """
        from ..log.log_file import LogFile
        from ..log.member_directory import MemberDirectory
        from ..log.member_groups import group_path, read_group_count

        count = read_group_count(path)
        paths = [path] if count is None else [group_path(str(path), index) for index in range(count)]
        logs = [LogFile.find(MemberDirectory.find(each)) for each in paths]
        return cls.of((log.location, log.descriptor.recording_id) for log in logs)

    @classmethod
    def of(cls, recordings: Iterable[tuple[ArchiveLocation, int]]) -> SchemaSearch:
        """Read the schemas in recordings, and in the snapshots beside them.

        Raises:
            ClusterError: the catalog is damaged, or no recording can be read.
            OSError: the disk or the store refused.
        """
        from .snapshot_schemas import read_snapshot_schemas

        search = cls([_Place(*each) for each in recordings])
        for place in search.places:
            search._note(read_snapshot_schemas(place.location))
        search.read_on()
        return search

    def read_on(self) -> None:
        """Read what the logs have got since. A log that cannot be read is passed over, if there are several.

        Raises:
            ClusterError: no log can be read.
            OSError: the same.
        """
        failures: list[ClusterError | OSError] = []
        for place in self.places:
            try:
                self._note(place.read_on())
            except (ClusterError, OSError) as error:
                failures.append(error)
        if failures and len(failures) == len(self.places):
            raise failures[0]

    def _note(self, bodies: Iterator[bytes]) -> None:
        for body in bodies:
            with suppress(RemoteProtocolError):  # the service refused it
                self.schemas.note(body)


def _announced_in(batch: Any) -> Iterator[bytes]:
    import pyarrow.compute as pc

    is_wanted = pc.and_(
        pc.equal(batch.column("template_id"), SESSION_MESSAGE_HEADER),
        pc.match_substring(batch.column("payload"), _MARK),
    )
    for message in batch.column("payload").filter(is_wanted).to_pylist():
        body = announced_schema(message[MESSAGE_HEADER_LENGTH + int.from_bytes(message[:2], "little") :])
        if body is not None:
            yield body


_SEARCHES: Final[dict[str, SchemaSearch]] = {}
"""The searches of this process by what they search: a worker of Spark reads a range of a log once for all its tasks."""


def search_on(search: SchemaSearch, fingerprint: bytes) -> dict[bytes, Schema]:
    """Read on in the logs of a search if a schema is not known in this process yet; return the schemas by fingerprint.

    Raises:
        ClusterError: no log can be read.
        OSError: the same.
    """
    known = _SEARCHES.setdefault(repr([(place.location, place.recording_id) for place in search.places]), search)
    if fingerprint not in known.schemas.of_class():
        known.read_on()
    return known.schemas.of_class()
