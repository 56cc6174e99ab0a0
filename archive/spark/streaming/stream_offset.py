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

A stream over a directory with groups has such an offset for each group that it reads, by the group's index, and says
how many groups the cluster has. What the checkpoint does not name, or names more, is another stream: positions of one
group mean nothing in the log of another.

    {"position": 4096, ..., "messages": true, ...}                                                 of one log
    {"group_count": 2, "groups": {"0": {"position": 4096, ...}, "1": {...}}, "messages": true, ...}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeAlias

from ....service_api.errors import ConfigurationError
from ....service_api.types import NULL_POSITION, NULL_VALUE
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


GroupOffsets: TypeAlias = Mapping[int, LogOffset]
"""A place in the log of each group, by the group's index."""


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
        if "groups" in value:
            raise ConfigurationError(
                f"checkpoint of a stream over a directory with groups: group_count={value.get('group_count')} expected "
                "one log; name the directory that holds groups.json, or another checkpointLocation"
            )
        if not self._has_options(value, _OFFSET_NAMES) or not _is_offset({name: value[name] for name in _OFFSET_NAMES}):
            raise self._another_source(value, f"whole numbers {', '.join(_OFFSET_NAMES)}")
        self._check_options(value)
        return LogOffset(**{name: value[name] for name in _OFFSET_NAMES})

    def groups_to_json(self, offsets: Mapping[int, LogOffset], group_count: int) -> dict[str, Any]:
        """Return what goes into the checkpoint of a stream over groups: an offset for each, and these options."""
        named = {str(index): asdict(offsets[index]) for index in sorted(offsets)}
        return {"group_count": group_count, "groups": named} | asdict(self)

    def groups_from_json(self, value: Mapping[str, Any], chosen: Sequence[int], group_count: int) -> GroupOffsets:
        """Take the offsets of the chosen groups that a checkpoint holds.

        Raises:
            ConfigurationError: it is the checkpoint of another source, of other groups, or of a query with other
                options.
        """
        if self._has_options(value, _OFFSET_NAMES):
            raise ConfigurationError(
                f"checkpoint of a stream of one log, expected one of groups {_listing(chosen)}; name that log's "
                "directory, such as DIR/group-0, or another checkpointLocation"
            )
        groups = value.get("groups")
        is_right = self._has_options(value, ("group_count", "groups")) and type(value["group_count"]) is int
        if not is_right or not isinstance(groups, dict) or not all(map(_is_offset, groups.values())):
            raise self._another_source(value, "group_count, and in groups an offset for each")
        if value["group_count"] != group_count:
            raise ConfigurationError(
                f"checkpoint of another cluster: group_count={value['group_count']} expected={group_count}, as the "
                "directory has it; the number is fixed when a cluster forms: name the directory of the first cluster, "
                "or another checkpointLocation"
            )
        if set(groups) != {str(index) for index in chosen}:
            noted = sorted(groups, key=lambda text: (len(text), text))
            raise ConfigurationError(
                f"checkpoint of other groups: groups={','.join(noted)} expected={','.join(map(str, chosen))}, which "
                f"the query reads now; start it with the option group={','.join(noted)}, or another checkpointLocation"
            )
        self._check_options(value)
        return {index: LogOffset(**groups[str(index)]) for index in chosen}

    def _has_options(self, value: Mapping[str, Any], names: Iterable[str]) -> bool:
        """Whether a checkpoint has these names, those of the options, and no other ones."""
        return set(value) == {*names, *asdict(self)}

    def _check_options(self, value: Mapping[str, Any]) -> None:
        for name, now in asdict(self).items():
            if value[name] != now:
                raise ConfigurationError(
                    f"checkpoint of a query with another option: {name}={_text(value[name])} expected={_text(now)}, as "
                    "the query has it now; start it with the value of the checkpoint, or another checkpointLocation"
                )

    def _another_source(self, value: Mapping[str, Any], expected: str) -> ConfigurationError:
        return ConfigurationError(
            f"checkpoint of another source: offset={dict(value)} expected {expected}, and {', '.join(asdict(self))}"
        )


_OFFSET_NAMES: Final = tuple(field.name for field in fields(LogOffset))


def _is_offset(value: object) -> bool:
    return isinstance(value, dict) and set(value) == {*_OFFSET_NAMES} and all(type(n) is int for n in value.values())


def _listing(chosen: Sequence[int]) -> str:
    return ", ".join(map(str, chosen))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
