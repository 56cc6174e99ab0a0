"""The entries of a recording log, held against the reader of `cluster`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample
from trimaran.archive.errors import CorruptionError
from trimaran.archive.log.recording_log_entries import LogEntry, read_entries
from trimaran.cluster.core.log.recording_log import EntryType, RecordingLog


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


def test_an_empty_file_has_no_entries_and_a_torn_one_is_left_out() -> None:
    data = bytes_of(log_with_terms(0, 640))

    assert list(read_entries(b"")) == list(read_entries(bytes(64))) == []
    assert list(read_entries(data[:-40])) == list(read_entries(data[:64]))
    assert [entry.term_base_log_position for entry in read_entries(data)] == [0, 640]


def test_what_cannot_be_an_entry_is_corruption() -> None:
    data = bytearray(bytes_of(log_with_terms(0, 640)))
    data[64 + 44] = 7

    with pytest.raises(CorruptionError, match="recording log: offset=64 type=7"):
        list(read_entries(bytes(data)))
