"""What the sentences say of frames that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from tests.facts import has_facts
from tests.unit.archive.report import frames
from trimaran.archive.report import captions


def test_the_timeline_says_who_led_longest_and_which_hand_over_took_longest() -> None:
    assert captions.term_timeline(frames.terms()) == (
        "3 leadership terms, 2 changes of leader; member 2 led longest: 6.5 s in term 1. "
        "The longest hand-over, after term 1, took 1 s."
    )
    assert captions.term_timeline(frames.terms().head(1)) == "Member 0 led term 0 for 2 s, the only term of the log."
    assert captions.term_timeline(frames.terms(leader_member_id=[None, None, 0])).startswith(
        "3 leadership terms, 0 changes of leader; an unknown member led longest"
    )


def test_elections_say_where_the_log_stood_still_and_why() -> None:
    assert captions.elections(frames.elections(with_reasons=True)) == (
        "The log stood still longest before term 1: 0.31 s; at 2 changes of term 0.35 s in all. Of that, 12 ms were "
        "the election; it began with: log link closed: connection closed. 1 term came to nothing in between."
    )
    assert captions.elections(frames.elections().head(2)) == "The log stood still longest before term 1: 0.31 s."


def test_states_say_which_took_longest() -> None:
    assert captions.election_states(frames.states()) == (
        "1 election of 2 members; longest was member 2 in NOMINATE of term 1, for 6 ms: some detail."
    )


def test_throughput_says_how_much_and_who() -> None:
    assert captions.throughput(frames.traffic()) == (
        "30 messages with 2.93 KiB of payload: 15 messages/s on average, 28 messages/s in the busiest 0.5 s. "
        "Session 1 sent 80 % of them."
    )
    assert captions.throughput(frames.traffic().head(1)).count("sent") == 0


def test_times_between_messages_say_what_is_usual_and_the_longest() -> None:
    assert captions.inter_arrival(frames.arrivals()) == (
        "Half of the messages of session 1, the busiest, came within 150 µs of the one before, 99 % within 900 µs; "
        "the longest pause, 2.3 s, was one of session 2."
    )
    same_tick = frames.arrivals().assign(gap_us_p50=0, gap_us_p99=0)
    assert has_facts(captions.inter_arrival(same_tick), "same tick", "99 %")


def test_lives_say_how_sessions_ended() -> None:
    assert captions.session_lives(frames.lives()) == (
        "5 sessions: 2 closed by their clients, 1 closed by a service, 1 timed out and 1 still open at the end of the "
        "log. Those that ended lived for 3 s (median)."
    )


def test_timers_say_how_many_and_how_late() -> None:
    assert captions.timers(frames.timers()) == (
        "4 timer events of 2 correlation ids. Correlation id 7 fired most often: 3 times."
    )
    assert captions.timers(frames.timers(with_deadlines=True)) == (
        "4 timer events: half of them at most 2.5 ms late, the latest 0.25 s."
    )


def test_bursts_and_gaps_say_when() -> None:
    assert captions.bursts_and_gaps(frames.bursts(), frames.gaps()) == (
        "Busiest at 2026-11-21 04:08:33.000: 480 messages/s, 4.0 times the mean. The longest silence began at "
        "2026-11-21 04:08:31.000 and lasted 2 s, while the leadership term changed."
    )


def test_lengths_say_what_is_usual_and_what_takes_the_bytes() -> None:
    assert captions.payload_sizes(frames.histogram(), frames.sizes()) == (
        "64 % of 100 messages are 64 to 127 bytes long; SessionMessageHeader takes 88 % of the log's bytes."
    )


def test_divergence_says_where_the_first_difference_is() -> None:
    assert captions.divergence(frames.pairs()) == (
        "node-0 and node-2 differ at position 640, in payload; 2 of 3 pairs of logs are not the same."
    )
    assert captions.divergence(frames.pairs(with_difference=False)) == (
        "Up to position 960 all logs are the same, byte for byte; some go on beyond that."
    )
    apart = frames.pairs(with_difference=False).assign(verdict="nothing in common")
    assert captions.divergence(apart) == "node-0 and node-1 have no position in common."


@pytest.mark.parametrize(
    ("say", "frame", "expected"),
    [
        (captions.term_timeline, frames.terms(), "The log holds no leadership term."),
        (captions.elections, frames.elections(), "The leadership term never changed."),
        (captions.election_states, frames.states(), "The members' own logs have no election that closed."),
        (captions.throughput, frames.traffic(), "No client and no service sent anything."),
        (captions.inter_arrival, frames.arrivals(), "No session sent two messages."),
        (captions.session_lives, frames.lives(), "No client opened a session."),
        (captions.timers, frames.timers(), "No timer fired."),
        (lambda frame: captions.payload_sizes(frame, frames.sizes()), frames.histogram(), "The log holds no message."),
        (captions.divergence, frames.pairs(), "There is nothing to compare."),
    ],
)
def test_a_frame_without_rows_has_a_sentence_too(say: Callable[[Any], str], frame: pd.DataFrame, expected: str) -> None:
    assert say(frame.iloc[:0]) == expected


def test_a_log_without_bursts_and_gaps_has_a_sentence_too() -> None:
    said = captions.bursts_and_gaps(frames.bursts().iloc[:0], frames.gaps().iloc[:0])

    assert said == "No silence was longer than the least that is counted."
