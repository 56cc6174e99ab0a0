"""How far a log is committed by a recording log: held against the reader of `cluster`, and case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archive.committed_position import LogEntry, find_committed_log, find_log_recording, read_entries
from archive.errors import CorruptionError
from cluster.core.recording_log import EntryType, RecordingLog
from tests.unit.archive.streams import extract_sample, load_truth

BEYOND = 1 << 40


def bytes_of(log: RecordingLog) -> bytes:
    data = bytearray(log.end_position)
    for write in log.take_writes():
        data[write.file_position : write.file_position + len(write.data)] = write.data
    return bytes(data)


def log_with_terms(*bases: int) -> RecordingLog:
    log = RecordingLog()
    for term_id, base in enumerate(bases):
        log.append_term(recording_id=5, leadership_term_id=term_id, term_base_log_position=base, timestamp=0)
    return log


def add_snapshot(log: RecordingLog, position: int) -> None:
    fields: dict[str, Any] = {"leadership_term_id": 0, "term_base_log_position": 0, "timestamp": 0}
    log.append_snapshot(recording_id=9, log_position=position, service_id=-1, **fields)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every recording log that a real Aeron left, sound or not."""
    target = tmp_path_factory.mktemp("recording-logs")
    for scenario in ("state-files", "three-node-failover", "single-node", "checksummed", "torn"):
        extract_sample(scenario, target)
    return sorted(target.rglob("recording.log"))


def test_entries_are_those_that_cluster_reads(files: list[Path]) -> None:
    entries_seen = 0
    for file in files:
        entries = RecordingLog.parse(file.read_bytes()).entries

        valid = sorted((entry for entry in entries if entry.is_valid), key=lambda entry: entry.file_position)

        assert list(read_entries(file.read_bytes())) == [
            LogEntry(
                entry.recording_id,
                entry.leadership_term_id,
                entry.term_base_log_position,
                entry.log_position,
                entry.entry_type is EntryType.TERM,
            )
            for entry in valid
        ]
        entries_seen += len(valid)
    assert len(files) > 10
    assert entries_seen > 50


@pytest.mark.parametrize(
    ("node", "position"),
    [
        ("single-node-node0", "its end"),  # stopped in order
        ("three-node-failover-node0", "its end"),
        ("three-node-failover-node1", 420192),  # its last term is open: up to the last snapshot
        ("torn-node0", 0),  # killed in its first term
    ],
)
def test_real_members_show_as_much_as_they_wrote_down(files: list[Path], node: str, position: int | str) -> None:
    scenario, _, name = node.rpartition("-")
    (file,) = [file for file in files if file.parts[-4:-2] == (scenario, name)]
    (log,) = [r for r in load_truth(node)["recordings"] if r["kind"] == "log"]
    end = log["scan_ended"]["position"]

    assert find_committed_log(file.read_bytes(), end) == (0, end if position == "its end" else position)


def test_a_first_term_without_a_snapshot_shows_nothing_to_be_committed() -> None:
    data = bytes_of(log_with_terms(0))

    assert find_committed_log(data, 4096) == (5, 0)
    assert find_log_recording(data) == 5


def test_a_term_that_the_log_goes_on_in_shows_its_base_to_be_committed() -> None:
    assert find_committed_log(bytes_of(log_with_terms(0, 640, 1280)), 1312) == (5, 1280)


def test_a_term_that_is_only_marked_shows_nothing() -> None:
    """Its leader may have died before a majority had the log up to there."""
    assert find_committed_log(bytes_of(log_with_terms(0, 640, 1280)), 1280) == (5, 640)


def test_a_snapshot_shows_its_position_to_be_committed() -> None:
    log = log_with_terms(0)
    add_snapshot(log, 960)

    assert find_committed_log(bytes_of(log), 4096) == (5, 960)


def test_an_invalid_snapshot_shows_nothing() -> None:
    log = log_with_terms(0)
    add_snapshot(log, 960)
    log.invalidate_latest_snapshot()

    assert find_committed_log(bytes_of(log), 4096) == (5, 0)


def test_an_orderly_stop_shows_the_end_of_the_last_term_to_be_committed() -> None:
    log = log_with_terms(0, 640)
    log.commit_log_position(1, 3200)

    assert find_committed_log(bytes_of(log), 3232) == (5, 3200)


def test_what_the_recording_no_longer_has_is_not_committed_here() -> None:
    log = log_with_terms(0, 640)
    log.commit_log_position(1, 3200)

    assert find_committed_log(bytes_of(log), 2048) == (5, 2048)


def test_an_empty_file_names_no_log_and_a_torn_entry_is_left_out() -> None:
    data = bytes_of(log_with_terms(0, 640))

    assert find_committed_log(b"", BEYOND) is None
    assert find_log_recording(bytes(64)) is None
    assert find_committed_log(data[:-40], 4096) == find_committed_log(data[:64], 4096) == (5, 640)


def test_what_cannot_be_an_entry_is_corruption() -> None:
    data = bytearray(bytes_of(log_with_terms(0, 640)))
    data[64 + 44] = 7

    with pytest.raises(CorruptionError, match="recording log: offset=64 type=7"):
        find_committed_log(bytes(data), BEYOND)
