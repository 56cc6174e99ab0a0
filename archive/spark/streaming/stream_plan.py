"""What a stream plans, for Spark: offsets as they are in its checkpoint, of one log or of several groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..source.groups import choose_groups, expect_one_group
from .stream_groups import GroupsPlanner
from .stream_offset import GroupOffsets, RowOptions
from .stream_options import StreamOptions
from .stream_planner import EARLIEST, LATEST, LogPlanner, LogRange


class StreamPlan(Protocol):
    """Plans the batches of a stream. Blocks; raises what `LogPlanner` and `RowOptions` raise."""

    def initial_offset(self) -> dict[str, Any]:
        """Return the offset that a new query begins at."""

    def latest_offset(self, start: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
        """Return the end of the next batch; equal to `start` while there is nothing more to show."""

    def freeze(self) -> None:
        """Show nothing that is committed later than now."""

    def newest(self) -> dict[str, int]:
        """Return how far the logs are known to be committed: `position`, or a position by group."""

    def plan_ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[int | None, LogRange]]:
        """Split a batch; each part with the group that it is of, None where the directory has no groups."""


def make_stream_plan(options: StreamOptions, rows: RowOptions, group_count: int | None) -> StreamPlan:
    """Make the plan of a stream; `group_count` is that of a directory with groups.

    Raises:
        ConfigurationError: an option is about one log, and there are several groups; there is no such group; or a port
            of a group would be too high.
    """
    if group_count is None:
        return OneLogPlan(LogPlanner(options.settings), rows)
    chosen = choose_groups(options.read, group_count)
    if options.settings.starting_position not in (EARLIEST, LATEST):
        expect_one_group("startingPosition", options.settings.starting_position, chosen)
    if options.settings.recording_id is not None:
        expect_one_group("recordingId", options.settings.recording_id, chosen)
    return GroupsPlan(GroupsPlanner(options.settings, chosen, group_count), rows, chosen)


class OneLogPlan:
    """The plan of a stream of one log."""

    def __init__(self, planner: LogPlanner, rows: RowOptions) -> None:
        self._planner = planner
        self._rows = rows

    def initial_offset(self) -> dict[str, Any]:
        """See `StreamPlan`."""
        return self._rows.to_json(self._planner.initial_offset())

    def latest_offset(self, start: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
        """See `StreamPlan`."""
        return self._rows.to_json(self._planner.latest_offset(self._rows.from_json(start), limit_bytes))

    def freeze(self) -> None:
        """See `StreamPlan`."""
        self._planner.freeze()

    def newest(self) -> dict[str, int]:
        """See `StreamPlan`."""
        return {"position": self._planner.newest_position}

    def plan_ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[int | None, LogRange]]:
        """See `StreamPlan`."""
        planned = self._planner.plan_ranges(self._rows.from_json(start), self._rows.from_json(end))
        return [(None, log_range) for log_range in planned]


class GroupsPlan:
    """The plan of a stream over some groups."""

    def __init__(self, planner: GroupsPlanner, rows: RowOptions, chosen: tuple[int, ...]) -> None:
        self._planner = planner
        self._rows = rows
        self._chosen = chosen

    def initial_offset(self) -> dict[str, Any]:
        """See `StreamPlan`."""
        return self._to_json(self._planner.initial_offsets())

    def latest_offset(self, start: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
        """See `StreamPlan`."""
        return self._to_json(self._planner.latest_offsets(self._from_json(start), limit_bytes))

    def freeze(self) -> None:
        """See `StreamPlan`."""
        self._planner.freeze()

    def newest(self) -> dict[str, int]:
        """See `StreamPlan`."""
        return {str(index): position for index, position in self._planner.newest_positions.items()}

    def plan_ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[tuple[int | None, LogRange]]:
        """See `StreamPlan`."""
        return [*self._planner.plan_ranges(self._from_json(start), self._from_json(end))]

    def _to_json(self, offsets: GroupOffsets) -> dict[str, Any]:
        return self._rows.groups_to_json(offsets, self._planner.group_count)

    def _from_json(self, value: Mapping[str, Any]) -> GroupOffsets:
        return self._rows.groups_from_json(value, self._chosen, self._planner.group_count)
