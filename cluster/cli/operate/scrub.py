"""`trimaran scrub`: what each member does to find damage in what it has recorded, and to mend it.

Exit status: 0 nothing is damaged; 10 a place is damaged, or was found in a member that has not answered to the end;
1 a member did not begin; 2 wrong usage; 3 no member can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType

from ....archive.tool.output import (
    ABSENT,
    EXIT_FAILED,
    EXIT_UNHEALTHY,
    EXIT_UNREACHABLE,
    OutputFormat,
    OutputOption,
    fail,
    format_duration,
    format_number,
    new_table,
    print_object,
)
from ....service_api import ClusterError
from ....service_api.documents.member_status import DamagedPlaceStatus, MemberStatus, ScrubStatus
from ...documents.operations import Operation, run_operation
from ..shared.cluster_report import ask_members
from ..shared.every_group import of_every_group
from ..shared.setting_flags import AskedCluster, load_asked_cluster, with_member_flags

_STATUS_TIMEOUT_S: Final = 2.0
_POLL_INTERVAL_S: Final = 0.2

StartOption = Annotated[bool, typer.Option("--start", help="Begin a pass now, on each member that runs none.")]
MemberOption = Annotated[
    int | None, typer.Option("--member", metavar="ID", help="Only this member; without it, every member.")
]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="Wait so long for passes to end, then show them.")
]


class MemberScrub(BaseModel):
    """One member's search for damage."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    member_id: int
    scrub: ScrubStatus | None
    """None: the member did not answer, or is of an older version."""
    damaged_place_count: int
    damaged_places: list[DamagedPlaceStatus]
    detail: str
    """Why there is no answer."""


class ScrubReport(BaseModel):
    """What `-o json` prints: one object."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    members: list[MemberScrub]


@with_member_flags
@of_every_group
def scrub(
    *,
    start: StartOption = False,
    member: MemberOption = None,
    wait: WaitOption = 0.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Show the search for damage on each member: where it is, what it found, what was mended.

    Exit status 0: nothing is damaged; 10: a place is damaged and not mended; 1: a member did not begin; 2: wrong usage;
    3: no member can be reached.
    """
    cluster = load_asked_cluster(settings).only(member)
    report = asyncio.run(_run(cluster, wait_s=wait, starts=start))
    print_object(report.model_dump(mode="json"), output, lambda: _scrub_table(report.members))
    if all(each.scrub is None for each in report.members):
        fail("no member can be reached: " + "; ".join(each.detail for each in report.members), EXIT_UNREACHABLE)
    damaged = [each for each in report.members if each.damaged_place_count]
    if damaged:
        place = damaged[0].damaged_places[0]
        why = "" if place.lost is None else f": no member can mend it: {place.lost}"
        fail(
            f"member {damaged[0].member_id}: {place.file} is damaged at position={place.position}{why}", EXIT_UNHEALTHY
        )


async def _run(cluster: AskedCluster, *, wait_s: float, starts: bool) -> ScrubReport:
    before = {each.member_id: each for each in (await _look(cluster)).members}
    for member_id in cluster.endpoints if starts else ():
        if before[member_id].scrub is not None:
            await _start(cluster, member_id)
    deadline_s = asyncio.get_running_loop().time() + wait_s
    while True:
        report = await _look(cluster)
        is_over = all(_is_over(each, before[each.member_id], starts=starts) for each in report.members)
        if is_over or asyncio.get_running_loop().time() >= deadline_s:
            return report
        await asyncio.sleep(_POLL_INTERVAL_S)


def _is_over(now: MemberScrub, before: MemberScrub, *, starts: bool) -> bool:
    """Whether a member has ended the pass that is waited for, and mended what it can."""
    if now.scrub is None or before.scrub is None:
        return True
    has_run = not starts or now.scrub.pass_count > before.scrub.pass_count
    return has_run and not now.scrub.is_running and all(place.lost is not None for place in now.damaged_places)


async def _start(cluster: AskedCluster, member_id: int) -> None:
    try:
        asking = run_operation(
            cluster.endpoints[member_id],
            Operation.SCRUB,
            _STATUS_TIMEOUT_S,
            cluster_id=cluster.cluster_id,
            network=cluster.network,
        )
        async with aclosing(asking) as steps:
            async for step in steps:
                if step.is_final and step.step != "done":
                    fail(f"member {member_id}: scrub {step.step}: {step.detail}", EXIT_FAILED)
    except ClusterError as error:
        fail(f"member {member_id} did not begin: {error}", EXIT_FAILED)


async def _look(cluster: AskedCluster) -> ScrubReport:
    endpoints, cluster_id, network = cluster
    reports = await ask_members(endpoints, _STATUS_TIMEOUT_S, cluster_id=cluster_id, network=network)
    members = [_describe(report.member_id, report.status, str(report.detail or report.outcome)) for report in reports]
    return ScrubReport(members=members)


def _describe(member_id: int, status: MemberStatus | None, detail: str) -> MemberScrub:
    if status is None:
        return MemberScrub(member_id=member_id, scrub=None, damaged_place_count=0, damaged_places=[], detail=detail)
    return MemberScrub(
        member_id=member_id,
        scrub=status.scrub,
        damaged_place_count=status.damaged_place_count,
        damaged_places=status.damaged_places,
        detail="",
    )


def _scrub_table(members: Sequence[MemberScrub]) -> RenderableType:
    table = new_table(
        *("member", "scrub", "recording", "position", "read", "passes", "last pass", "found", "mended", "damaged"),
        numbers=["member", "recording", "position", "read", "passes", "found", "mended", "damaged"],
    )
    for each in members:
        found = each.scrub
        if found is None:
            table.add_row(str(each.member_id), f"no answer: {each.detail}", *[ABSENT] * 8)
            continue
        table.add_row(
            str(each.member_id),
            "running" if found.is_running else "waits",
            ABSENT if found.recording_id is None else str(found.recording_id),
            format_number(found.position if found.is_running else None),
            format_number(found.read_bytes),
            format_number(found.pass_count),
            ABSENT if found.last_pass_s is None else f"{format_duration(found.last_pass_s)} ago",
            format_number(found.found_count),
            format_number(found.mended_count),
            format_number(each.damaged_place_count),
        )
    return table
