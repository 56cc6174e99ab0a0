"""`trimaran reset-candidate-term DIR`: makes a stopped member usable again whose term on disk is absurd.

A member never takes part in a term that is not above the one on its disk. If that one is near the end of all numbers,
it can neither vote nor stand, and if all members have it, no leader can be elected. The only way out is to lower it,
which is otherwise forbidden: a member that forgets a vote may vote twice in one term.

It is safe here because the new value is still above every term that a member has honestly voted in: terms rise by one
with each ballot, so an honest vote is no further above the last term of the log than there were ballots in a row that
nobody won. The command leaves room for `RESET_MARGIN` of them, more than an hour of nothing else. And it is done while
every member is stopped, so no ballot is open. It refuses where the term is not absurd.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ...archive.disk.file_system import OsFileSystem
from ...service_api import ConfigurationError
from ...service_api.types import NULL_VALUE
from ..core.vocabulary.terms import FAILED_TERM_LIMIT, is_usable
from ..runtime.files.mark_file import offline_member
from ..runtime.files.node_state_file import NODE_STATE_FILE_NAME, parse_node_state, replace_candidate_term
from ..runtime.files.recording_log_file import read_recording_log
from ..runtime.ground.system_clock import SystemClock
from .shared.arguments import expect_recording_log

RESET_MARGIN: Final = 1_000
"""How far above the last term of the log the new term is, if the operator names none."""


def reset_candidate_term(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a stopped member.")],
    to: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="TERM", min=0, show_default=False, help="The new term. [default: the log's last + 1000]"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask whether every member is stopped.")] = False,
) -> None:
    """Lower an absurd candidate term of a stopped member, so that its cluster can elect a leader again.

    Stop every member of the cluster first. Then run this on each member whose `trimaran recovery-plan` says so. The
    old file is kept beside the new one.
    """
    recording_log_path = expect_recording_log(directory)
    cluster_directory, disk = recording_log_path.parent, OsFileSystem()
    path = cluster_directory / NODE_STATE_FILE_NAME
    if not path.is_file():
        raise ConfigurationError(f"no node state: file missing={path}")
    with offline_member(cluster_directory, now_ms=SystemClock().epoch_time()):
        old, _ = parse_node_state(path.read_bytes())
        last = read_recording_log(recording_log_path).last_term()
        last_term_id = NULL_VALUE if last is None else last.leadership_term_id
        if is_usable(last_term_id, old.candidate_term_id):
            raise ConfigurationError(
                f"the term is usable, and lowering it is not safe: candidate_term_id={old.candidate_term_id} "
                f"last_leadership_term_id={last_term_id}"
            )
        new_term_id = last_term_id + RESET_MARGIN if to is None else to
        if not last_term_id < new_term_id <= last_term_id + FAILED_TERM_LIMIT:
            raise ConfigurationError(
                f"--to={new_term_id} expected {last_term_id + 1} to {last_term_id + FAILED_TERM_LIMIT}: above the last "
                f"term of every member's log, and near it"
            )
        if not yes:
            typer.confirm("Is every member of this cluster stopped?", abort=True)
        kept = replace_candidate_term(
            cluster_directory, new_term_id, old.log_position, SystemClock().epoch_time(), file_system=disk
        )
    typer.echo(f"candidate term reset: from={old.candidate_term_id} to={new_term_id} old_file={kept}")
