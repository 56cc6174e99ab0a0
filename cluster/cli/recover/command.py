"""`trimaran recover`: make a cluster of what is left when too many members are gone.

`plan` reads and changes nothing. `apply` writes new directories; it asks the old members first. Exit status: 0 it can
be done, or is done; 10 the directories do not allow it; 12 refused: a majority of the old cluster may be alive, or a
process uses a directory; 2 wrong usage.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from ....archive.log.group_directories import refuse_groups
from ....archive.tool.output import (
    EXIT_REFUSED,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    fail,
    new_group,
    print_error,
)
from ....service_api import ConfigurationError
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ....service_api.operating_system import effective_user_id
from ...core.vocabulary.configuration import Configuration
from ...operating.salvage.choice import SalvageChoice, choose
from ...operating.salvage.holding import Holding, read_holding
from ...operating.salvage.living import OldMember, ask_old_members, why_not_gone
from ...operating.salvage.writing import (
    append_recovery_record,
    backup_name,
    find_begun,
    finish_in_place,
    write_beside,
    write_in_place,
)
from ...runtime.files.mark_file import DirectoryInUseError, offline_member
from ...runtime.ground.system_clock import SystemClock
from ...settings.member_endpoints import MemberEndpoints, parse_members
from ..interchange.passes import pass_bar
from ..shared.new_cluster import NewClusterIdOption, NewMembersOption, choose_cluster_id
from .report import describe_choice, describe_result, print_recovery

app: Final = new_group("Make a cluster of what is left when too many members are gone.")

DirectoriesArgument = Annotated[
    list[str],
    typer.Argument(metavar="DIR", help="Directories of stopped members, damaged or not: all that are left."),
]
ChooseOption = Annotated[
    str | None,
    typer.Option("--choose", metavar="DIR", help="Take this directory. [default: the most complete]"),
]
OldMembersOption = Annotated[
    str | None,
    typer.Option(
        "--old-members", metavar="MEMBERS", help="Members of the old cluster. [default: as the directories say]"
    ),
]
TargetOption = Annotated[
    Path | None,
    typer.Option("--to", metavar="OUT", help="A new directory, which gets one directory node-ID for each member."),
]
InPlaceOption = Annotated[
    bool,
    typer.Option("--in-place", help="Replace the members' directories; each old one is kept as DIR.before-recovery."),
]
GoneOption = Annotated[
    list[int] | None,
    typer.Option("--gone", metavar="ID", help="A member whose machine is gone for good; it is not asked. Repeatable."),
]

AbandonOption = Annotated[
    list[int] | None,
    typer.Option("--abandon", metavar="ID", help="A member that runs: what only its log has is lost. Repeatable."),
]


@app.command("plan", epilog="Example: trimaran recover plan data/node-0 data/node-1")
def plan(
    directories: DirectoriesArgument,
    named: ChooseOption = None,
    old_members: OldMembersOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what each directory holds, which one a recovery would take, and what may be lost.

    The command only reads. Give every directory that is left: one that is not given cannot be chosen.
    """
    choice = _choose(directories, named, old_members, SystemClock().epoch_time())
    print_recovery(describe_choice(choice), output)
    _fail_on(choice.problems)


@app.command("apply", epilog="Example: trimaran recover apply data/node-0 --members 0=10.0.0.1:9000 --to recovered")
def apply(
    directories: DirectoriesArgument,
    members: NewMembersOption,
    target: TargetOption = None,
    in_place: InPlaceOption = False,
    gone: GoneOption = None,
    abandoned: AbandonOption = None,
    named: ChooseOption = None,
    old_members: OldMembersOption = None,
    cluster_id: NewClusterIdOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Make the directories of a new cluster from the most complete directory that is left.

    Refused while a majority of the old members may be alive, alone or with those whose directories are given, and
    while a member that runs has more log than these. The new cluster has another cluster id, so a member of the
    old one cannot join it. Run the command once, and copy each directory to the machine of its member.
    """
    if in_place == (target is not None):
        raise ConfigurationError("expected either --to OUT or --in-place")
    new_members, paths = parse_members(members), [Path(name).resolve() for name in directories]
    if in_place and (begun := find_begun(paths)):
        _finish(paths, begun, output)
        return
    now_ms = SystemClock().epoch_time()
    choice = _choose(directories, named, old_members, now_ms)
    replaced = _replaced(choice, new_members) if in_place else []
    if target is not None:
        _expect_outside(choice, target)
    new_id = choose_cluster_id(cluster_id)
    if new_id == choice.cluster_id:
        raise ConfigurationError(f"--cluster-id={cluster_id} expected another id than the old cluster's")
    document = describe_choice(choice)
    if any(holding.running for holding in choice.holdings):
        fail("; ".join(choice.problems), EXIT_REFUSED)
    if choice.problems:
        print_recovery(document, output)
        _fail_on(choice.problems)
    asked = _refuse_living(choice, gone or [], abandoned or [])
    with locked(choice.holdings, now_ms):
        record = append_recovery_record(
            choice, new_members, cluster_id=new_id, note=_note(choice, new_id, now_ms), now_ms=now_ms
        )
        total = 2 * len(new_members) * (record.end_position - record.survey.log.start_position)
        with pass_bar("writing and checking", total) as on_progress:
            if target is not None:
                written = write_beside(record, target, new_members, now_ms=now_ms, on_progress=on_progress)
                kept: list[Path] = []
            else:
                kept = write_in_place(record, replaced, now_ms=now_ms, on_progress=on_progress)
                written = replaced
    print_recovery(document | describe_result(record, asked, written, kept), output)


def _choose(directories: list[str], named: str | None, old_members: str | None, now_ms: int) -> SalvageChoice:
    """Read the directories and choose.

    Raises:
        ConfigurationError: a directory has no name, is given twice or holds groups, or the old members cannot be read.
    """
    if "" in directories:
        raise ConfigurationError("a directory has an empty name: is a variable of the shell not set?")
    for name in directories:
        refuse_groups(Path(name))
    known = None
    if old_members is not None:
        known = Configuration.of_settings(member.configured() for member in parse_members(old_members))
    with pass_bar("reading", None) as on_progress:
        holdings = [read_holding(name, now_ms=now_ms, on_progress=on_progress) for name in directories]
    seen: dict[Path, str] = {}
    for holding in holdings:
        if (
            holding.archive is not None
            and (other := seen.setdefault(holding.archive, holding.name)) is not holding.name
        ):
            raise ConfigurationError(f"the same directory is given twice: {other} and {holding.name}")
    return choose(holdings, named=named, members=known)


def _expect_outside(choice: SalvageChoice, target: Path) -> None:
    """Refuse to write into a directory that was given.

    Raises:
        ConfigurationError: the target is one, or is in one.
    """
    for holding in choice.holdings:
        for given in (Path(holding.name).resolve(), holding.archive, holding.cluster):
            if given is not None and target.resolve().is_relative_to(given):
                raise ConfigurationError(f"--to={target} is in {holding.name}, which is only read: name another place")


def _replaced(choice: SalvageChoice, members: Sequence[MemberEndpoints]) -> list[Path]:
    """Find the directory of each new member.

    Raises:
        ConfigurationError: there is none, or there are two.
    """
    found: list[Path] = []
    for member in members:
        own = [Path(each.name).resolve() for each in choice.holdings if each.member_id == member.member_id]
        if len(own) != 1:
            raise ConfigurationError(
                f"--in-place: directories of member_id={member.member_id} found={len(own)} expected=1: name only "
                "members whose directory is given, or use --to"
            )
        found += own
    return found


def _refuse_living(choice: SalvageChoice, gone: list[int], abandoned: list[int]) -> list[OldMember]:
    """Ask the old members; end the command where something that lives would be lost."""
    configuration = choice.configuration
    if configuration is None:
        raise ConfigurationError(
            "no directory says who the old members were: name them with --old-members, so that they can be asked"
        )
    for option, ids in (("--gone", gone), ("--abandon", abandoned)):
        unknown = sorted(set(ids) - {int(member.member_id) for member in configuration.members})
        if unknown:
            raise ConfigurationError(
                f"{option}={unknown[0]} is no member of the old cluster: {configuration.describe()}"
            )
    asked = asyncio.run(ask_old_members(configuration, cluster_id=choice.cluster_id, gone=gone))
    reason = why_not_gone(choice, asked, abandoned=abandoned)
    if reason is not None:
        fail(reason, EXIT_REFUSED)
    return asked


@contextlib.contextmanager
def locked(holdings: Sequence[Holding], now_ms: int) -> Iterator[None]:
    """Keep members from being started on the directories while they are copied."""
    with contextlib.ExitStack() as stack:
        for holding in holdings:
            if holding.cluster is None or holding.member_id is None:
                continue
            try:
                stack.enter_context(offline_member(holding.cluster, now_ms=now_ms))
            except DirectoryInUseError as error:
                fail(f"{holding.name}: a process was started on it just now: {error}", EXIT_REFUSED)
        yield


def _note(choice: SalvageChoice, cluster_id: ClusterId, now_ms: int) -> str:
    """Return what the log says of the recovery: who, when, from what."""
    chosen = choice.chosen
    assert chosen is not None
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {effective_user_id()}"
    when = datetime.fromtimestamp(now_ms // 1000, UTC)
    given = ", ".join(str(Path(holding.name).resolve()) for holding in choice.holdings)
    return (
        f"recovered by {user} on {platform.node()} at {when:%Y-%m-%dT%H:%M:%SZ}: "
        f"old_cluster_id={format_cluster_id(choice.cluster_id)} new_cluster_id={format_cluster_id(cluster_id)} "
        f"leadership_term_id={chosen.last_term_id} log_position={chosen.end_position} "
        f"known_commit_position={choice.known_commit_position} from {chosen.name} of {given}"
    )


def _finish(paths: Sequence[Path], cluster_id: ClusterId, output: OutputFormat) -> None:
    """Do what an interrupted command has left to do."""
    kept = finish_in_place(paths)
    written = [path for path in paths if backup_name(path) in kept]
    document = {
        "cluster_id": format_cluster_id(cluster_id),
        "written": [str(path) for path in written],
        "kept": [str(path) for path in kept],
        "reasons": ["these directories are recovered, as it was begun before; members can be started on them"],
    }
    print_recovery(document, output)


def _fail_on(problems: Sequence[str]) -> None:
    for problem in problems:
        print_error(problem)
    if problems:
        raise typer.Exit(EXIT_UNHEALTHY)
