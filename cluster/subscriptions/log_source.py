"""Finds a member that serves the committed log from a position on.

Any member can: what it knows to be committed is the same, byte for byte, on all of them, and it never takes that back.
So a round asks all members who they are and how far they are, then tries them in the order that the caller prefers.
One that is behind the position is passed over, for it may have yet to learn that the position is committed.

Bounds: the members that the caller named and those that the members name, `MEMBER_LIMIT` in all; a round every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

from ...archive.errors import ArchiveError, ArchiveErrorCode
from ...archive.format.messages import RecordingDescriptorRow
from ...archive.net.client import ArchiveClient
from ...archive.net.replay_reader import ReplayReader
from ...service_api.cluster_id import parse_cluster_id
from ...service_api.documents.member_status import leads
from ...service_api.errors import ClusterError, ConfigurationError
from ...service_api.net.transport import NetworkStack
from ...service_api.types import COMMIT_POSITION_COUNTER_ID
from ..documents.inspection import MembersView, MemberView, inspect_member
from ..documents.query import Outcome, StatusQueryError
from .errors import (
    PositionBeyondEndError,
    PositionPrunedError,
    SubscriptionRefusedError,
    SubscriptionTimeoutError,
)

MEMBER_LIMIT: Final = 64
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
_WITNESS: Final = "witness"
_SPARE: Final = ("learner", "standby")
"""Members that vote for nothing, so that reading from them costs the cluster least."""


class ServedBy(StrEnum):
    """Which member serves a subscription while there is a choice."""

    FOLLOWER = "follower"
    """A learner, then a follower, and the leader only if nobody else can."""
    LEADER = "leader"
    """The leader, which knows first what is committed; others only if it cannot."""
    ANY = "any"


class Start(StrEnum):
    """Where a subscription begins that names no position."""

    EARLIEST = "earliest"
    """The oldest entry that the member keeps."""
    LATEST = "latest"
    """What is committed from now on."""


@dataclass(slots=True, frozen=True)
class TermStart:
    """Where the last entries are read from: the beginning of a term buffer, the last one or one before it."""

    before_count: int


Beginning = int | Start | TermStart
"""Where a reading begins: a position, or what a member makes one of."""


class OpenLog(NamedTuple):
    """A replay that has been asked for, what it holds open, and where it begins."""

    replay: ReplayReader
    resources: AsyncExitStack
    recording_id: int
    position: int
    commit_position: int
    """The commit position of the member when it was asked."""
    member_id: int


@dataclass(slots=True)
class _Round:
    """What came of asking every member once."""

    reasons: dict[str, str] = field(default_factory=dict)
    """Why a member does not serve, by its consensus endpoint."""
    refusals: dict[str, str] = field(default_factory=dict)
    first_positions: list[int] = field(default_factory=list)
    """Where the logs begin of members that have removed the position."""
    behind_leader_position: int | None = None
    """The commit position of a leader that is below the position."""

    def judge(self, position: Beginning) -> None:
        """Raise where waiting does not help.

        Raises:
            SubscriptionRefusedError: all who answer refuse.
            PositionPrunedError: all who could serve have removed it.
        """
        if self.refusals and not self.first_positions and self.behind_leader_position is None:
            raise SubscriptionRefusedError("; ".join(dict.fromkeys(self.refusals.values())))
        if self.first_positions and isinstance(position, int):
            raise PositionPrunedError(position=position, first_position=min(self.first_positions))


class LogSource:
    """The members of a cluster, as what a subscription reads from."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        served_by: ServedBy,
        network: NetworkStack,
        cluster_id: str,
        timeout_s: float,
        random: Callable[[], float],
    ) -> None:
        self._named: Final = [*dict.fromkeys(endpoints)]
        self._found: list[str] = []
        self._served_by = served_by
        self._network = network
        self._cluster_id = cluster_id
        self._parsed_cluster_id = parse_cluster_id(cluster_id)
        self._timeout_s = timeout_s
        self._random = random
        self._avoided: int | None = None

    def __repr__(self) -> str:
        return f"<LogSource {[*self._named, *self._found]}>"

    def avoid(self, member_id: int) -> None:
        """Try this member last the next time: it has just failed."""
        self._avoided = member_id

    async def open(self, position: Beginning, *, within_s: float) -> OpenLog:
        """Ask for the log from a position on, of whichever member has it, for as long as `within_s`.

        Raises:
            PositionPrunedError, PositionBeyondEndError, SubscriptionRefusedError: no waiting helps.
            SubscriptionTimeoutError: nobody served it in time.
            ConfigurationError: an endpoint cannot be used.
        """
        now_s = asyncio.get_running_loop().time
        begin_s, pause_s = now_s(), FIRST_PAUSE_S
        while True:
            found, views = await self._ask_all()
            for endpoint, view in self._in_order(views):
                opened = await self._try(endpoint, view, position, found)
                if opened is not None:
                    return opened
            found.judge(position)
            if now_s() - begin_s >= min(self._timeout_s, within_s):
                _expect_reached(position, found)
            if now_s() - begin_s >= within_s:
                _time_out(found, within_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _ask_all(self) -> tuple[_Round, list[tuple[str, MembersView]]]:
        """Ask every member that is known, all at once."""
        found = _Round()
        endpoints = [*dict.fromkeys([*self._named, *self._found])]
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self._ask(endpoint, found)) for endpoint in endpoints]
        views = [(endpoint, task.result()) for endpoint, task in zip(endpoints, asked, strict=True)]
        answers: dict[int, tuple[str, MembersView]] = {}
        for endpoint, view in views:
            if view is not None:
                answers.setdefault(view.answered_by, (endpoint, view))
        if answers:
            newest = max((view for _, view in answers.values()), key=lambda view: view.commit_position)
            self._found = [member.consensus for member in newest.members][:MEMBER_LIMIT]
        return found, [*answers.values()]

    async def _ask(self, endpoint: str, found: _Round) -> MembersView | None:
        try:
            return await inspect_member(
                endpoint, MembersView, self._timeout_s, cluster_id=self._parsed_cluster_id, network=self._network
            )
        except StatusQueryError as error:
            found.reasons[endpoint] = str(error)
            if error.outcome in (Outcome.NOT_ALLOWED, Outcome.OTHER_CLUSTER):
                found.refusals[endpoint] = str(error)
            return None

    def _in_order(self, views: list[tuple[str, MembersView]]) -> list[tuple[str, MembersView]]:
        """Return who to try first, by what the caller prefers; by chance where that says nothing."""

        def rank(asked: tuple[str, MembersView]) -> tuple[bool, int, float]:
            view = asked[1]
            leader_rank = {ServedBy.FOLLOWER: 2, ServedBy.LEADER: 0, ServedBy.ANY: 1}[self._served_by]
            own = _own_row(view)
            is_learner = own is not None and own.kind in _SPARE and self._served_by is ServedBy.FOLLOWER
            number = leader_rank if leads(view) else 0 if is_learner else 1
            return view.answered_by == self._avoided, number, self._random()

        return sorted(views, key=rank)

    async def _try(self, endpoint: str, view: MembersView, position: Beginning, found: _Round) -> OpenLog | None:
        """Ask one member for the log; note why it does not serve."""
        own = _own_row(view)
        if own is None or own.kind == _WITNESS:
            found.reasons[endpoint] = f"member {view.answered_by} keeps no log for readers"
            return None
        if isinstance(position, int) and view.commit_position < position:
            found.reasons[endpoint] = f"member {view.answered_by} is behind: commit_position={view.commit_position}"
            if leads(view):
                found.behind_leader_position = view.commit_position
            return None
        try:
            return await self._open_at(own.archive, view, position)
        except PositionPrunedError as error:
            found.first_positions.append(error.first_position)
            found.reasons[endpoint] = str(error)
        except ConfigurationError:
            raise
        except ClusterError as error:
            found.reasons[endpoint] = str(error)
            if isinstance(error, ArchiveError) and error.code is ArchiveErrorCode.UNAUTHORISED_ACTION:
                found.refusals[endpoint] = str(error)
        return None

    async def _open_at(self, archive: str, view: MembersView, position: Beginning) -> OpenLog:
        async with AsyncExitStack() as resources:
            client = await resources.enter_async_context(
                ArchiveClient.connect(
                    archive,
                    client_info="subscription",
                    timeout_s=self._timeout_s,
                    cluster_id=self._cluster_id,
                    network=self._network,
                )
            )
            descriptor = await client.list_recording(view.log_recording_id)
            begin = _begin_of(position, view.commit_position, descriptor)
            if begin < descriptor.start_position:
                raise PositionPrunedError(position=begin, first_position=descriptor.start_position)
            replay = client.replay(
                view.log_recording_id, position=begin, follow=True, limit_recording_id=COMMIT_POSITION_COUNTER_ID
            )
            return OpenLog(
                replay, resources.pop_all(), view.log_recording_id, begin, view.commit_position, view.answered_by
            )
        raise AssertionError("unreachable")  # an exit stack swallows nothing


def _begin_of(position: Beginning, commit_position: int, recording: RecordingDescriptorRow) -> int:
    if isinstance(position, int):
        return position
    if position is Start.EARLIEST:
        return recording.start_position
    if isinstance(position, TermStart):
        term_length = recording.term_buffer_length
        base = commit_position - commit_position % term_length
        return max(recording.start_position, base - position.before_count * term_length)
    return commit_position


def _own_row(view: MembersView) -> MemberView | None:
    """Return what a member says of itself; None if it is no member."""
    return next((member for member in view.members if member.member_id == view.answered_by), None)


def _expect_reached(position: Beginning, found: _Round) -> None:
    """Raise where the leader has had time to learn that the position is committed, and has not."""
    if isinstance(position, int) and found.behind_leader_position is not None:
        raise PositionBeyondEndError(position=position, commit_position=found.behind_leader_position)


def _time_out(found: _Round, within_s: float) -> NoReturn:
    said = "; ".join(f"{endpoint}: {reason}" for endpoint, reason in found.reasons.items())
    raise SubscriptionTimeoutError(f"no member served the log within {within_s:g} s: {said}")
