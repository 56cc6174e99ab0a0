"""The report of a directory with groups: an overview with a row for each, and the logs of those that are chosen.

Every group is read for the overview, so that a group that is missing or damaged is not passed over; its sections are
those of the report of one log, with the group in their titles. Positions of different groups are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from ...service_api.errors import ConfigurationError
from ..log.member_groups import common_group_count, group_path
from ..spark import analyses
from ..spark.analyses.sql import sql
from . import captions, figures, sections, words
from .building import (
    LogReport,
    LogWork,
    ReportRequest,
    check_sources,
    choose_interval,
    count_damage,
    find_damage,
    open_report_database,
    prepare_log,
    say_what_was_read,
)
from .engine.frames import SqlDatabase
from .page import Fact, Page, PageTable, Section
from .snippets import Snippets
from .theme import Frame

SHOWN_GROUP_LIMIT: Final = 4
"""Without a choice, the logs of so many groups are shown; of a cluster with more, none."""


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupsRequest:
    """What a report on groups is to be made of."""

    whole: ReportRequest
    """Of the directories of members with groups."""
    group_count: int
    shown: Sequence[int]
    """The groups whose logs are shown below the overview, in order."""

    def of_group(self, group_index: int) -> ReportRequest:
        """Make the request for the report of one group's log."""
        directories = self.whole.directories.items()
        return replace(self.whole, directories={name: group_path(path, group_index) for name, path in directories})


@dataclass(slots=True, frozen=True)
class _GroupLog:
    """What was read of a group."""

    work: LogWork
    comparison: Frame | None
    damage: Sequence[tuple[str, int | None, int | None, str]]
    leader: str
    traffic: Frame


def find_groups(request: ReportRequest, chosen: Sequence[int] = ()) -> GroupsRequest | None:
    """Look whether the directories of a request have groups; None: they are of one log.

    `chosen` are the groups whose logs are to be shown; without any, all of a cluster with few.

    Raises:
        ConfigurationError: groups are chosen, and there are none, or no such ones; or options are about one log.
    """
    paths = [*request.directories.values()]
    count = common_group_count(paths)
    if count is None:
        if chosen:
            raise ConfigurationError(f"--group {chosen[0]}: {paths[0]} has no groups; leave --group out")
        return None
    for index in chosen:
        if not 0 <= index < count:
            raise ConfigurationError(f"--group {index} expected 0 to {count - 1}: {paths[0]}")
    of_one_log = {"--recording-id": "recordingId" in request.options, "--node-log": bool(request.node_logs)}
    for option, is_given in of_one_log.items():
        if is_given:
            raise ConfigurationError(
                f"{option} is about one log, {paths[0]} holds {count} groups: name the directory of one, such as "
                f"{group_path(paths[0], chosen[0] if chosen else 0)}"
            )
    shown = sorted(set(chosen)) if chosen else range(count) if count <= SHOWN_GROUP_LIMIT else ()
    return GroupsRequest(whole=request, group_count=count, shown=tuple(shown))


def check_group_sources(request: GroupsRequest) -> None:
    """Look whether every group is there, so that a mistake is told at once; raises what `check_sources` does."""
    for index in range(request.group_count):
        check_sources(request.of_group(index))


def build_groups_report(request: GroupsRequest, on_step: Callable[[str], None]) -> LogReport:
    """Run the analyses of every group and make the page; as `build_report`."""
    with open_report_database() as database:
        return _build(database, request, on_step)


def _build(database: SqlDatabase, request: GroupsRequest, on_step: Callable[[str], None]) -> LogReport:
    works = []
    for index in range(request.group_count):
        of_group = request.of_group(index)

        def tell(step: str, index: int = index) -> None:
            on_step(f"group {index}: {step}")

        tell("looking for damage")
        damage = find_damage(of_group)
        works.append((damage, *prepare_log(database, of_group, tell)))
    known = [work.facts for _, _, work in works if work.facts is not None]
    interval = choose_interval(_span_us(known))[1]
    logs = [
        _GroupLog(work, comparison, damage, _last_leader(work), _traffic(work, index, interval))
        for index, (damage, comparison, work) in enumerate(works)
    ]
    made = [_overview(request, logs, interval)]
    for index in request.shown:
        log = logs[index]
        made += [_of_group(section, index) for section in log.work.run(log.comparison)]
    damaged = [(f"{each[0]}, group {index}", *each[1:]) for index, log in enumerate(logs) for each in log.damage]
    page = Page(
        title=request.whole.title or f"The {request.group_count} groups of {next(iter(request.whole.directories))}",
        sources=_sources(request, known),
        facts=[*_facts(request, logs, known), count_damage(damaged)],
        sections=made,
        damage=sections.damage_of(damaged) if damaged else None,
        remarks=_remarks(request),
    )
    return LogReport(page, is_damaged=len(damaged) > 0)


def _of_group(section: Section, group_index: int) -> Section:
    return replace(
        section, anchor=f"group-{group_index}-{section.anchor}", title=f"Group {group_index}: {section.title}"
    )


def _last_leader(work: LogWork) -> str:
    terms = analyses.term_timeline(work.log, events=work.events)
    frame = sql("SELECT * FROM terms ORDER BY leadership_term_id DESC LIMIT 1", terms=terms).toPandas()
    is_known = len(frame) > 0 and pd.notna(frame.iloc[0]["leader_member_id"])
    return str(int(frame.iloc[0]["leader_member_id"])) if is_known else words.ABSENT


def _traffic(work: LogWork, group_index: int, interval: str) -> Frame:
    log = sql(f"SELECT *, {group_index} AS `group` FROM log", log=work.log)
    return analyses.group_traffic(log, interval=interval).toPandas()


def _span_us(known: Sequence[Frame]) -> int:
    """How long it is from the first entry of any group to the last one of any: 0 where that is not known."""
    firsts = [facts["first_timestamp"] for facts in known if pd.notna(facts["duration_us"])]
    lasts = [facts["last_timestamp"] for facts in known if pd.notna(facts["duration_us"])]
    return int((max(lasts) - min(firsts)).total_seconds() * 1e6) if firsts else 0


def _sum(known: Sequence[Frame], column: str) -> int:
    return sum(int(facts[column]) for facts in known)


def _overview(request: GroupsRequest, logs: Sequence[_GroupLog], interval: str) -> Section:
    """The section with a row for each group, and the whole beside it."""
    filled = [log.traffic for log in logs if len(log.traffic)]
    traffic = pd.concat(filled, ignore_index=True) if filled else logs[0].traffic
    known = [log.work.facts for log in logs if log.work.facts is not None]
    quiet = [str(index) for index, log in enumerate(logs) if not len(log.traffic)]
    return Section(
        anchor="groups",
        title="Groups",
        caption=captions.group_throughput(traffic),
        chart=None if traffic.empty else figures.group_throughput(traffic),
        table=_table(logs, known),
        snippet=Snippets(next(iter(request.whole.directories.values())), request.whole.options).group_throughput(
            interval
        ),
        note=f"Without a message of a client or a service: group {words.listing(quiet)}." if quiet else None,
    )


def _table(logs: Sequence[_GroupLog], known: Sequence[Frame]) -> PageTable:
    times = ("first entry, UTC", "last entry, UTC")
    headings = ("group", "last leader", "terms", "messages", "share", "messages/s", "of log", "sessions", *times)
    all_messages = _sum(known, "messages")
    rows = []
    for index, log in enumerate(logs):
        facts = log.work.facts
        of = [] if facts is None else [facts]
        rows.append([str(index), log.leader, *_cells(of, all_messages), words.count(len(log.damage))])
    damages = words.count(sum(len(log.damage) for log in logs))
    rows.append(["all", words.ABSENT, *_cells(known, all_messages), damages])
    numbers = frozenset(headings) - frozenset(times)
    return PageTable(name="Groups", headings=(*headings, "problems"), rows=rows, numbers=numbers | {"problems"})


def _cells(of: Sequence[Frame], all_messages: int) -> list[str]:
    """Terms, messages, share, rate, length of log, sessions, first and last entry: of a group, or of all together."""
    messages, span_us = _sum(of, "messages"), _span_us(of)
    firsts = [facts["first_timestamp"] for facts in of if pd.notna(facts["first_timestamp"])]
    lasts = [facts["last_timestamp"] for facts in of if pd.notna(facts["last_timestamp"])]
    return [
        words.count(_sum(of, "terms")),
        words.count(messages),
        words.share(messages / max(all_messages, 1)),
        f"{messages / (span_us / 1e6):,.1f}" if span_us else words.ABSENT,
        words.length(_sum(of, "length_bytes")),
        words.count(_sum(of, "sessions")),
        words.moment(min(firsts)) if firsts else words.ABSENT,
        words.moment(max(lasts)) if lasts else words.ABSENT,
    ]


def _facts(request: GroupsRequest, logs: Sequence[_GroupLog], known: Sequence[Frame]) -> list[Fact]:
    span_us = _span_us(known)
    messages, sessions = _sum(known, "messages"), _sum(known, "sessions")
    return [
        Fact("groups", words.count(request.group_count)),
        Fact("message" if messages == 1 else "messages", words.count(messages)),
        Fact("of log", words.length(_sum(known, "length_bytes"))),
        Fact("from first to last", words.duration(span_us) if span_us else words.ABSENT),
        Fact("client session" if sessions == 1 else "client sessions", words.count(sessions)),
    ]


def _sources(request: GroupsRequest, known: Sequence[Frame]) -> list[tuple[str, str]]:
    paths = [*request.whole.directories.values()]
    lines = [("Directory", paths[0])]
    if len(paths) > 1:
        lines.append(("Compared to", ", ".join(paths[1:])))
    shown = words.listing([str(index) for index in request.shown]) if request.shown else "none"
    lines.append(("Groups", f"0 to {request.group_count - 1}; logs shown below the overview: {shown}"))
    return lines


def _remarks(request: GroupsRequest) -> list[str]:
    groups = (
        "Each group has a log of its own: nothing orders entries of different groups, and their times are those of the "
        "clocks of different leaders."
    )
    if len(request.shown) < request.group_count:
        groups += f" --group K, from 0 to {request.group_count - 1}, shows the log of a group."
    return [groups, *say_what_was_read(request.whole)]
