"""Where the bytes of a recording lie. Source: samples set A README §3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.archive.format import layout
from trimaran.archive.format.segment_names import parse_segment_file_name

TERM = 65536


@pytest.mark.parametrize("name", ["0-0.rec", "12-131072.rec", "9-9223372036854775807.rec"])
def test_segment_name_round_trips(name: str) -> None:
    parsed = parse_segment_file_name(name)

    assert parsed is not None
    assert layout.segment_file_name(*parsed) == name


@pytest.mark.parametrize(
    "name", ["0-0.rec.next", "0-0.rec.zero", "-1-0.rec", "0--1.rec", "00-0.rec", "0-0.REC", "archive.catalog", "0.rec"]
)
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_segment_file_name(name) is None


def test_segments_are_counted_from_the_term_in_which_the_recording_starts() -> None:
    """Recording 1 of archive-only: starts at 135168, 4096 bytes into a term; files 1-131072.rec and
    1-196608.rec.
    """
    bases = [
        layout.segment_base_position(position, start_position=135168, term_length_bytes=TERM, segment_length_bytes=TERM)
        for position in (135168, 196607, 196608, 208895)
    ]

    assert bases == [131072, 131072, 196608, 196608]


@given(
    start=st.integers(0, 1 << 40).map(lambda n: n * 32),
    length=st.integers(0, 1 << 14).map(lambda n: n * 32),
    skip=st.integers(0, 1 << 14).map(lambda n: n * 32),
    terms_per_segment=st.sampled_from([1, 2, 3, 4]),
)
def test_clip_covers_the_range_once_and_no_slice_leaves_its_segment(
    start: int, length: int, skip: int, terms_per_segment: int
) -> None:
    segment = terms_per_segment * TERM
    begin, end = start + skip, start + skip + length

    slices = list(
        layout.clip(begin, end, recording_start_position=start, term_length_bytes=TERM, segment_length_bytes=segment)
    )

    assert [s.start_position for s in slices] == [begin, *(s.stop_position for s in slices[:-1])][: len(slices)]
    assert sum(s.stop_position - s.start_position for s in slices) == length
    first = layout.first_base_position(start, term_length_bytes=TERM)
    for piece in slices:
        assert piece.base_position <= piece.start_position < piece.stop_position <= piece.base_position + segment
        assert (piece.base_position - first) % segment == 0
