"""Where the log of an export begins: as early as possible, and never before something that Aeron would misread.

What an Aeron member would misread and what cannot be written otherwise may lie before a snapshot: a member that starts
from the snapshot never reads it. So the log then begins at the snapshot, and no member can be made to read what is
before. If it lies after the newest snapshot, there is no directory with which Aeron comes to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ....archive.log.log_file import LogFile
from ...core.log.log_publisher import max_message_length
from ...directories.survey import SourceSnapshotSet, Survey
from .foreign_entries import (
    ForeignEntry,
    find_skips,
    is_own_timer_id,
    own_timer_text,
)
from .request_decisions import RequestDecisions
from .rewriting import LogRewriter, RewriteCounts

Progress = Callable[[int], None]


@dataclass(slots=True, frozen=True)
class ExportPlan:
    """What is written, if there are no problems."""

    survey: Survey
    """Of the directory that is to be written: its log may begin later, with fewer snapshots."""
    source_log: LogFile
    start_position: int
    """Where the log is to begin."""
    skips: dict[int, int]
    counts: RewriteCounts
    """Of the part that is written."""
    cut: ForeignEntry | None
    """Why the log does not begin earlier."""
    problems: list[str]

    def blocks(self) -> Iterator[bytes]:
        """Yield the log that is to be written."""
        for section in _sections(self.survey.snapshots, self.start_position, self.survey.stop_position):
            yield from _rewriter(self, section).blocks(section.start, section.end)


@dataclass(slots=True, frozen=True)
class _Section:
    """A part of the log between two snapshots."""

    start: int
    end: int
    snapshot: SourceSnapshotSet | None
    """The one that it follows."""


def plan_export(survey: Survey, on_progress: Progress = lambda count: None) -> ExportPlan:
    """Look through a log and decide what of it can be written for Aeron.

    Raises:
        CorruptionError: a frame is not valid.
        OSError: the disk refused.
    """
    log = survey.log_file
    skips = find_skips(log, survey.log.start_position, survey.stop_position)
    snapshots = [found for found in survey.snapshots if not _has_skipped_entry(found.log_position, skips)]
    begin = survey.log.start_position
    if begin and snapshots:
        begin = snapshots[0].log_position
    service_count = survey.service_count
    found: list[tuple[_Section, RewriteCounts]] = []
    for section in _sections(snapshots, begin, survey.stop_position):
        rewriter = _make_rewriter(log, skips, section, service_count)
        for block in rewriter.blocks(section.start, section.end):
            on_progress(len(block))
        found.append((section, rewriter.counts))
    foreign = [entry for _, counts in found for entry in counts.foreign]
    foreign += [entry for section, _ in found if (entry := _find_timer(section.snapshot, service_count)) is not None]
    last = max(foreign, key=lambda entry: entry.log_position, default=None)
    start = begin if last is None else next((s.start for s, _ in found if s.start > last.log_position), None)
    problems = [*survey.problems, *_unknown_checksums(survey)]
    if start is None:
        assert last is not None
        problems.append(f"log position={last.log_position}: {last.what}; {ADVICE}")
        start = begin
    kept = [each for each in snapshots if each.log_position >= start]
    part = replace(survey, log=replace(survey.log, start_position=start), snapshots=kept)
    counts = _sum([counts for section, counts in found if section.start >= start])
    return ExportPlan(part, log, start, skips, counts, last, problems)


ADVICE = "start the cluster, stop it with `trimaran shutdown`, which takes a snapshot after this, and export then"


def _rewriter(plan: ExportPlan, section: _Section) -> LogRewriter:
    return _make_rewriter(plan.source_log, plan.skips, section, plan.survey.service_count)


def _make_rewriter(log: LogFile, skips: dict[int, int], section: _Section, service_count: int) -> LogRewriter:
    decisions = RequestDecisions(max_reply_length=max_message_length(log.descriptor.term_buffer_length))
    if section.snapshot is not None:
        decisions.restore(section.snapshot.state.replies)
    return LogRewriter(log, skips, decisions, service_count=service_count)


def _sections(snapshots: list[SourceSnapshotSet], begin: int, end: int) -> Iterator[_Section]:
    places = [*(found for found in snapshots if found.log_position >= begin)]
    if not places or places[0].log_position > begin:
        yield _Section(begin, places[0].log_position if places else end, None)
    for index, found in enumerate(places):
        following = places[index + 1].log_position if index + 1 < len(places) else end
        yield _Section(found.log_position, following, found)


def _unknown_checksums(survey: Survey) -> list[str]:
    """Refuse record checksums that a changed frame could not get."""
    unknown = [each.recording_id for each in survey.recordings if each.checksummed and not each.is_checkable]
    return (
        [f"record checksums of an unknown kind: recording_ids={unknown}; import the directory first"] if unknown else []
    )


def _has_skipped_entry(position: int, skips: dict[int, int]) -> bool:
    """Whether a snapshot is one of a member that was given an entry and learned later that it is skipped."""
    return any(skipped <= position < skip for skipped, skip in skips.items())


def _find_timer(found: SourceSnapshotSet | None, service_count: int) -> ForeignEntry | None:
    if found is None:
        return None
    ids = [timer.correlation_id for timer in found.state.module.timers]
    own = next((each for each in ids if is_own_timer_id(each, service_count)), None)
    if own is None:
        return None
    return ForeignEntry(found.log_position, own_timer_text(own))


def _sum(counts: list[RewriteCounts]) -> RewriteCounts:
    return RewriteCounts(
        sum(each.request_count for each in counts),
        sum(each.omitted_request_count for each in counts),
        sum(each.omitted_entry_count for each in counts),
    )
