"""`trimaran archive export-aeron DIR OUT`: write the directory of a member so that an Aeron member can go on with it.

DIR is read and never changed; OUT is whole under its name or not there. Exit status: 0 written, or it could be
(`--dry-run`); 10 Aeron would come to another state, or DIR is damaged, and nothing was written; 2 wrong usage, a
directory that is none, a target that is there, too little space.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ....archive.tool.output import (
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    cell,
    fail,
    make_console,
    new_table,
    print_error,
    print_rows,
)
from ....service_api import ClusterError
from ....service_api.quantities import format_app_version
from ...directories import copying
from ...directories.source import read_source
from ...directories.survey import survey_source
from ...operating.export_aeron.plan import ExportPlan, plan_export
from ...runtime.ground.system_clock import SystemClock
from .passes import DryRunOption, pass_bar

DirectoryArgument = Annotated[str, typer.Argument(metavar="DIR", help="The directory of a member that is stopped.")]
TargetArgument = Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, for an Aeron member.")]

_NOTES = (
    "requests are session messages with the payload alone: the Aeron service must do in onSessionMessage what "
    "on_request does here, and no client gets a reply",
    "replies that clients have not acknowledged stay in the snapshots: Aeron passes over them, and its own next "
    "snapshot has none",
)


def export_directory(
    directory: DirectoryArgument,
    target: TargetArgument,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write the directory of a member so that an Aeron member can go on with it.

    The command first reads and checks everything. Positions, terms and snapshots stay as they are.
    """
    now_ms = SystemClock().epoch_time()
    source = read_source(directory, now_ms=now_ms)
    copying.expect_free(target)
    try:
        with pass_bar("reading", None) as on_progress:
            survey = survey_source(source, on_progress=on_progress)
        log_length = survey.stop_position - survey.log.start_position
        with pass_bar("looking for requests", log_length) as on_progress:
            plan = plan_export(survey, on_progress)
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    is_written = not plan.problems and not dry_run
    if is_written:
        copying.expect_room(plan.survey, [target])
        # What is written is read back.
        total = 2 * sum((each.stop_position or 0) - each.start_position for each in plan.survey.recordings)
        with pass_bar("writing and checking", total) as on_progress:
            copying.write_member(
                plan.survey, target, as_is=True, now_ms=now_ms, log_blocks=plan.blocks(), on_progress=on_progress
            )
    _print(describe_export(plan, target, is_written=is_written), output)
    for problem in plan.problems:
        print_error(problem)
    if plan.problems:
        raise typer.Exit(EXIT_UNHEALTHY)


def describe_export(plan: ExportPlan, target: Path, *, is_written: bool) -> dict[str, Any]:
    """What was found and what is done with it, as one object. Positions and lengths are bytes."""
    survey, counts = plan.survey, plan.counts
    log = survey.log
    notes = [*_NOTES] if counts.request_count else []
    if plan.cut is not None and not plan.problems:
        notes.append(
            f"the log begins at the snapshot of log_position={plan.start_position}: before it, at position="
            f"{plan.cut.log_position}, is what Aeron would misread: {plan.cut.what}"
        )
    if plan.cut is None and plan.start_position > 0 and not plan.problems:
        notes.append(
            f"the log begins at the snapshot of log_position={plan.start_position}: what was before it is not on this "
            "disk"
        )
    if survey.service_count > 1:
        notes.append("the members must have run with shared_timer_ids = true: Aeron's services share the ids of timers")
    if survey.facts.is_suspended:
        notes.append("the log ends suspended: `ClusterTool resume` lets it go on")
    return {
        "source": survey.source.name,
        "target": str(target),
        "is_written": is_written,
        "log_recording_id": log.recording_id,
        "start_position": log.start_position,
        "stop_position": survey.stop_position,
        "snapshot_positions": [found.log_position for found in survey.snapshots],
        "replay_position": survey.snapshots[-1].log_position if survey.snapshots else log.start_position,
        "requests_as_messages": counts.request_count,
        "requests_omitted": counts.omitted_request_count,
        "skipped_entries_omitted": counts.omitted_entry_count,
        "length_bytes": copying.length_bytes(survey),
        "settings": {
            "service count": survey.service_count,
            "term length": log.term_buffer_length,
            "mtu": log.mtu_length,
            "segment file length": log.segment_file_length,
            "record checksum": log.checksum_label.capitalize() if log.checksummed else "none",
            "cluster clock": survey.time_unit.name,
            "app version": format_app_version(survey.facts.app_version),
        },
        "notes": notes,
        "problems": plan.problems,
    }


def _print(document: dict[str, Any], output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        print_rows([document], output)
        return
    console = make_console(120)
    table = new_table("what", "value")
    for name, value in document.items():
        if name not in ("settings", "notes", "problems"):
            table.add_row(name, cell(value))
    console.print(table)
    for note in document["notes"]:
        console.print(f"note: {note}")
    console.print("\nwhat each Aeron member must be started with:")
    for name, value in document["settings"].items():
        console.print(f"  {name} = {value}", markup=False)
