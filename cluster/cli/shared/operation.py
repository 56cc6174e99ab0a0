"""The common part of commands that operate a cluster: `trimaran suspend`, `snapshot take`, `sessions close` and others.

The leader is found by asking every member, and does what is asked; each step is printed as it is told. While the leader
changes, the command follows: what a member has refused, or could not be asked, is asked of the one that leads then.
Where the leader does not know the caller, a member of this machine does, and passes the order on. Then every member is
looked at until it has done its part; after a stop of one member, that one alone. A member that cannot be reached is
named and not waited for.

Exit status: 0 done by the leader and by every member that can be reached; 1 it failed, or it is not known whether it is
done, or a member did not do its part in time; 2 wrong usage; 3 no member can be reached; 11 no leader; 12 refused, by
the cluster or because the caller may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple, NoReturn

import typer
from pydantic import BaseModel, ConfigDict

from ....archive.tool.output import (
    EXIT_FAILED,
    EXIT_NO_LEADER,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    SHARED_PANEL,
    OutputFormat,
    ended_by_reader,
    fail,
    print_line,
    print_object,
)
from ....service_api import ClusterError
from ....service_api.documents.member_status import MemberStatus, find_leader, is_in_term, term_order
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ...core.vocabulary.control_toggle import ActionStep
from ...documents.operations import MemberChangeRequest, Operation, OperationProgress, SessionsRequest, run_operation
from ...documents.query import Outcome, StatusQueryError, query_status
from .cluster_report import MemberReport, ask_members, find_members_elsewhere
from .setting_flags import AskedCluster, load_asked_cluster

_STATUS_TIMEOUT_S: Final = 2.0
_LOOK_INTERVAL_S: Final = 0.1
_STOPPING: Final = frozenset({Operation.SHUTDOWN, Operation.ABORT, Operation.STOP_MEMBER})
_RESTARTING: Final = frozenset({Operation.SKIP_ENTRY})
"""Members answer nobody for a moment while they do these."""
_GONE: Final = frozenset({Outcome.REFUSED, Outcome.UNREACHABLE})
_ELECTION_S: Final = 5.0
"""How long a command waits for a leader while there is none."""

TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.01,
        metavar="SECONDS",
        help="The longest time for the whole command.",
        rich_help_panel=SHARED_PANEL,
    ),
]


class OperationPart(StrEnum):
    """What became of one member's part."""

    DONE = "done"
    UNREACHABLE = "unreachable"
    """It could not be asked; it does its part when it comes back and delivers the log."""
    LATE = "late"
    """It answers, and had not done its part in time."""


class MemberPart(BaseModel):
    """One member's part in an operation: a line of `-o jsonl`, as each step is."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = 1
    operation: Operation
    member_id: int
    part: OperationPart
    detail: str


class OperationReport(BaseModel):
    """What `-o json` prints: one object."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = 1
    operation: Operation
    outcome: ActionStep
    """The last step: done, refused, failed or unknown."""
    leader_member_id: int
    """The member that was asked: the leader, or the one that is to stop."""
    log_position: int | None
    detail: str
    steps: list[OperationProgress]
    members: list[MemberPart]


def carry_out(
    operation: Operation,
    timeout_s: float,
    output: OutputFormat,
    settings: dict[str, Any],
    *,
    log_position: int | None = None,
    change: MemberChangeRequest | None = None,
    target_member_id: int | None = None,
    source_member_id: int | None = None,
    asked_member_id: int | None = None,
    feature_level: int | None = None,
    log_level: str | None = None,
    sessions: SessionsRequest | None = None,
) -> None:
    """Have a cluster do something, print what is told of it, end with the status that says how it went.

    The leader is asked, or `asked_member_id`. A hand-over to the member that leads, or from another one than
    `source_member_id`, is done at once.

    Raises:
        Exit: it was not done, or not by all.
    """
    cluster = load_asked_cluster(settings)
    for member_id in (target_member_id, source_member_id, asked_member_id):
        cluster.only(member_id)
    wanted = _Wanted(
        operation,
        log_position,
        change,
        target_member_id,
        source_member_id,
        asked_member_id,
        feature_level,
        log_level,
        sessions,
    )
    with ended_by_reader():
        asyncio.run(_carry_out(wanted, cluster, timeout_s, output))


class _Wanted(NamedTuple):
    """What a command is to have done."""

    operation: Operation
    log_position: int | None
    change: MemberChangeRequest | None
    target_member_id: int | None
    source_member_id: int | None
    """For a hand-over: the only member that is to hand over, if it leads; None: whichever leads."""
    asked_member_id: int | None
    """The member to ask; None: the leader."""
    feature_level: int | None
    log_level: str | None
    sessions: SessionsRequest | None

    def why_done(self, leader: _Leader) -> OperationProgress | None:
        """Return the step that says that a hand-over is not needed, for the right member leads; None if it is."""
        leader_id, source_id = leader.member_id, self.source_member_id
        if self.operation is not Operation.TRANSFER:
            return None
        if leader_id != self.target_member_id and source_id in (None, leader_id):
            return None
        detail = f"member {leader_id} leads already leadership_term_id={leader.leadership_term_id}"
        return OperationProgress(
            operation=self.operation,
            step=ActionStep.DONE,
            member_id=leader_id,
            log_position=None,
            detail=detail,
            is_final=True,
        )


async def _carry_out(wanted: _Wanted, cluster: AskedCluster, timeout_s: float, output: OutputFormat) -> None:
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    operation, asked_id = wanted.operation, wanted.asked_member_id
    asking = _Asking(wanted, cluster, deadline_s, output)
    if asked_id is None:
        asked_id, answer = await asking.ask_leader()
    else:
        answer = await asking.ask(asked_id)
    if answer.failure is not None:
        fail(answer.failure, answer.exit_status)
    steps = answer.steps
    last = steps[-1]
    parts: list[MemberPart] = []
    watched = cluster.only(asked_id if operation is Operation.STOP_MEMBER else None)
    is_of_all = operation is not Operation.TRANSFER  # which the new leader has done
    if is_of_all and last.log_position is not None and (last.step is ActionStep.DONE or operation in _STOPPING):
        async with aclosing(_watch_members(operation, watched, last.log_position, deadline_s)) as done:
            async for part in done:
                parts.append(part)
                _print_part(part, output)
    if output is OutputFormat.JSON:
        report = OperationReport(
            operation=operation,
            outcome=last.step,
            leader_member_id=asked_id,
            log_position=last.log_position,
            detail=last.detail,
            steps=steps,
            members=parts,
        )
        print_object(report.model_dump(mode="json"), output, lambda: "")
    if last.step is ActionStep.REFUSED:
        fail(f"{operation} refused: {last.detail}", EXIT_REFUSED)
    if last.step is not ActionStep.DONE:
        fail(f"{operation} {last.step}: {last.detail}", EXIT_FAILED)
    late = [part.member_id for part in parts if part.part is OperationPart.LATE]
    if late:
        fail(f"{operation}: members {late} did not finish within {timeout_s:g} s", EXIT_FAILED)


class _Answer(NamedTuple):
    """The result of asking one member."""

    steps: list[OperationProgress]
    failure: str | None = None
    """Why there is no last step."""
    exit_status: int = 0
    outcome: Outcome = Outcome.ANSWERED
    is_begun: bool = True
    """True where it may have been begun without a last step."""

    @property
    def is_undone(self) -> bool:
        """Return whether surely nothing was done, so that another member may be asked."""
        if self.failure is not None:
            return not self.is_begun
        return self.steps[-1].step is ActionStep.REFUSED


class _Leader(NamedTuple):
    """The leader as the members tell it."""

    member_id: int
    leadership_term_id: int | None
    asked: MemberStatus
    """The member to ask: the leader, or one that passes the order on."""


class _Asking:
    """Asks members of one cluster for one operation."""

    def __init__(self, wanted: _Wanted, cluster: AskedCluster, deadline_s: float, output: OutputFormat) -> None:
        self._wanted, self._cluster, self._output = wanted, cluster, output
        self._deadline_s = deadline_s

    def __repr__(self) -> str:
        return f"<_Asking {self._wanted.operation} left_s={self._left_s:.1f}>"

    @property
    def _left_s(self) -> float:
        return max(0.05, self._deadline_s - asyncio.get_running_loop().time())

    async def ask_leader(self) -> tuple[int, _Answer]:
        """Have the leader do it; where another member leads by then, that one. Returns who led, and the answer."""
        change = self._wanted.change
        undone: dict[tuple[int, int | None], _Answer] = {}
        while True:
            newest = next(reversed(undone.values()), None)
            leader = await self._find_leader(newest)
            done = self._wanted.why_done(leader)
            if done is not None:
                _print_step(done, self._output)
                return leader.member_id, _Answer([done])
            key = leader.member_id, leader.leadership_term_id
            if key in undone:
                return leader.member_id, undone[key]
            if change is not None and change.endpoints:
                await _expect_to_belong(
                    change, leader.asked, min(self._left_s, _STATUS_TIMEOUT_S), self._cluster.network
                )
            answer = await self.ask(leader.asked.member_id)
            if answer.outcome is Outcome.NOT_ALLOWED:
                answer = await self._ask_here(leader.member_id) or answer
            if not answer.is_undone:
                return leader.member_id, answer
            undone[key] = answer

    async def ask(self, asked_id: int) -> _Answer:
        """Have one member do it, and print each step as it is told."""
        wanted, steps = self._wanted, list[OperationProgress]()
        asking = run_operation(
            self._cluster.endpoints[asked_id],
            wanted.operation,
            self._left_s,
            log_position=wanted.log_position,
            change=wanted.change,
            target_member_id=wanted.target_member_id,
            feature_level=wanted.feature_level,
            log_level=wanted.log_level,
            sessions=wanted.sessions,
            cluster_id=self._cluster.cluster_id,
            network=self._cluster.network,
        )
        try:
            async with aclosing(asking) as progress:
                async for step in progress:
                    steps.append(step)
                    _print_step(step, self._output)
        except StatusQueryError as error:
            if error.outcome is Outcome.NOT_ALLOWED:
                who = f"member {asked_id}" if wanted.asked_member_id is not None else f"member {asked_id}, the leader"
                told = f"{wanted.operation} refused by {who}: {error.detail}"
                return _Answer(steps, told, EXIT_REFUSED, error.outcome, is_begun=False)
            status = EXIT_FAILED if wanted.asked_member_id is None else EXIT_UNREACHABLE
            return _Answer(steps, str(error), status, error.outcome, is_begun=False)
        except ClusterError as error:
            return _Answer(steps, str(error), EXIT_FAILED, Outcome.PARTIAL)
        return _Answer(steps)

    async def _ask_here(self, leader_id: int) -> _Answer | None:
        """Have a member on this machine pass the order on; None where there is none, or it does not pass it on."""
        for member_id, endpoint in self._cluster.endpoints.items():
            if member_id != leader_id and self._cluster.network.reaches_locally(Endpoint.parse(endpoint)):
                answer = await self.ask(member_id)
                if not answer.is_undone:
                    return answer
        return None

    async def _find_leader(self, newest: _Answer | None) -> _Leader:
        """Ask every member who leads, for a while where the leader just changes.

        Without a leader the command ends, with what was answered last, or because there is none.
        """
        loop = asyncio.get_running_loop()
        until_s = min(self._deadline_s, loop.time() + _ELECTION_S)
        endpoints, cluster_id, network = self._cluster
        while True:
            limit_s = min(self._left_s, _STATUS_TIMEOUT_S)
            reports = await ask_members(endpoints, limit_s, cluster_id=cluster_id, network=network)
            other = next((report for report in reports if report.outcome is Outcome.OTHER_CLUSTER), None)
            if other is not None:
                fail(f"refused: {other.detail}", EXIT_REFUSED)
            statuses = [report.status for report in reports if report.status is not None]
            if not statuses:
                fail("no member can be reached: " + "; ".join(_why_not(each) for each in reports), EXIT_UNREACHABLE)
            _expect_one_cluster(statuses)
            is_unknown = any(report.outcome is Outcome.NOT_ALLOWED for report in reports)
            leader = _judge_leader(statuses, is_unknown=is_unknown)
            if leader is not None:
                return leader
            if loop.time() >= until_s or not any(_awaits_leader(status) for status in statuses):
                if newest is not None:
                    _end_undone(self._wanted.operation, newest)
                fail(
                    "no leader among the members that answer; run `trimaran status` to see each member", EXIT_NO_LEADER
                )
            await asyncio.sleep(_LOOK_INTERVAL_S)


def _judge_leader(statuses: Sequence[MemberStatus], *, is_unknown: bool) -> _Leader | None:
    """Find who leads; where members do not tell the caller, by what those tell that follow."""
    leader = find_leader(statuses)
    if leader is not None:
        return _Leader(leader.member_id, leader.leadership_term_id, leader)
    following = [status for status in statuses if is_in_term(status) and status.leader_member_id is not None]
    if not is_unknown or not following:
        return None
    asked = max(following, key=term_order)
    assert asked.leader_member_id is not None
    return _Leader(asked.leader_member_id, asked.leadership_term_id, asked)


def _awaits_leader(status: MemberStatus) -> bool:
    """Return whether a member is in an election, or follows a leader that is gone."""
    return not is_in_term(status) or status.leader_member_id is not None


def _end_undone(operation: Operation, answer: _Answer) -> NoReturn:
    if answer.failure is not None:
        fail(answer.failure, answer.exit_status)
    fail(f"{operation} refused: {answer.steps[-1].detail}", EXIT_REFUSED)


def _expect_one_cluster(statuses: Sequence[MemberStatus]) -> None:
    """End where members of two clusters answer: which leader has the higher term says nothing of which is meant."""
    members: dict[str, list[int]] = {}
    for status in statuses:
        if status.cluster_id is not None:
            members.setdefault(status.cluster_id, []).append(status.member_id)
    if len(members) > 1:
        found = "; ".join(f"cluster {cluster_id}: members {ids}" for cluster_id, ids in sorted(members.items()))
        fail(f"refused: members of several clusters answer: {found}; correct --members to those of one", EXIT_REFUSED)


async def _expect_to_belong(
    change: MemberChangeRequest, leader: MemberStatus, timeout_s: float, network: NetworkStack
) -> None:
    """End where a member of another cluster answers at the endpoints of a change; it may as well not run yet."""
    _, endpoint, *_ = change.endpoints  # ingress, consensus
    try:
        status = await query_status(endpoint, timeout_s, network=network)
    except StatusQueryError:
        return
    if None not in (status.cluster_id, leader.cluster_id) and status.cluster_id != leader.cluster_id:
        said = f"the member at {endpoint} belongs to cluster {status.cluster_id}, the leader to {leader.cluster_id}"
        fail(f"refused: {said}: stop it, and start it with --join on an empty directory", EXIT_REFUSED)


async def _watch_members(
    operation: Operation, cluster: AskedCluster, log_position: int, deadline_s: float
) -> AsyncGenerator[MemberPart, None]:
    """Ask every member again and again until each has done its part, cannot be reached, or time is up."""
    loop = asyncio.get_running_loop()
    open_parts = dict(cluster.endpoints)
    while True:
        left_s = deadline_s - loop.time()
        reports = await ask_members(open_parts, max(0.05, min(left_s, _STATUS_TIMEOUT_S)), network=cluster.network)
        moved = {one: at for one, at in find_members_elsewhere(reports).items() if one in open_parts}
        if moved and left_s > 0:
            open_parts |= moved  # as the cluster itself says, which may know better than the settings of this command
            continue
        for report in reports:
            part = _part_of(operation, report, log_position, is_late=left_s <= 0)
            if part is not None:
                del open_parts[report.member_id]
                yield part
        if not open_parts:
            return
        await asyncio.sleep(_LOOK_INTERVAL_S)


def _part_of(operation: Operation, report: MemberReport, log_position: int, *, is_late: bool) -> MemberPart | None:
    """What one look at a member says; None while it is worth another look."""
    status = report.status
    if status is None:
        if operation in _STOPPING and report.outcome in _GONE:
            return _make_part(operation, report, OperationPart.DONE, "it does not run")
        is_gone = report.outcome in _GONE and operation not in _RESTARTING
        if is_late or is_gone or report.outcome is Outcome.NOT_ALLOWED:
            return _make_part(operation, report, OperationPart.UNREACHABLE, _why_not(report))
        return None
    if operation not in _STOPPING and _has_done(operation, status, log_position):
        return _make_part(operation, report, OperationPart.DONE, f"delivered up to {status.delivered_position}")
    if is_late:
        detail = f"state={status.module_state} delivered_position={status.delivered_position}"
        return _make_part(operation, report, OperationPart.LATE, detail)
    return None


def _make_part(operation: Operation, report: MemberReport, part: OperationPart, detail: str) -> MemberPart:
    return MemberPart(operation=operation, member_id=report.member_id, part=part, detail=detail)


def _has_done(operation: Operation, status: MemberStatus, log_position: int) -> bool:
    if operation in (Operation.SNAPSHOT, Operation.STANDBY_SNAPSHOT):
        return status.snapshot_position is not None and status.snapshot_position >= log_position
    return status.delivered_position >= log_position


def _why_not(report: MemberReport) -> str:
    return f"member {report.member_id}: {report.detail or report.outcome}"


def _print_step(step: OperationProgress, output: OutputFormat) -> None:
    if output is OutputFormat.JSONL:
        print_line(step.model_dump(mode="json"))
    elif output is OutputFormat.TABLE and step.step is not ActionStep.REFUSED:
        where = "" if step.log_position is None else f" log_position={step.log_position}"
        typer.echo(f"{step.operation} {step.step}: member_id={step.member_id}{where} {step.detail}".rstrip())


def _print_part(part: MemberPart, output: OutputFormat) -> None:
    if output is OutputFormat.JSONL:
        print_line(part.model_dump(mode="json"))
    elif output is OutputFormat.TABLE:
        typer.echo(f"{part.operation} {part.part}: member_id={part.member_id} {part.detail}")
