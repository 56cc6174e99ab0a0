"""The offset of a stream in a log: Spark keeps it in its checkpoint, and gives it back after a restart.

A position alone would let the checkpoint of one cluster go on in the log of another, or in a member's log that went
another way. So an offset also says where the last message before it begins and what is in its first frame, which has
the leader's term and clock in it: logs that agree there were written by the same leader, and so agree on everything
before it (Raft's log matching). All members hold the same frame there, so the order in which their directories are
named plays no part. The time of a recording's start would not do: a member's files carry its own clock; nor would the
log's first entry, which a purge takes away.

It carries the options that decide which rows a range of the log holds, too: frames of one query and messages of the
next would lose a message at the offset between them, if it lies within the message; and a batch that is given again
after a restart has to hold the same rows.

It carries the leadership term as of which it is committed, too: a restarted query has to read again up to an offset
that it has noted, and must tell, perhaps without any member to ask, which directories can be trusted up to there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import NULL_POSITION, NULL_VALUE

from ..source.filters import EVERY_ROW


@dataclass(slots=True, frozen=True, kw_only=True)
class LogOffset:
    """A place between two frames of a log; everything before it is committed.

    Batches go from one offset to another; Spark stores them as JSON objects with these fields.
    """

    position: int
    """In bytes of the log; a frame ends here, or the log begins."""
    leadership_term_id: int = NULL_VALUE
    """The term as of which that is committed; `NULL_VALUE` where the user says that it is."""
    frame_position: int = NULL_POSITION
    """Where the last frame before `position` that begins a message lies; `NULL_POSITION` before the first."""
    frame_checksum: int = 0
    """CRC-32 of that frame's payload."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RowOptions:
    """The options of a stream that decide which rows a range of the log holds."""

    messages: bool = False
    padding: bool = True
    where: str = EVERY_ROW.sql
    """The filter as SQL, which does not change with how it is written."""

    def to_json(self, offset: LogOffset) -> dict[str, Any]:
        """Return what goes into a checkpoint: an offset, and these options."""
        return asdict(offset) | asdict(self)

    def from_json(self, value: Mapping[str, Any]) -> LogOffset:
        """Take the offset that a checkpoint holds.

        Raises:
            ConfigurationError: it is the checkpoint of another source, or of a query with other options.
        """
        names = [field.name for field in fields(LogOffset)]
        options = asdict(self)
        if set(value) != {*names, *options} or not all(type(value[name]) is int for name in names):
            raise ConfigurationError(
                f"checkpoint of another source: offset={dict(value)} expected whole numbers {', '.join(names)}, and "
                f"{', '.join(options)}"
            )
        for name, now in options.items():
            if value[name] != now:
                raise ConfigurationError(
                    f"checkpoint of a query with another option: {name}={_text(value[name])} expected={_text(now)}, as "
                    "the query has it now; start it with the value of the checkpoint, or another checkpointLocation"
                )
        return LogOffset(**{name: value[name] for name in names})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
