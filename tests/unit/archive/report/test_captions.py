"""The sentences under figures name the right figures of frames that are known."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.facts import has_facts
from tests.unit.archive.report import frames
from trimaran.archive.report import captions

PAIRS = frames.pairs(with_difference=False)
CAPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "terms": (
        captions.term_timeline(frames.terms()),
        ("3 leadership terms", "2 changes", "member 2", "6.5 s", "term 1", "hand-over, after term 1", "1 s"),
    ),
    "one term": (captions.term_timeline(frames.terms().head(1)), ("Member 0", "term 0", "2 s", "only")),
    "unknown leaders": (
        captions.term_timeline(frames.terms(leader_member_id=[None, None, 0])),
        ("3 leadership terms", "0 changes", "unknown member"),
    ),
    "elections": (
        captions.elections(frames.elections(with_reasons=True)),
        ("term 1", "0.31 s", "2 changes", "0.35 s", "12 ms", "log link closed: connection closed", "1 term"),
    ),
    "one election": (captions.elections(frames.elections().head(2)), ("term 1", "0.31 s")),
    "states": (
        captions.election_states(frames.states()),
        ("1 election of 2 members", "member 2", "NOMINATE", "term 1", "6 ms", "some detail"),
    ),
    "throughput": (
        captions.throughput(frames.traffic()),
        ("30 messages", "2.93 KiB", "15 messages/s", "28 messages/s", "0.5 s", "Session 1", "80 %"),
    ),
    "arrivals": (
        captions.inter_arrival(frames.arrivals()),
        ("session 1", "150 µs", "99 %", "900 µs", "2.3 s", "session 2"),
    ),
    "one tick": (captions.inter_arrival(frames.arrivals().assign(gap_us_p50=0, gap_us_p99=0)), ("same tick", "99 %")),
    "lives": (
        captions.session_lives(frames.lives()),
        ("5 sessions", "2 closed by their clients", "1 closed by a service", "1 timed out", "1 still open", "3 s"),
    ),
    "timers": (captions.timers(frames.timers()), ("4 timer events of 2", "id 7", "3 times")),
    "deadlines": (captions.timers(frames.timers(with_deadlines=True)), ("4 timer events", "2.5 ms", "0.25 s")),
    "bursts and gaps": (
        captions.bursts_and_gaps(frames.bursts(), frames.gaps()),
        ("2026-11-21 04:08:33.000", "480 messages/s", "4.0 times", "2026-11-21 04:08:31.000", "2 s", "term changed"),
    ),
    "lengths": (
        captions.payload_sizes(frames.histogram(), frames.sizes()),
        ("64 % of 100 messages", "64 to 127 bytes", "SessionMessageHeader", "88 %"),
    ),
    "difference": (
        captions.divergence(frames.pairs()),
        ("node-0 and node-2", "position 640", "payload", "2 of 3"),
    ),
    "no difference": (captions.divergence(PAIRS), ("position 960",)),
    "apart": (captions.divergence(PAIRS.assign(verdict="nothing in common")), ("node-0 and node-1", "no position")),
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_a_caption_names_the_figures_of_its_frame(name: str) -> None:
    said, facts = CAPTIONS[name]

    assert has_facts(said, *facts)
    assert said.endswith(".")


def test_a_caption_leaves_out_what_its_frame_does_not_have() -> None:
    assert "sent" not in captions.throughput(frames.traffic().head(1))


@pytest.mark.parametrize(
    ("say", "frame"),
    [
        (captions.term_timeline, frames.terms()),
        (captions.elections, frames.elections()),
        (captions.election_states, frames.states()),
        (captions.throughput, frames.traffic()),
        (captions.inter_arrival, frames.arrivals()),
        (captions.session_lives, frames.lives()),
        (captions.timers, frames.timers()),
        (lambda frame: captions.payload_sizes(frame, frames.sizes()), frames.histogram()),
        (captions.divergence, frames.pairs()),
        (lambda frame: captions.bursts_and_gaps(frame, frames.gaps().iloc[:0]), frames.bursts()),
    ],
)
def test_a_frame_without_rows_has_a_sentence_too(say: Callable[[Any], str], frame: pd.DataFrame) -> None:
    said = say(frame.iloc[:0])

    assert said.endswith(".")
    assert re.search(r"\d|nan", said) is None
