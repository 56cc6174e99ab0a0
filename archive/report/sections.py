"""The sections of the page: for each analysis its sentence, figure, table and Python, from small pandas frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from . import captions, figures, words
from .page import Damage, Fact, PageTable, Section
from .session_figures import LIFE_LIMIT, ending_of, principal_of
from .theme import Frame, fit_label
from .traffic_figures import session_name

TABLE_LIMIT: Final = 10
"""Rows of a table."""
_TEXT_LIMIT: Final = 120
"""Characters of a text from a log, such as the name of a client."""

Cell = Callable[[Any], Any]
"""Gives what a cell shows of a row of pandas, whose attributes are the columns; None for nothing."""


def facts_of(facts: Frame) -> list[Fact]:
    """Return the numbers at the top of the page, from the row of `analyses.summary`; None for a log without frames."""
    if facts is None:
        return [Fact("messages", "0")]
    duration_us = facts["duration_us"]

    def number_of(what: str, column: str) -> Fact:
        return Fact(what if facts[column] == 1 else words.plural(what), words.count(facts[column]))

    return [
        number_of("message", "messages"),
        Fact("of log", words.length(facts["length_bytes"])),
        Fact("from first to last", words.ABSENT if pd.isna(duration_us) else words.duration(duration_us)),
        number_of("leadership term", "terms"),
        number_of("client session", "sessions"),
    ]


def damage_of(found: Sequence[tuple[str, int | None, int | None, str]]) -> Damage:
    """Make what stands before everything else: what cannot be read."""
    rows = [(name, _plain(recording), _plain(position), reason) for name, recording, position, reason in found]
    directories = words.count(len({name for name, *_ in found}), "directory")
    table = PageTable(
        name="Damage",
        headings=("directory", "recording", "position", "reason"),
        rows=rows[:TABLE_LIMIT],
        numbers=frozenset({"recording", "position"}),
        note=_rest(len(rows)),
    )
    caption = (
        f"{words.count(len(found), 'problem')} in {directories}. Entries after a damaged position may be "
        "missing below. Run trimaran archive verify for details."
    )
    return Damage(caption=caption, table=table)


def leaders(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.term_timeline`; a term of which no entry has a time, as in snapshots, is left out."""
    frame = frame[frame["first_timestamp"].notna()]
    columns: dict[str, Cell] = {
        "term": lambda row: row.leadership_term_id,
        "leader": lambda row: _integer(row.leader_member_id),
        "first entry, UTC": lambda row: _moment(row.first_timestamp),
        "led for": lambda row: words.duration((row.last_timestamp - row.first_timestamp).total_seconds() * 1e6),
        "hand-over": lambda row: _duration(row.hand_over_us),
        "from position": lambda row: words.count(row.start_position),
        "bytes": lambda row: words.count(row.length_bytes),
        "messages": lambda row: words.count(row.messages),
    }
    return Section(
        anchor="leaders",
        title="Leaders and terms",
        caption=captions.term_timeline(frame),
        chart=None if frame.empty else figures.term_timeline(frame),
        table=_table("Leadership terms", frame, columns, texts=("first entry, UTC",)),
        snippet=snippet,
        note=note,
    )


def elections(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.elections`."""
    changes = frame[frame["gap_us"].notna()]
    columns: dict[str, Cell] = {
        "term": lambda row: row.leadership_term_id,
        "from": lambda row: _integer(row.leader_before),
        "to": lambda row: _integer(row.leader_after),
        "at position": lambda row: words.count(row.position),
        "gap": lambda row: _duration(row.gap_us),
        "skipped terms": lambda row: _integer(row.skipped_terms),
    }
    has_reasons = "start_reason" in frame
    if has_reasons:
        columns |= {
            "election": lambda row: _duration(row.election_us),
            "ballots": lambda row: _integer(row.ballots),
            "reason": lambda row: _text(row.start_detail),
        }
    hint = None if has_reasons or changes.empty else "The members' own logs say why they began: --node-log FILE."
    return Section(
        anchor="elections",
        title="Changes of leader",
        caption=captions.elections(frame),
        chart=None if changes.empty else figures.elections(frame),
        table=_table("Changes of leadership term", changes, columns, texts=("reason",)),
        snippet=snippet,
        note=note or hint,
    )


def election_states(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.election_states`."""
    closed = frame[frame["leadership_term_id"].notna() & frame["left_at"].notna()]
    columns: dict[str, Cell] = {
        "term": lambda row: _integer(row.leadership_term_id),
        "member": lambda row: row.member_id,
        "state": lambda row: row.state,
        "entered, UTC": lambda row: _moment(row.entered_at),
        "for": lambda row: _duration(row.duration_us),
        "because": lambda row: _text(row.detail),
    }
    longest = closed.sort_values("duration_us", ascending=False, kind="stable")
    return Section(
        anchor="election-states",
        title="What members did in elections",
        caption=captions.election_states(frame),
        chart=None if closed.empty else figures.election_states(frame),
        table=_table("The longest states", longest, columns, texts=("state", "entered, UTC", "because")),
        snippet=snippet,
        note=note,
    )


def throughput(frame: Frame, totals: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.session_traffic` over time; `totals` has a row for each session."""
    columns: dict[str, Cell] = {
        "who": session_name,
        "messages": lambda row: words.count(row.messages),
        "payload bytes": lambda row: words.count(row.application_bytes),
        "messages/s": lambda row: _absent_or(lambda value: f"{value:,.1f}", row.messages_per_s),
        "first, UTC": lambda row: _moment(row.from_timestamp),
        "last, UTC": lambda row: _moment(row.to_timestamp),
    }
    return Section(
        anchor="throughput",
        title="Throughput",
        caption=captions.throughput(frame),
        chart=None if frame.empty else figures.throughput(frame),
        table=_table("Sessions with the most messages", totals, columns, texts=("who", "first, UTC", "last, UTC")),
        snippet=snippet,
        note=note,
    )


def inter_arrival(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.session_traffic` over the whole log: the time between messages."""
    known = frame[frame["gap_us_max"].notna()]
    columns: dict[str, Cell] = {
        "who": session_name,
        "messages": lambda row: words.count(row.messages),
        "median": lambda row: _duration(row.gap_us_p50),
        "99th percentile": lambda row: _duration(row.gap_us_p99),
        "longest": lambda row: _duration(row.gap_us_max),
    }
    return Section(
        anchor="inter-arrival",
        title="Time between messages",
        caption=captions.inter_arrival(frame),
        chart=None if known.empty else figures.inter_arrival(frame),
        table=_table("Time between messages, by session", known, columns, texts=("who",)),
        snippet=snippet,
        note=note,
    )


def bursts_and_gaps(bursts: Frame, gaps: Frame, snippet: str) -> Section:
    """The section of `analyses.bursts` and `analyses.gaps`; the table has the gaps, the longest first."""
    columns: dict[str, Cell] = {
        "from, UTC": lambda row: _moment(row.from_timestamp),
        "to, UTC": lambda row: _moment(row.to_timestamp),
        "silent for": lambda row: _duration(row.gap_us),
        "at position": lambda row: words.count(row.to_position),
        "leader changed": lambda row: "yes" if row.over_terms == 1 else "no",
    }
    return Section(
        anchor="bursts",
        title="Bursts and silences",
        caption=captions.bursts_and_gaps(bursts, gaps),
        chart=None if bursts.empty and gaps.empty else figures.bursts_and_gaps(bursts, gaps),
        table=_table("The longest silences", gaps, columns, texts=("from, UTC", "to, UTC", "leader changed")),
        snippet=snippet,
    )


def payload_sizes(histogram: Frame, sizes: Frame, snippet: str) -> Section:
    """The section of `analyses.payload_histogram`; the table is that of `analyses.payload_sizes`."""
    log_bytes = max(sizes["log_bytes"].sum(), 1)
    columns: dict[str, Cell] = {
        "kind": lambda row: _text(row.message) or "other",
        "messages": lambda row: words.count(row.messages),
        "shortest": lambda row: _count(row.length_min),
        "median": lambda row: _count(row.length_p50),
        "99th percentile": lambda row: _count(row.length_p99),
        "longest": lambda row: _count(row.length_max),
        "bytes of log": lambda row: words.count(row.log_bytes),
        "share of log": lambda row: words.share(row.log_bytes / log_bytes),
        "overhead": lambda row: words.share(row.overhead_share),
    }
    return Section(
        anchor="sizes",
        title="Lengths of messages",
        caption=captions.payload_sizes(histogram, sizes),
        chart=None if histogram.empty else figures.payload_sizes(histogram),
        table=_table("Lengths by kind of message, in bytes", sizes, columns, texts=("kind",)),
        snippet=snippet,
    )


def session_lives(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.session_lives`."""
    endings = {"CLIENT_ACTION": "its client", "SERVICE_ACTION": "a service", "TIMEOUT": "timeout", "open": "still open"}
    columns: dict[str, Cell] = {
        "session": lambda row: row.cluster_session_id,
        "principal": lambda row: _text(principal_of(row)),
        "opened, UTC": lambda row: _moment(row.opened_timestamp),
        "lived for": lambda row: _duration(row.lifetime_us),
        "ended by": lambda row: endings[ending_of(row)],
        "messages": lambda row: words.count(row.messages),
        "payload bytes": lambda row: words.count(row.application_bytes),
        "longest idle": lambda row: _duration(row.longest_idle_us),
    }
    drawn = f"The figure shows the {LIFE_LIMIT} sessions with the most messages." if len(frame) > LIFE_LIMIT else None
    return Section(
        anchor="sessions",
        title="Lives of sessions",
        caption=captions.session_lives(frame),
        chart=None if frame.empty else figures.session_lives(frame),
        table=_table("Sessions", frame, columns, texts=("principal", "opened, UTC", "ended by")),
        snippet=snippet,
        note=" ".join(text for text in (drawn, note) if text) or None,
    )


def timers(frame: Frame, snippet: str, note: str | None) -> Section:
    """The section of `analyses.timers`, without what the service scheduled; the table has a row for each timer."""
    by_timer = frame.groupby("correlation_id", as_index=False).agg(
        firings=("position", "size"),
        first=("fired_timestamp", "min"),
        last=("fired_timestamp", "max"),
        since_last_us=("since_last_us", "median"),
    )
    by_timer = by_timer.sort_values(["firings", "correlation_id"], ascending=[False, True])
    columns: dict[str, Cell] = {
        "correlation id": lambda row: row.correlation_id,
        "fired": lambda row: words.count(row.firings),
        "first, UTC": lambda row: _moment(row.first),
        "last, UTC": lambda row: _moment(row.last),
        "median time between": lambda row: _duration(row.since_last_us),
    }
    late = "Only a replay of the service knows the deadlines, and so how late timers fired: see docs/time-travel.md."
    return Section(
        anchor="timers",
        title="Timers",
        caption=captions.timers(frame),
        chart=None if frame.empty else figures.timers(frame),
        table=_table("Timers", by_timer, columns, texts=("first, UTC", "last, UTC")),
        snippet=snippet,
        note=note or (None if frame.empty else late),
    )


def comparison(frame: Frame, snippet: str) -> Section:
    """The section of `analyses.compare_members`."""
    columns: dict[str, Cell] = {
        "one": lambda row: _text(row.member_a),
        "other": lambda row: _text(row.member_b),
        "verdict": lambda row: _text(row.verdict),
        "the same up to": lambda row: _count(row.identical_to),
        "first difference": lambda row: _count(row.diverges_at),
        "frames that differ": lambda row: words.count(row.differing_frames + row.only_in_a + row.only_in_b),
    }
    if frame["diverges_at"].notna().any():
        columns |= {
            "in": lambda row: None if row.differences is None else ", ".join(map(str, row.differences)),
            "checksums there": lambda row: None if row.checksum_a is None else f"{row.checksum_a}, {row.checksum_b}",
        }
    return Section(
        anchor="comparison",
        title="Comparison of the members",
        caption=captions.divergence(frame),
        chart=figures.divergence(frame),
        table=_table("Pairs of members", frame, columns, texts=("one", "other", "verdict", "in", "checksums there")),
        snippet=snippet,
    )


def _table(name: str, frame: Frame, columns: Mapping[str, Cell], *, texts: Sequence[str] = ()) -> PageTable | None:
    """Make the table of the first rows of a frame; all columns are numbers but those of `texts`. None without rows."""
    if frame.empty:
        return None
    rows = [[_plain(cell(row)) for cell in columns.values()] for row in frame.head(TABLE_LIMIT).itertuples()]
    numbers = frozenset(columns) - frozenset(texts)
    return PageTable(name=name, headings=tuple(columns), rows=rows, numbers=numbers, note=_rest(len(frame)))


def _rest(row_count: int) -> str | None:
    if row_count <= TABLE_LIMIT:
        return None
    return f"The first {TABLE_LIMIT} of {words.count(row_count, 'row')}."


def _plain(value: Any) -> str:  # what a cell gives
    return words.ABSENT if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _text(value: Any) -> str | None:  # a text, or None or NaN of pandas
    return fit_label(value, _TEXT_LIMIT) if isinstance(value, str) and value else None


def _absent_or(write: Callable[[Any], str], value: Any) -> str | None:  # a cell of pandas
    return None if pd.isna(value) else write(value)


def _moment(value: Any) -> str | None:  # a timestamp, or None or NaT of pandas
    return _absent_or(words.moment, value)


def _duration(value: Any) -> str | None:  # a number, or None or NaN of pandas
    return _absent_or(words.duration, value)


def _count(value: Any) -> str | None:  # a number, or None or NaN of pandas
    return _absent_or(words.count, value)


def _integer(value: Any) -> str | None:  # a number, or None or NaN of pandas
    return _absent_or(lambda number: str(int(number)), value)
