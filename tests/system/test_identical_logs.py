"""The comparison of members' logs at the end of each system test: what it forgives, and what it finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import check_identical
from tests.system.directory_views import DirectoryReport, RecordingView, TermEntry
from trimaran.service_api.types import LOG_STREAM_ID


def report(name: str, data: bytes, *term_base_log_positions: int) -> DirectoryReport:
    """A member with these bytes of the log, and a term from each position on."""
    log = RecordingView(
        recording_id=0,
        start_position=0,
        stop_position=None,
        initial_term_id=0,
        segment_length=1 << 16,
        term_length=1 << 16,
        mtu_length=1408,
        stream_id=LOG_STREAM_ID,
        is_checksummed=True,
        data=data,
    )
    terms = [TermEntry(0, term_id, position, None) for term_id, position in enumerate(term_base_log_positions)]
    return DirectoryReport(Path(name), [log], terms, [], -1)


NEWEST = report("newest", b"aaaabbbb", 0, 4)


def test_what_a_removed_leader_appended_last_is_nobody_elses() -> None:
    check_identical([report("removed", b"aaaaXX", 0), NEWEST, report("behind", b"aaaab", 0, 4)], [True, False, False])


@pytest.mark.parametrize(
    ("data", "bases", "is_removed", "position"),
    [
        (b"aaaaXX", (0,), False, 4),
        (b"aaXaXX", (0,), True, 2),
        (b"aaaabXb", (0, 4), True, 5),
        (b"aaaabXb", (0, 4), False, 5),
    ],
    ids=["a tail of a member", "before the unseen term", "in a term that was seen", "a member"],
)
def test_other_bytes_are_found(data: bytes, bases: tuple[int, ...], is_removed: bool, position: int) -> None:
    with pytest.raises(AssertionError, match=f"differ at position={position}"):
        check_identical([report("other", data, *bases), NEWEST], [is_removed, False])
