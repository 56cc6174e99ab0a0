"""The page of a campaign: for each round one figure with one axis of time, and the tables of all of them.

The figure has faults as bars, who led in which term, answers a second with errors, and latencies, above each other, so
that an eye finds what a fault did.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from ...archive.report.page import Damage, Fact, Page, PageTable, Section, render_page
from ...archive.report.theme import ALARM, MUTED, REST, SERIES, Chart, add_legend, name_axes, new_chart, style
from .campaign import CampaignResult, fault_rows
from .parameters import RoundResult
from .schedule import REFUSED_WRITES, ROSTER_CHANGES, ChaosFault

_BAR: Final = 0.62
_BUCKET_S: Final = 0.5
_ROUND_LIMIT: Final = 60
"""Rounds whose figures are drawn: those with violations first, then the newest."""
_VIOLATION_LIMIT: Final = 100

_GROUPS: Final = {
    "process": (
        SERIES[1],
        {ChaosFault.KILL, ChaosFault.PAUSE, ChaosFault.TERMINATE, ChaosFault.HANG_UP, ChaosFault.KILL_ALL},
    ),
    "network": (
        SERIES[0],
        {
            ChaosFault.ISOLATE,
            ChaosFault.MUTE,
            ChaosFault.DEAF,
            ChaosFault.CUT_PAIR,
            ChaosFault.RESET,
            ChaosFault.DELAY,
        },
    ),
    "disk": (
        SERIES[3],
        {
            ChaosFault.SLOW_SYNC,
            ChaosFault.SLOW_DISK,
            ChaosFault.FAILING_SYNC,
            *REFUSED_WRITES,
            ChaosFault.WIPE,
        },
    ),
    "power": (ALARM, {ChaosFault.POWER_LOSS, ChaosFault.POWER_LOSS_ALL}),
    "clock": (SERIES[4], {ChaosFault.CLOCK_JUMP}),
    "snapshot": (SERIES[2], {ChaosFault.SNAPSHOT}),
    "service": (SERIES[5], {ChaosFault.CARELESS}),
    "members": (REST, set(ROSTER_CHANGES)),
    "certificates": (MUTED, {ChaosFault.ROTATE, ChaosFault.ROTATE_AUTHORITY}),
}


def build_chaos_page(result: CampaignResult) -> str:
    """Make the HTML of a campaign: one file, nothing is fetched, nothing runs."""
    parameters, rounds = result.parameters, result.rounds
    drawn = sorted(rounds, key=lambda found: (not found.violations, -found.number))[:_ROUND_LIMIT]
    sections = [_faults_section(result), *(_round_section(result, found) for found in sorted(drawn, key=_number))]
    sections.append(_resources_section(result))
    return render_page(
        Page(
            title=f"Chaos with seed {parameters.seed}",
            sources=[
                ("Service", parameters.service),
                ("Members", ", ".join(map(str, parameters.members))),
                ("Machine", f"{result.environment.get('cores')} cores, {result.environment.get('cpu_model')}"),
                ("Commit", str(result.environment.get("git_commit"))),
            ],
            facts=[
                Fact("rounds", str(len(rounds))),
                Fact("faults", str(sum(record.begun_ns is not None for each in rounds for record in each.faults))),
                Fact("answers", f"{sum(len(each.notes.answered_ns) for each in rounds):,}"),
                Fact("operations checked", f"{sum(each.checked_count for each in rounds):,}"),
                Fact("violations", str(result.violation_count), result.violation_count > 0),
            ],
            sections=sections,
            damage=_violations(result),
            remarks=[
                "A fault ends the wait when the first request that was sent after its beginning is answered.",
                *(f"Left out: {name}: {reason}" for name, reason in result.left_out.items()),
            ],
            maker="Trimaran chaos",
        )
    )


def _number(found: RoundResult) -> int:
    return found.number


def _violations(result: CampaignResult) -> Damage | None:
    rows = [(found.name, violation) for found in result.rounds for violation in found.violations]
    if not rows:
        return None
    note = None if len(rows) <= _VIOLATION_LIMIT else f"The first {_VIOLATION_LIMIT} of {len(rows)}."
    table = PageTable(
        name="Violations",
        headings=("round", "violation"),
        rows=rows[:_VIOLATION_LIMIT],
        numbers=frozenset({"round"}),
        note=note,
    )
    return Damage(caption="What should never be.", table=table)


def _faults_section(result: CampaignResult) -> Section:
    headings = ("fault", "count", "skipped", "p50 ms", "max ms")
    rows = [tuple("" if value is None else f"{value}" for value in row.values()) for row in fault_rows(result.rounds)]
    return Section(
        anchor="faults",
        title="How long requests went unanswered",
        caption="From the beginning of a fault to the first answer to a request that was sent after it.",
        snippet=f"make chaos SEED={result.parameters.seed} MINUTES={result.parameters.minutes:g}",
        snippet_name="Run it again",
        table=PageTable(name="Faults", headings=headings, rows=rows, numbers=frozenset(headings[1:])),
    )


def _resources_section(result: CampaignResult) -> Section:
    headings = ("round", "member", "memory MiB", "descriptors")
    rows = [
        (found.name, str(member_id), f"{most['rss_bytes'] / 2**20:.0f}", str(most["descriptor_count"]))
        for found in result.rounds
        for member_id, most in found.maxima.items()
    ]
    return Section(
        anchor="resources",
        title="Memory and descriptors",
        caption="The most that each member used, over all its lives in a round.",
        snippet=f"make chaos SEED={result.parameters.seed} MINUTES={result.parameters.minutes:g}",
        snippet_name="Run it again",
        table=PageTable(name="Resources", headings=headings, rows=rows, numbers=frozenset(headings)),
    )


def _round_section(result: CampaignResult, found: RoundResult) -> Section:
    headings = ("at s", "fault", "member", "answered after ms", "note")
    rows = [
        (
            f"{record.plan.at_s:.2f}" if record.begun_ns is None else f"{(record.begun_ns - found.begun_ns) / 1e9:.2f}",
            f"{record.plan.kind}{f' {record.plan.amount} ms' if record.plan.amount else ''}",
            "" if record.begun_ns is None else "all" if record.member_id is None else str(record.member_id),
            "" if record.recovery_ns is None else f"{record.recovery_ns / 1e6:.0f}",
            record.note,
        )
        for record in found.faults
    ]
    verdict = f"{len(found.violations)} violations" if found.violations else "no violation"
    return Section(
        anchor=f"round-{found.name.replace(', ', '-').replace(' ', '-')}",
        title=f"Round {found.name}: {found.mode}, {found.member_count} members, {verdict}",
        caption="Faults, leaders with their terms, answers and errors, latencies of answers by when they came.",
        snippet=result.parameters.command(found.number),
        snippet_name="Run this round again",
        chart=draw_round_chart(found),
        table=PageTable(
            name="Faults of the round", headings=headings, rows=rows, numbers=frozenset({"at s", "answered after ms"})
        ),
    )


def draw_round_chart(found: RoundResult) -> Chart:
    """Draw one round."""
    with style():
        chart, (faults, leaders, answers, latencies) = new_chart(2.2 + 0.75 * found.place_count + 3.0, rows=4)
        end_s = (found.ended_ns - found.begun_ns) / 1e9
        _draw_faults(faults, found)
        _draw_leaders(leaders, found)
        _draw_answers(answers, found, end_s)
        _draw_latencies(latencies, found, end_s)
        for axes in (faults, leaders, answers, latencies):
            axes.set_xlim(0, end_s)
        return chart


def _draw_faults(axes: Axes, found: RoundResult) -> None:
    seen = set()
    for record in found.faults:
        if record.begun_ns is None or record.ended_ns is None:
            continue
        group, color = next((name, color) for name, (color, kinds) in _GROUPS.items() if record.plan.kind in kinds)
        seen.add(group)
        begin_s = (record.begun_ns - found.begun_ns) / 1e9
        members = range(found.place_count) if record.member_id is None else [record.member_id]
        for member_id in members:
            length_s = max((record.ended_ns - record.begun_ns) / 1e9, 0.1)
            axes.barh(member_id, length_s, left=begin_s, height=_BAR, color=color)
        axes.annotate(
            record.plan.kind.value.replace("_", " "),
            (begin_s, members[0]),
            xytext=(1, 0),
            textcoords="offset points",
            fontsize=6,
            rotation=35,
            va="bottom",
        )
    _name_members(axes, found)
    name_axes(axes, "", "faults")
    if seen:
        add_legend(axes, [Patch(color=color, label=name) for name, (color, _) in _GROUPS.items() if name in seen])


def _draw_leaders(axes: Axes, found: RoundResult) -> None:
    """Draw who led, a bar from a sample to the member's next one; and who was electing or silent."""
    samples = defaultdict(list)
    for sample in found.samples:
        samples[sample.member_id].append(sample)
    for member_id, looked in samples.items():
        told: int | None = None
        for sample, following in pairwise(looked):
            begin_s = (sample.monotonic_ns - found.begun_ns) / 1e9
            length_s = (following.monotonic_ns - sample.monotonic_ns) / 1e9
            state = "silent" if sample.status is None else sample.status.state
            if state == "FOLLOWER":
                continue
            color = SERIES[0] if state == "LEADER" else MUTED if state == "silent" else SERIES[4]
            axes.barh(member_id, length_s, left=begin_s, height=_BAR, color=color, linewidth=0)
            term = None if sample.status is None else sample.status.leadership_term_id
            if state == "LEADER" and term != told and begin_s >= 0:
                told = term
                axes.annotate(
                    f"{term}", (begin_s, member_id), xytext=(2, 0), textcoords="offset points", fontsize=7, va="center"
                )
    _name_members(axes, found)
    name_axes(axes, "", "leaders, with their terms")
    kinds = ((SERIES[0], "leads"), (SERIES[4], "elects or starts"), (MUTED, "no answer"))
    add_legend(axes, [Patch(color=color, label=name) for color, name in kinds])


def _draw_answers(axes: Axes, found: RoundResult, end_s: float) -> None:
    edges = np.arange(0, end_s + _BUCKET_S, _BUCKET_S)
    times = [(answered_ns - found.begun_ns) / 1e9 for _, answered_ns in found.notes.answered_ns]
    errors = [(at_ns - found.begun_ns) / 1e9 for at_ns, _ in found.notes.errors]
    for values, color, label in ((times, SERIES[2], "answers"), (errors, ALARM, "errors told to clients")):
        counts, _ = np.histogram(values, edges)
        axes.step(edges[:-1], counts / _BUCKET_S, where="post", color=color, label=label)
    axes.set_ylim(bottom=0)
    name_axes(axes, "", "a second")
    add_legend(axes)


def _draw_latencies(axes: Axes, found: RoundResult, end_s: float) -> None:
    buckets: dict[int, list[float]] = defaultdict(list)
    for invoked_ns, answered_ns in found.notes.answered_ns:
        buckets[int((answered_ns - found.begun_ns) / 1e9 / _BUCKET_S)].append((answered_ns - invoked_ns) / 1e6)
    places = sorted(buckets)
    times = [place * _BUCKET_S for place in places]
    medians = [statistics.median(buckets[place]) for place in places]
    largest = [max(buckets[place]) for place in places]
    axes.plot(times, largest, ".", color=REST, markersize=4, label="largest")
    axes.plot(times, medians, ".", color=SERIES[0], markersize=4, label="median")
    if times:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    name_axes(axes, "seconds since traffic began", "latency, ms")
    add_legend(axes)


def _name_members(axes: Axes, found: RoundResult) -> None:
    rows: Sequence[int] = range(found.place_count)
    axes.set_yticks(list(rows), [f"member {row}" for row in rows])
    axes.set_ylim(found.place_count - 0.4, -0.6)
