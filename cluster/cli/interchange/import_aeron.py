"""`trimaran archive import SOURCE... --to DIR...`: take over what an Aeron Cluster left, as directories of members.

The sources are read and never changed; a target is whole under its name or not there. Exit status: 0 imported, or it
could be (`--dry-run`); 10 something in a source is in the way, and nothing was written; 2 wrong usage, a directory that
is none, a target that is there, too little space.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated, Any

import typer

from ....archive.reading.verify import UNKNOWN_CHECKSUM
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
from ....service_api import ClusterError, ConfigurationError
from ....service_api.quantities import format_app_version
from ...directories import copying
from ...directories.agreement import find_disagreement
from ...directories.source import Source, read_source
from ...directories.survey import Survey, survey_source
from ...runtime.ground.system_clock import SystemClock
from .passes import DryRunOption, pass_bar

SourceArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="A member's directory, with its cluster and archive directories in it; or both, as CLUSTER,ARCHIVE.",
    ),
]
TargetOption = Annotated[
    list[Path],
    typer.Option(
        "--to", metavar="DIR", help="A new member's directory; as many as sources, or several for one source."
    ),
]
AsIsOption = Annotated[
    bool,
    typer.Option(
        "--as-is", help="Copy frames byte for byte; without this option each frame gets a checksum, if it has none."
    ),
]
NoSnapshotsOption = Annotated[
    bool, typer.Option("--no-snapshots", help="Omit snapshots: the services replay the whole log.")
]
WithoutSeedOption = Annotated[
    bool,
    typer.Option(
        "--without-seed",
        help="Omit the snapshot that a seeded log begins with. The services then begin without its state.",
    ),
]


def import_directories(
    sources: SourceArgument,
    targets: TargetOption,
    as_is: AsIsOption = False,
    no_snapshots: NoSnapshotsOption = False,
    without_seed: WithoutSeedOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Import the directories of an Aeron Cluster, so that Trimaran nodes can start on copies of them.

    The command first reads and checks everything: catalog, recording log, every frame, every entry of the log, the
    snapshots.
    """
    if len(sources) != len(targets) and len(sources) != 1:
        raise ConfigurationError(
            f"sources={len(sources)} targets={len(targets)}: expected one --to for each source, or one source for all"
        )
    if len({target.absolute() for target in targets}) != len(targets):
        raise ConfigurationError("a target is named twice")
    now_ms = SystemClock().epoch_time()
    try:
        found = [read_source(name, now_ms=now_ms) for name in sources]
    except ConfigurationError:
        raise
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    for target in targets:
        copying.expect_free(target)
    surveys = _survey(found, with_snapshots=not no_snapshots, with_seed=not without_seed)
    problems = [f"{survey.source.name}: {problem}" for survey in surveys for problem in survey.problems]
    if as_is:
        problems += [
            f"{survey.source.name}: {note}; leave --as-is out" for survey in surveys for note in _checksum_notes(survey)
        ]
    if not problems:
        pairs = itertools.combinations(surveys, 2)
        problems = [problem for one, other in pairs if (problem := find_disagreement(one, other)) is not None]
    is_written = not problems and not dry_run
    jobs = [*zip(itertools.cycle(surveys) if len(surveys) == 1 else surveys, targets, strict=False)]
    if is_written:
        _write(jobs, as_is=as_is, now_ms=now_ms)
    documents = [describe_import(survey, target, as_is=as_is, is_written=is_written) for survey, target in jobs]
    _print(documents, output)
    for problem in problems:
        print_error(problem)
    if problems:
        raise typer.Exit(EXIT_UNHEALTHY)


def describe_import(survey: Survey, target: Path, *, as_is: bool, is_written: bool) -> dict[str, Any]:
    """What was found and what is done with it, as one object. Positions and lengths are bytes."""
    log, facts = survey.log, survey.facts
    is_checksummed, written = log.checksummed or not as_is, copying.written_checksum(log)
    settings: dict[str, Any] = {
        "term_length_bytes": log.term_buffer_length,
        "segment_length_bytes": log.segment_file_length,
        "mtu_length_bytes": log.mtu_length,
        "checksums": is_checksummed,
        "checksum_kind": written.label,
        "app_version": format_app_version(survey.app_version),
    }
    if survey.service_count > 1:
        settings["shared_timer_ids"] = True
    return {
        "source": survey.source.name,
        "target": str(target),
        "is_written": is_written,
        "log_recording_id": log.recording_id,
        "start_position": log.start_position,
        "stop_position": survey.stop_position,
        "initial_term_id": log.initial_term_id,
        "frame_count": facts.frame_count,
        "message_count": facts.message_count,
        "checksums_found": log.checksum_label,
        "checksums_written": written.label if is_checksummed else "none",
        "last_leadership_term_id": survey.last_leadership_term_id,
        "term_count": len(survey.terms),
        "leader_member_ids": facts.leader_member_ids,
        "candidate_term_id": copying.candidate_term_id(survey),
        "time_unit": survey.time_unit.name,
        "service_count": survey.service_count,
        "snapshot_positions": [found.log_position for found in survey.snapshots],
        "replay_position": survey.snapshots[-1].log_position if survey.snapshots else log.start_position,
        "session_count": facts.session_count,
        "open_session_count": len(facts.open_sessions),
        "service_message_count": facts.service_message_count,
        "timer_event_count": facts.timer_event_count,
        "length_bytes": copying.length_bytes(survey),
        "settings": settings,
        "notes": [*survey.notes, *_checksum_notes(survey)],
        "problems": survey.problems,
    }


def _checksum_notes(survey: Survey) -> list[str]:
    unknown = [found.recording_id for found in survey.recordings if found.checksummed and not found.is_checkable]
    return [f"{UNKNOWN_CHECKSUM}: recording_ids={unknown}; the copy gets CRC-32"] if unknown else []


def _survey(sources: list[Source], *, with_snapshots: bool, with_seed: bool) -> list[Survey]:
    total = sum(_recorded_bytes(source) for source in sources)
    with pass_bar("reading", total) as on_progress:
        try:
            return [
                survey_source(source, with_snapshots=with_snapshots, with_seed=with_seed, on_progress=on_progress)
                for source in sources
            ]
        except ClusterError as error:
            fail(str(error), EXIT_UNHEALTHY)


def _recorded_bytes(source: Source) -> int:
    """About how much is to be read: what the catalog says of all its recordings."""
    found = [entry.descriptor for entry in source.entries.values() if entry.descriptor is not None]
    return sum((each.stop_position or each.start_position) - each.start_position for each in found)


def _write(jobs: list[tuple[Survey, Path]], *, as_is: bool, now_ms: int) -> None:
    """Write every target. Each gets its name when it is whole; what cannot fit is not begun."""
    for survey in {id(survey): survey for survey, _ in jobs}.values():
        copying.expect_room(survey, [target for other, target in jobs if other is survey])
    total = sum(
        2 * ((descriptor.stop_position or 0) - descriptor.start_position)
        for survey, _ in jobs
        for descriptor in survey.recordings
    )
    with pass_bar("writing and checking", total) as on_progress:
        for survey, target in jobs:
            copying.write_member(survey, target, as_is=as_is, now_ms=now_ms, on_progress=on_progress)


def _print(documents: list[dict[str, Any]], output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        print_rows(documents, output)
        return
    console = make_console(120)
    for document in documents:
        table = new_table("what", "value")
        for name, value in document.items():
            if name not in ("settings", "notes", "problems"):
                table.add_row(name, cell(value))
        console.print(table)
        for note in document["notes"]:
            console.print(f"note: {note}")
        console.print("\nsettings for each member's file, the same for all members:")
        for name, value in document["settings"].items():
            text = str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else value
            console.print(f"  {name} = {text}", markup=False)
        console.print()
