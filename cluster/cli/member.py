"""`trimaran member`: list, add, promote, remove, move and replace members while the cluster runs.

`shared.operation` says how each ends. Each change is one entry of the log, one at a time.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final, NoReturn

import typer

from ...archive.tool.output import EXIT_USAGE, OutputFormat, OutputOption, fail, new_group
from ...service_api.member_id import MEMBER_ID_MAX
from ..core.vocabulary.configuration import MemberKind
from ..core.vocabulary.member_change import MemberChangeKind
from ..documents.inspection import MembersView
from ..documents.operations import MemberChangeRequest, Operation
from ..settings.groups import group_member
from ..settings.member_endpoints import MemberEndpoints, parse_members
from .members import list_members
from .shared.every_group import asked_groups, of_every_group
from .shared.inspection import ask_who_belongs
from .shared.operation import TimeoutOption, carry_out
from .shared.setting_flags import load_asked_cluster, load_groups_from_flags, with_member_flags

app: Final = new_group("Show and change the members of a running cluster.")
app.command("list", epilog="Example: trimaran member list --config trimaran-data/cluster.toml -o jsonl")(list_members)

_LOOK_INTERVAL_S: Final = 0.25
_PROMOTABLE: Final = {kind for kind in MemberKind if kind.is_promotable}
_REPLACED_BY: Final[dict[str, MemberChangeKind]] = {
    MemberKind.WITNESS: MemberChangeKind.ADD_WITNESS,
    MemberKind.STANDBY: MemberChangeKind.ADD_STANDBY,
}
"""How the member is added that takes the place of one of this kind; others are added as learners and promoted."""
_PROGRESS_INTERVAL_S: Final = 2.0

IdOption = Annotated[
    int, typer.Option("--id", min=0, max=MEMBER_ID_MAX, metavar="ID", help="The member's id.", show_default=False)
]
NewIdOption = Annotated[
    int | None,
    typer.Option(
        "--id",
        min=0,
        max=MEMBER_ID_MAX,
        metavar="ID",
        help="The new member's id. [default: the next free]",
        show_default=False,
    ),
]
EndpointOption = Annotated[
    str,
    typer.Option(
        "--endpoint",
        metavar="HOST:BASE_PORT",
        help="Where others dial it: five ports from this one on, or its five endpoints with commas; of group 0.",
        show_default=False,
    ),
]
WitnessOption = Annotated[
    bool,
    typer.Option("--witness", help="Add it as a witness: it votes, and runs no service.", show_default=False),
]
StandbyOption = Annotated[
    bool,
    typer.Option("--standby", help="Add it as a standby: it takes the snapshots, and never votes.", show_default=False),
]
PromoteOption = Annotated[
    bool, typer.Option("--promote", help="Wait until it has the log, then make it a voter.", show_default=False)
]


@app.command("add", epilog="Example: trimaran member add --endpoint 10.0.0.4:9000 --config trimaran-data/cluster.toml")
@with_member_flags
def add_member(
    endpoint: EndpointOption,
    member_id: NewIdOption = None,
    promotes: PromoteOption = False,
    is_witness: WitnessOption = False,
    is_standby: StandbyOption = False,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Add a member as a learner: it gets the log and runs the services, and is counted nowhere.

    A witness votes and counts from the beginning: start its process at once, with its id in `--witnesses`. A standby
    is a learner that takes snapshots, so that the others need not: start its process with `--standby`.

    Start its process with `trimaran node --join` and the same endpoint, before or after. An id is used once: the id of
    a member that was removed is never free again. Make it a voter with `trimaran member promote` when it has the log.
    """
    if is_witness and promotes:
        fail("--witness and --promote: a witness is added as what it is, and never promoted", EXIT_USAGE)
    if is_standby and (is_witness or promotes):
        fail("--standby with --witness or --promote: a standby runs the services and does not vote", EXIT_USAGE)
    _parse_endpoint(endpoint, settings)
    kind = MemberChangeKind.ADD_WITNESS if is_witness else MemberChangeKind.ADD
    kind = MemberChangeKind.ADD_STANDBY if is_standby else kind
    new_id = _next_id(settings) if member_id is None else member_id
    _add(new_id=new_id, kind=kind, endpoint=endpoint, promotes=promotes, timeout=timeout, output=output, **settings)


@of_every_group
def _add(
    *,
    new_id: int,
    kind: MemberChangeKind,
    endpoint: str,
    promotes: bool,
    timeout: float,
    output: OutputFormat,
    **settings: Any,
) -> None:
    _change(kind, new_id, timeout, output, settings, endpoints=_parse_endpoint(endpoint, settings))
    if promotes:
        _promote_when_ready(new_id, timeout, output, settings)


@app.command("promote", epilog="Example: trimaran member promote --id 3 --config trimaran-data/cluster.toml")
@with_member_flags
@of_every_group
def promote_member(
    member_id: IdOption,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Make a learner or a standby a voter, once it has the log; waits for that until the timeout."""
    _promote_when_ready(member_id, timeout, output, settings)


@app.command("remove", epilog="Example: trimaran member remove --id 0 --config trimaran-data/cluster.toml")
@with_member_flags
@of_every_group
def remove_member(
    member_id: IdOption,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Remove a member: it is told, and stops. A leader that is removed leads until the others know.

    Refused for the last voter, and where those that are left could commit nothing because some of them are down.
    """
    _change(MemberChangeKind.REMOVE, member_id, timeout, output, settings)


@app.command(
    "move", epilog="Example: trimaran member move --id 2 --endpoint 10.0.0.9:9000 --config trimaran-data/cluster.toml"
)
@with_member_flags
@of_every_group
def move_member(
    member_id: IdOption,
    endpoint: EndpointOption,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Have the others dial a member elsewhere; it keeps its id and its directory.

    Stop it, move its directory where that changes, run this command, and start it with the new endpoint in its
    settings.
    """
    endpoints = _parse_endpoint(endpoint, settings)
    _change(MemberChangeKind.MOVE, member_id, timeout, output, settings, endpoints=endpoints)


@app.command(
    "replace",
    epilog="Example: trimaran member replace --id 2 --endpoint 10.0.0.9:9000 --config trimaran-data/cluster.toml",
)
@with_member_flags
def replace_member(
    member_id: IdOption,
    endpoint: EndpointOption,
    timeout: TimeoutOption = 600.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Replace a member, which may be gone, by a new one with the next free id.

    Three changes: the new one is added as a learner, promoted when it has the log, and the old one removed. Start the
    new process with `trimaran node --join`, the id that this command prints once it is added, and the same endpoint. A
    witness is replaced by a witness, a standby by a standby.
    """
    _parse_endpoint(endpoint, settings)
    new_id = _next_id(settings)
    _replace(new_id=new_id, old_id=member_id, endpoint=endpoint, timeout=timeout, output=output, **settings)


@of_every_group
def _replace(*, new_id: int, old_id: int, endpoint: str, timeout: float, output: OutputFormat, **settings: Any) -> None:
    view = _ask(settings)
    replaced = next((one for one in view.members if one.member_id == old_id), None)
    if replaced is None:
        _fail_for_stranger(old_id, view)
    kind = _REPLACED_BY.get(replaced.kind, MemberChangeKind.ADD)
    _change(kind, new_id, timeout, output, settings, endpoints=_parse_endpoint(endpoint, settings))
    if output is OutputFormat.TABLE:  # not before: the id of an addition that is refused may become another member's
        typer.echo(f"member {new_id} at {endpoint} replaces member {old_id}")
    if kind is MemberChangeKind.ADD:
        _promote_when_ready(new_id, timeout, output, settings)
    _change(MemberChangeKind.REMOVE, old_id, timeout, output, settings)


def _fail_for_stranger(member_id: int, view: MembersView) -> NoReturn:
    known = ", ".join(str(one.member_id) for one in view.members)
    fail(f"member_id={member_id} is no member: the members are {known}", EXIT_USAGE)


def _parse_endpoint(text: str, settings: dict[str, Any]) -> tuple[str, ...]:
    """Return the five endpoints of a member in the group that the settings name; `text` has those of group 0.

    Raises:
        ConfigurationError: the user's: what cannot be read, or a port would be too high.
    """
    [member] = parse_members(f"0,{text}") if "," in text else [MemberEndpoints.from_base(0, text)]
    return group_member(member, load_groups_from_flags(settings)[1] or 0).endpoints


def _change(
    kind: MemberChangeKind,
    member_id: int,
    timeout_s: float,
    output: OutputFormat,
    settings: dict[str, Any],
    *,
    endpoints: tuple[str, ...] = (),
) -> None:
    change = MemberChangeRequest(kind=kind, member_id=member_id, endpoints=endpoints)
    carry_out(Operation.CHANGE_MEMBERS, timeout_s, output, settings, change=change)


def _ask(settings: dict[str, Any]) -> MembersView:
    """Ask one group who its members are."""
    return asyncio.run(ask_who_belongs(load_asked_cluster(settings)))


def _next_id(settings: dict[str, Any]) -> int:
    """Return the id that is free in every group that is asked."""
    views = [_ask(settings | {"group": str(each.index)}) for each in asked_groups(settings)]
    return max(view.high_member_id for view in views) + 1


def _promote_when_ready(member_id: int, timeout_s: float, output: OutputFormat, settings: dict[str, Any]) -> None:
    """Wait until a learner has the log, showing how far it is, and make it a voter."""
    left_s = asyncio.run(_wait_until_ready(member_id, timeout_s, output, settings))
    _change(MemberChangeKind.PROMOTE, member_id, max(1.0, left_s), output, settings)


async def _wait_until_ready(member_id: int, timeout_s: float, output: OutputFormat, settings: dict[str, Any]) -> float:
    """Return when a learner has the log, or the timeout is over; gives what is left of it."""
    loop = asyncio.get_running_loop()
    cluster = load_asked_cluster(settings)
    deadline_s, told_s = loop.time() + timeout_s, loop.time()
    while True:
        view = await ask_who_belongs(cluster)
        member = next((one for one in view.members if one.member_id == member_id), None)
        if member is None:
            _fail_for_stranger(member_id, view)
        if member.has_log or member.kind not in _PROMOTABLE or loop.time() >= deadline_s:
            return deadline_s - loop.time()
        if loop.time() - told_s >= _PROGRESS_INTERVAL_S and output is OutputFormat.TABLE:
            told_s = loop.time()
            where = "not there yet" if member.append_position is None else f"at {member.append_position:,}"
            typer.echo(f"member {member_id} is {where}, the leader has committed {view.commit_position:,}", err=True)
        await asyncio.sleep(_LOOK_INTERVAL_S)
