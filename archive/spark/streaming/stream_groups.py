"""Following the logs of several groups as one stream: a batch is a range of positions of each group.

The problem: positions of different groups have no common order, and each group's log is committed, lags, loses members
and is purged by itself. One position cannot say what was shown.

The idea: each group has a planner of its own, as a stream of that log alone would have, and an offset of its own in the
checkpoint. What holds of a stream of one log so holds of each group: what is shown is committed, and a batch that is
read again has the same rows. Between groups nothing is promised: a batch is no cut through the cluster.

A bound on a batch is shared by max-min fairness: those who have little to show take all of it, and what they leave is
divided equally among the others. So a busy group holds up no quiet one, and a quiet one no busy one. A group that has
something gives one frame, or message, at least: none starves behind the long messages of another one.

A group whose directories are gone or hold another log ends the query with an error that names the group: to go on
without it would leave its rows out without a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError
from ....service_api.groups.group import Group
from ....service_api.groups.ports import group_endpoint
from ...errors import ArchiveError
from ...log.group_directories import GROUP_DIRECTORY_PREFIX, group_directory
from .stream_cut import NO_LIMIT
from .stream_offset import GroupOffsets, LogOffset
from .stream_planner import LogPlanner, LogRange, StreamSettings

_IF_RENUMBERED: Final = (
    "if directories of groups were renamed, give them their names back; to read another log, use another "
    "checkpointLocation"
)


class GroupsPlanner:
    """Plans the batches of a stream over some groups of a cluster. Blocks, as `LogPlanner` does."""

    def __init__(
        self,
        settings: StreamSettings,
        chosen: tuple[int, ...],
        group_count: int,
        make_planner: Callable[[StreamSettings], LogPlanner] = LogPlanner,
    ) -> None:
        """Take the settings of the whole cluster: members' directories, and the consensus endpoints of group 0.

        Raises:
            ConfigurationError: a port of a group would be too high.
        """
        self.group_count = group_count
        self._directories = settings.directories
        self._planners: Final = {
            index: make_planner(settings_of_group(settings, Group(index, group_count))) for index in chosen
        }

    def __repr__(self) -> str:
        return f"<GroupsPlanner groups={[*self._planners]} group_count={self.group_count}>"

    @property
    def newest_positions(self) -> Mapping[int, int]:
        """How far each group's log was known to be committed at the last look."""
        return {index: planner.newest_position for index, planner in self._planners.items()}

    def initial_offsets(self) -> GroupOffsets:
        """Return the offsets that a new query begins at.

        Raises:
            ArchiveError, ConfigurationError: as `LogPlanner.initial_offset`, with the group.
        """
        offsets: dict[int, LogOffset] = {}
        for index, planner in self._planners.items():
            with self._naming(index):
                offsets[index] = planner.initial_offset()
        return offsets

    def latest_offsets(self, start: GroupOffsets, limit_bytes: int = NO_LIMIT) -> GroupOffsets:
        """Return the ends of the next batch; `start` itself while no group has anything more to show.

        At most `limit_bytes` in all, but one frame (or message) of each group that has something to show.

        Raises:
            ArchiveError: of some group nobody has what comes behind `start`, and nobody will.
        """
        ends: dict[int, LogOffset] = {}
        left_bytes = limit_bytes
        newest = self.newest_positions
        by_need = sorted(self._planners, key=lambda index: newest[index] - start[index].position)
        for place, index in enumerate(by_need):
            share_bytes = max(left_bytes, 0) // (len(by_need) - place)
            with self._naming(index):
                ends[index] = self._planners[index].latest_offset(start[index], share_bytes)
            left_bytes -= ends[index].position - start[index].position
        return {index: ends[index] for index in self._planners}

    def freeze(self) -> None:
        """Show nothing that is committed later than now, in any group."""
        for index, planner in self._planners.items():
            with self._naming(index):
                planner.freeze()

    def plan_ranges(self, start: GroupOffsets, end: GroupOffsets) -> list[tuple[int, LogRange]]:
        """Split what lies between two offsets of each group, and say who has it.

        Raises:
            ArchiveError: of some group nobody has it.
        """
        ranges: list[tuple[int, LogRange]] = []
        for index, planner in self._planners.items():
            with self._naming(index):
                ranges += [(index, each) for each in planner.plan_ranges(start[index], end[index])]
        return ranges

    @contextlib.contextmanager
    def _naming(self, group_index: int) -> Iterator[None]:
        """Say in an error which group it is about, and what to do."""
        group = Group(group_index, self.group_count)
        try:
            yield
        except ArchiveError as error:
            text = f"{group}: {error.message}; {self._advise(group_index)}"
            raise ArchiveError(text, code=error.code, position=error.position) from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{group}: {error}") from error

    def _advise(self, group_index: int) -> str:
        wanted = [group_directory(directory, group_index) for directory in self._directories]
        if any(directory.exists() for directory in wanted):
            return _IF_RENUMBERED
        others = ",".join(str(index) for index in self._planners if index != group_index)
        instead = f"; or read the others: the option group={others} and another checkpointLocation" if others else ""
        searched = ", ".join(map(str, self._directories))
        return f"there is no {GROUP_DIRECTORY_PREFIX}{group_index} in {searched}: bring it back{instead}"


def settings_of_group(settings: StreamSettings, group: Group) -> StreamSettings:
    """Make the settings of the stream of one group's log of those that name the whole cluster.

    Raises:
        ConfigurationError: a port would be too high.
    """
    return replace(
        settings,
        directories=tuple(group_directory(directory, group.index) for directory in settings.directories),
        commit_from=tuple(
            Endpoint.parse(group_endpoint(str(endpoint), group.index)) for endpoint in settings.commit_from
        ),
        group=group,
    )
