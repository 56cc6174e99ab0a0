"""The slots of a recording log: what real files hold, torn ends, and what cannot be a slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.service_api.errors import RemoteProtocolError
from trimaran.service_api.wire.log.recording_log import RecordingLogEntry, read_slots


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


def entries_of(data: bytes) -> list[RecordingLogEntry]:
    return [slot for slot in read_slots(data) if isinstance(slot, RecordingLogEntry)]


def test_each_slot_of_a_real_file_is_written_as_it_was_read(files: list[Path]) -> None:
    """The 48 bytes of each entry: after them Aeron leaves what its buffer held."""
    entries_seen = 0
    for file in files:
        data = file.read_bytes()
        for entry in entries_of(data):
            written = data[entry.file_position : entry.file_position + 48]

            assert entry.encode()[:48] == written
            entries_seen += 1
    assert len(files) > 10
    assert entries_seen > 50


def test_an_empty_file_has_no_entries_and_a_torn_one_is_left_out() -> None:
    data = bytes_of(log_with_terms(0, 640))

    assert (entries_of(b"")) == (entries_of(bytes(64))) == []
    assert (entries_of(data[:-40])) == (entries_of(data[:64]))
    assert [entry.term_base_log_position for entry in entries_of(data)] == [0, 640]


def test_what_cannot_be_an_entry_is_corruption() -> None:
    data = bytearray(bytes_of(log_with_terms(0, 640)))
    data[64 + 44] = 7

    with pytest.raises(RemoteProtocolError, match="recording log: entry_index=1 position=64 type=7"):
        (entries_of(bytes(data)))
