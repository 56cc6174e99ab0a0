"""The common part of the commands that ask members for their errors, log lines, settings and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

import typer

from ....archive.tool.output import EXIT_REFUSED, EXIT_UNREACHABLE, fail, print_error
from ....service_api.errors import ConfigurationError
from ....service_api.member_id import MEMBER_ID_MAX
from ....service_api.quantities import parse_duration_ms, parse_time
from ...documents.diagnosis import Diagnosis, DiagnosisRequest, Level, diagnose_member
from ...documents.query import Outcome, StatusQueryError
from ...runtime.ground.system_clock import SystemClock
from .setting_flags import AskedCluster

SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only since then: 10m, 2h, or a date such as 2026-11-21T04:22:31Z.",
        show_default=False,
    ),
]
LevelOption = Annotated[Level, typer.Option("--level", help="Only of this level and above.")]
OneMemberOption = Annotated[
    int | None,
    typer.Option(
        "--member",
        min=0,
        max=MEMBER_ID_MAX,
        metavar="ID",
        help="Ask only this member. [default: all]",
        show_default=False,
    ),
]
_MS_PER_S: Final = 1_000


class NoDiagnosis(NamedTuple):
    """Why a member gave none."""

    outcome: Outcome
    detail: str


async def diagnose_all(
    cluster: AskedCluster, request: DiagnosisRequest, timeout_s: float
) -> dict[int, Diagnosis | NoDiagnosis]:
    """Ask every member at once; takes at most `timeout_s`. Gives what came of it, by member id."""
    async with asyncio.TaskGroup() as group:
        asked = {
            member_id: group.create_task(_ask(cluster, member_id, request, timeout_s), name=f"diagnose-{member_id}")
            for member_id in cluster.endpoints
        }
    return {member_id: task.result() for member_id, task in asked.items()}


async def _ask(
    cluster: AskedCluster, member_id: int, request: DiagnosisRequest, timeout_s: float
) -> Diagnosis | NoDiagnosis:
    endpoint = cluster.endpoints[member_id]
    try:
        answer = await diagnose_member(
            endpoint, request, timeout_s, cluster_id=cluster.cluster_id, network=cluster.network
        )
    except StatusQueryError as error:
        return NoDiagnosis(error.outcome, error.detail)
    if answer.answered_by != member_id:
        return NoDiagnosis(Outcome.INVALID, f"{endpoint} answers as member {answer.answered_by}")
    return answer


def expect_answers(answers: Mapping[int, Diagnosis | NoDiagnosis]) -> dict[int, Diagnosis]:
    """Return the answers; print a line on standard error for each member that gave none.

    Raises:
        Exit: no member gave one.
    """
    found = {member_id: answer for member_id, answer in answers.items() if isinstance(answer, Diagnosis)}
    missing = {member_id: answer for member_id, answer in answers.items() if isinstance(answer, NoDiagnosis)}
    lines = [f"member {member_id}: {answer.outcome}: {answer.detail}" for member_id, answer in missing.items()]
    if not found:
        is_refused = any(answer.outcome is Outcome.NOT_ALLOWED for answer in missing.values())
        fail("; ".join(lines), EXIT_REFUSED if is_refused else EXIT_UNREACHABLE)
    for line in lines:
        print_error(line)
    return found


def parse_since(text: str | None) -> int:
    """Read `--since`, as milliseconds since the Unix epoch; 0 without one.

    Raises:
        ConfigurationError: it is neither a duration nor a date.
    """
    if text is None:
        return 0
    try:
        return max(0, SystemClock().epoch_time() - parse_duration_ms(text))
    except ValueError:
        pass
    try:
        found = parse_time(text)
    except ValueError:
        found = None
    if not isinstance(found, datetime):
        raise ConfigurationError(
            f"--since={text!r}: expected a duration such as 10m, or a date such as 2026-11-21T04:22"
        )
    return max(0, int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * _MS_PER_S))
