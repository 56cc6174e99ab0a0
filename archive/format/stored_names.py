"""Names that come from outside: in indexes, listings of stores, and documents of others.

The problem: a name is joined to a directory or a URL. One such as `../../x` or `/etc/x` then leads out of it, and code
that restores, fetches or removes by that name does so for anyone who can write the index. The idea: there are few
kinds of names, and each has one form that nothing else has. `take_name` gives a `StoredName` for these alone; a store
takes no other text, which the type checker holds. Rejected: looking for `..` and `/` in a name, which asks how a path
could be bad; there is always one way more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NewType

from ...service_api.cluster_id import CLUSTER_ID_PATTERN
from ...service_api.errors import RemoteProtocolError
from .segment_names import parse_segment_file_name

StoredName = NewType("StoredName", str)
"""A name below a directory or a URL that this process made, or has taken with `take_name`."""

_NAME_LIMIT: Final = 200
WRITER_PATTERN: Final = r"(?:member-(?:0|[1-9][0-9]{0,9})|backup-(?:0|[1-9][0-9]{0,18}))"
"""How those are named who write into a store: members by their ids, backups by the time at which they began."""

_WRITER: Final = re.compile(WRITER_PATTERN)
_INDEX: Final = re.compile(rf"{WRITER_PATTERN}\.json")
_WRITING: Final = re.compile(rf"writing-{WRITER_PATTERN}\.json")
_PRUNING: Final = re.compile(r"pruning-[0-9a-f]{16}\.json")
_SEGMENT: Final = re.compile(r"[0-9]{19}-[0-9a-f]{64}\.rec")
_CLUSTER: Final = re.compile(CLUSTER_ID_PATTERN)


class NameKind(Enum):
    """A kind of name: its form as people are told, and whether a text has it."""

    CLUSTER = "CLUSTER_ID", _CLUSTER.fullmatch
    WRITER = "member-ID or backup-STARTED", _WRITER.fullmatch
    INDEX = "member-ID.json or backup-STARTED.json", _INDEX.fullmatch
    WRITING = "writing-WRITER.json", _WRITING.fullmatch
    PRUNING = "pruning-ID.json", _PRUNING.fullmatch
    SEGMENT = "POSITION-SHA256.rec", _SEGMENT.fullmatch
    PART = "RECORDING-POSITION.rec", parse_segment_file_name
    CATALOG = "archive/archive.catalog", "archive/archive.catalog".__eq__
    RECORDING_LOG = "cluster/recording.log", "cluster/recording.log".__eq__
    CLUSTER_ID = "cluster/cluster-id", "cluster/cluster-id".__eq__

    def __init__(self, form: str, has_form: Callable[[str], object]) -> None:
        self.form: Final = form
        self._has_form: Final = has_form

    def fits(self, text: str) -> bool:
        """Return whether a text is a name of this kind."""
        return bool(self._has_form(text))


def take_name(text: str, *kinds: NameKind) -> StoredName:
    """Take a name that came from outside: one of the kinds that there can be in its place.

    Raises:
        RemoteProtocolError: it is none of them. The error shows the name escaped, on one line.
    """
    if not any(kind.fits(text) for kind in kinds):
        shown = ascii(text if len(text) <= _NAME_LIMIT else f"{text[:_NAME_LIMIT]}...")
        expected = " or ".join(kind.form for kind in kinds)
        raise RemoteProtocolError(f"name={shown} is no name that can stand here: expected {expected}")
    return StoredName(text)
