"""The caption of each figure: a sentence made from the same frame as the figure."""

from __future__ import annotations

import numpy as np
import pandas as pd

from . import words
from .group_figures import stack_by_group
from .session_figures import ending_of
from .theme import Frame
from .traffic_figures import OTHERS, session_name, stack_by_session


def term_timeline(frame: Frame) -> str:
    """Say how many terms there were, who led longest, how often the leader changed and how long that took at most."""
    frame = frame[frame["first_timestamp"].notna()]
    if frame.empty:
        return "The log holds no leadership term."
    leaders = frame["leader_member_id"].dropna().astype(int)
    lengths = (frame["last_timestamp"] - frame["first_timestamp"]).dt.total_seconds() * 1e6
    longest = frame.loc[lengths.idxmax()]
    term, led_for = int(longest.leadership_term_id), words.duration(lengths.max())
    who = "an unknown member" if pd.isna(longest.leader_member_id) else f"member {int(longest.leader_member_id)}"
    if len(frame) == 1:
        return f"{who[0].upper()}{who[1:]} led term {term} for {led_for}, the only term of the log."
    changes = int((leaders.diff().iloc[1:] != 0).sum())
    sentence = (
        f"{words.count(len(frame), 'leadership term')}, {words.count(changes, 'change of leader')}; "
        f"{who} led longest: {led_for} in term {term}."
    )
    if frame["hand_over_us"].notna().any():
        gap = frame.loc[frame["hand_over_us"].idxmax()]
        taken = words.duration(gap.hand_over_us)
        sentence += f" The longest hand-over, after term {int(gap.leadership_term_id)}, took {taken}."
    return sentence


def elections(frame: Frame) -> str:
    """Say at which change of term the log stood still longest, and why, if that is known."""
    changes = frame[frame["gap_us"].notna()]
    if changes.empty:
        return "The leadership term never changed."
    worst = changes.loc[changes["gap_us"].idxmax()]
    in_all = words.duration(changes["gap_us"].clip(lower=0).sum())
    sentence = (
        f"The log stood still longest before term {int(worst.leadership_term_id)}: {words.duration(worst.gap_us)}"
    )
    sentence += f"; at {words.count(len(changes), 'change of term')} {in_all} in all." if len(changes) > 1 else "."
    if "election_us" in changes and pd.notna(worst["election_us"]):
        sentence += (
            f" Of that, {words.duration(worst.election_us)} were the election; it began with: {worst.start_detail}."
        )
    skipped = int(changes["skipped_terms"].fillna(0).sum()) if "skipped_terms" in changes else 0
    if skipped:
        sentence += f" {words.count(skipped, 'term')} came to nothing in between."
    return sentence


def election_states(frame: Frame) -> str:
    """Say how many elections closed, and which state took the longest."""
    closed = frame[frame["leadership_term_id"].notna() & frame["left_at"].notna()]
    if closed.empty:
        return "The members' own logs have no election that closed."
    longest = closed.loc[closed["duration_us"].idxmax()]
    terms = words.count(closed["leadership_term_id"].nunique(), "election")
    members = words.count(closed["member_id"].nunique(), "member")
    return (
        f"{terms} of {members}; longest was member {int(longest.member_id)} in {longest.state} of term "
        f"{int(longest.leadership_term_id)}, for {words.duration(longest.duration_us)}: {longest.detail}."
    )


def throughput(frame: Frame) -> str:
    """Say how much there was in all, at the most, and who sent the most."""
    if frame.empty:
        return "No client and no service sent anything."
    stacks, edges, width_s = stack_by_session(frame)
    total, payload = frame["messages"].sum(), words.length(frame["application_bytes"].sum())
    peak = np.sum(list(stacks.values()), axis=0).max() / width_s
    span_s = (len(edges) - 1) * width_s
    named = frame.assign(name=[session_name(row) for row in frame.itertuples()]).groupby("name")["messages"].sum()
    busiest = named.drop(OTHERS, errors="ignore")
    sentence = (
        f"{words.count(total, 'message')} with {payload} of payload: {words.rate(total / span_s, 'message')} on "
        f"average, {words.rate(peak, 'message')} in the busiest {_window(width_s)}."
    )
    if len(named) > 1 and len(busiest):
        name = busiest.idxmax()
        sentence += f" {name.capitalize()} sent {words.share(busiest.max() / total)} of them."
    return sentence


def group_throughput(frame: Frame) -> str:
    """Say how much there was in all groups, at the most, and which group had the most and the fewest."""
    if frame.empty:
        return "No group logged a message of a client or a service."
    stacks, edges, width_s = stack_by_group(frame)
    totals = frame.groupby("group")["messages"].sum()
    peak = np.sum(list(stacks.values()), axis=0).max() / width_s
    span_s = (len(edges) - 1) * width_s
    sentence = (
        f"{words.count(totals.sum(), 'message')} of clients and services in "
        f"{words.count(len(totals), 'group')}: "
        f"{words.rate(totals.sum() / span_s, 'message')} on average, {words.rate(peak, 'message')} in the busiest "
        f"{_window(width_s)}."
    )
    if len(totals) > 1:
        most, fewest = (words.share(each / totals.sum()) for each in (totals.max(), totals.min()))
        sentence += (
            f" Group {totals.idxmax()} has the most of them, {most}, group {totals.idxmin()} the fewest, {fewest}."
        )
    return sentence


def inter_arrival(frame: Frame) -> str:
    """Say what is usual between two messages of the busiest session, and what the longest pause of all was."""
    known = frame[frame["gap_us_max"].notna()]
    if known.empty:
        return "No session sent two messages."
    busiest = known.loc[known["messages"].idxmax()]
    quietest = known.loc[known["gap_us_max"].idxmax()]
    half, most = busiest.gap_us_p50, busiest.gap_us_p99
    within = f"within {words.duration(half)} of" if half else "in the same tick of the clock as"
    almost_all = f", 99 % within {words.duration(most)}" if most else ", and so did 99 %"
    return (
        f"Half of the messages of {session_name(busiest)}, the busiest, came {within} the one before{almost_all}; "
        f"the longest pause, {words.duration(quietest.gap_us_max)}, was one of {session_name(quietest)}."
    )


def session_lives(frame: Frame) -> str:
    """Say how many sessions there were, and how they ended."""
    if frame.empty:
        return "No client opened a session."
    endings = pd.Series([ending_of(row) for row in frame.itertuples()])
    names = {
        "CLIENT_ACTION": "closed by their clients",
        "SERVICE_ACTION": "closed by a service",
        "TIMEOUT": "timed out",
        "open": "still open at the end of the log",
    }
    parts = [
        f"{words.count((endings == ending).sum())} {name}"
        for ending, name in names.items()
        if (endings == ending).any()
    ]
    closed = frame[frame["closed_timestamp"].notna() & frame["lifetime_us"].notna()]
    sentence = f"{words.count(len(frame), 'session')}: {words.listing(parts)}."
    if not closed.empty:
        sentence += f" Those that ended lived for {words.duration(closed['lifetime_us'].median())} (median)."
    return sentence


def timers(frame: Frame) -> str:
    """Say how many timers fired, and how late they were where that is known."""
    fired = frame[frame["fired_timestamp"].notna()]
    if fired.empty:
        return "No timer fired."
    many = words.count(len(fired), "timer event")
    if "late_us" in frame and fired["late_us"].notna().any():
        late = fired["late_us"].dropna()
        half, latest = words.duration(late.median()), words.duration(late.max())
        return f"{many}: half of them at most {half} late, the latest {latest}."
    counts = fired["correlation_id"].value_counts()
    sentence = f"{many} of {words.count(len(counts), 'correlation id')}."
    if counts.iloc[0] > 1:
        first = min(counts.index[counts == counts.iloc[0]])
        sentence += f" Correlation id {first} fired most often: {words.count(counts.iloc[0], 'time')}."
    return sentence


def bursts_and_gaps(bursts: Frame, gaps: Frame) -> str:
    """Say when the log was busiest, and how long it was silent at the most."""
    sentences = []
    if not bursts.empty:
        top = bursts.loc[bursts["messages_per_s"].idxmax()]
        sentences.append(
            f"Busiest at {words.moment(top.from_timestamp)}: {words.rate(top.messages_per_s, 'message')}, "
            f"{top.times_mean:.1f} times the mean."
        )
    if gaps.empty:
        sentences.append("No silence was longer than the least that is counted.")
    else:
        top = gaps.loc[gaps["gap_us"].idxmax()]
        at_change = bool(top.over_terms) if "over_terms" in gaps and pd.notna(top.over_terms) else False
        sentences.append(
            f"The longest silence began at {words.moment(top.from_timestamp)} and lasted {words.duration(top.gap_us)}"
            f"{', while the leadership term changed' if at_change else ''}."
        )
    return " ".join(sentences)


def payload_sizes(frame: Frame, sizes: Frame) -> str:
    """Say how long messages usually are, and which kind takes the most of the log, as the table of `sizes` does."""
    if frame.empty:
        return "The log holds no message."
    total = frame["messages"].sum()
    bins = frame.groupby(["from_length", "to_length"])["messages"].sum()
    (begin, end), most = bins.idxmax(), bins.max()
    by_kind = sizes.assign(kind=sizes["message"].fillna("other")).groupby("kind")["log_bytes"].sum()
    return (
        f"{words.share(most / total)} of {words.count(total, 'message')} are {begin:,} to {end - 1:,} bytes long; "
        f"{by_kind.idxmax()} takes {words.share(by_kind.max() / max(by_kind.sum(), 1))} of the log's bytes."
    )


def divergence(frame: Frame) -> str:
    """Say whether the members' logs are the same, and where the first difference is."""
    if frame.empty:
        return "There is nothing to compare."
    different = frame[frame["diverges_at"].notna()]
    if different.empty:
        apart = frame[frame["verdict"] == "nothing in common"]
        if not apart.empty:
            return f"{_pair(apart.iloc[0])} have no position in common."
        least = int(frame["identical_to"].min())
        lengths = "" if (frame["verdict"] == "equal").all() else "; some go on beyond that"
        return f"Up to position {least:,} all logs are the same, byte for byte{lengths}."
    first = different.loc[different["diverges_at"].idxmin()]
    what = words.listing([str(name) for name in first.differences])
    return (
        f"{_pair(first)} differ at position {int(first.diverges_at):,}, in {what}; "
        f"{words.count(len(different))} of {words.count(len(frame), 'pair')} of logs are not the same."
    )


def _pair(row: object) -> str:
    a, b = (str(getattr(row, name, name[-1])) for name in ("member_a", "member_b"))
    return f"{a} and {b}"


def _window(width_s: float) -> str:
    return "second" if abs(width_s - 1) < 1e-6 else words.duration(width_s * 1e6)
