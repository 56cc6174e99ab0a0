"""A recording log that takes the place of another: after a crash at any operation the file holds one or the other."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest

from tests.unit.archive.streams import PowerLoss, PowerSupply
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.log.shipped_snapshot import ShippedTerm, check_offer, make_recording_log
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.service_api import RemoteProtocolError

DIRECTORY = Path("/cluster")
TERMS = [ShippedTerm(0, 0, 10), ShippedTerm(1, 640, 20), ShippedTerm(2, 640, 30)]


def shipped(service_id: int, **changes: int) -> RecordedSnapshot:
    values = {
        "recording_id": 7 - service_id,
        "leadership_term_id": 2,
        "term_base_log_position": 640,
        "log_position": 960,
        "timestamp": 40,
        "service_id": service_id,
    }
    return RecordedSnapshot(**(values | changes))


def new_log() -> RecordingLog:
    return make_recording_log(TERMS, [shipped(-1), shipped(0)], log_recording_id=9)


def entries(log: RecordingLog) -> list[tuple[int, int, int, int]]:
    return [(e.recording_id, e.leadership_term_id, e.log_position, e.service_id) for e in log.entries]


def open_old(disk: MemoryFileSystem) -> RecordingLogFile:
    disk.make_directory(DIRECTORY)
    file = RecordingLogFile.open(DIRECTORY, file_system=disk)
    for term_id in range(12):
        file.recording_log.append_term(
            recording_id=0, leadership_term_id=term_id, term_base_log_position=32 * term_id, timestamp=0
        )
    file.persist()
    return file


def test_the_modules_entry_is_the_last_and_the_last_term_is_open() -> None:
    assert entries(new_log()) == [(9, 0, 640, -1), (9, 1, 640, -1), (9, 2, -1, -1), (7, 2, 960, 0), (8, 2, 960, -1)]
    assert [found.recording_id for found in new_log().latest_snapshots(1)] == [8, 7]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, None])
@pytest.mark.parametrize("operation", range(9))
def test_a_crash_leaves_the_old_log_or_the_new_one(operation: int, share: float | None) -> None:
    disk, power, random = MemoryFileSystem(), PowerSupply(), Random(operation)
    file = open_old(disk)
    old = entries(file.recording_log)
    disk.on_operation = power
    power.operations_left = operation

    with contextlib.suppress(PowerLoss):
        file.replace(new_log())
    power.operations_left = -1
    if share is None:
        disk.crash_process()
    else:
        disk.crash(lambda: random.random() < share)

    found = RecordingLogFile.open(DIRECTORY, file_system=disk)
    assert entries(found.recording_log) in (old, entries(new_log()))
    found.replace(new_log())  # whatever was left under the working name
    assert entries(RecordingLogFile.open(DIRECTORY, file_system=disk).recording_log) == entries(new_log())


def test_what_is_persisted_afterwards_goes_into_the_new_file() -> None:
    disk = MemoryFileSystem()
    file = open_old(disk)

    file.replace(new_log())
    file.recording_log.commit_log_position(2, 1_280)
    file.persist()

    disk.crash()
    assert entries(RecordingLogFile.open(DIRECTORY, file_system=disk).recording_log)[2] == (9, 2, 1_280, -1)


@pytest.mark.parametrize(
    ("terms", "snapshots", "reason"),
    [
        (TERMS, [shipped(-1)], "service_ids"),
        (TERMS, [shipped(-1), shipped(0), shipped(1)], "service_ids"),
        (TERMS, [shipped(-1), shipped(0, log_position=992)], "different places"),
        (TERMS[:2], [shipped(-1), shipped(0)], "up to 2"),
        ([TERMS[0], TERMS[2]], [shipped(-1), shipped(0)], "up to 2"),
        ([], [shipped(-1), shipped(0)], "up to 2"),
        (
            [ShippedTerm(0, 700, 0), *TERMS[1:]],
            [shipped(-1), shipped(0)],
            "do not rise",
        ),
        (TERMS, [shipped(-1, log_position=640), shipped(0, log_position=640)], "do not rise"),
    ],
)
def test_an_offer_that_is_no_snapshot_is_refused(
    terms: list[ShippedTerm], snapshots: list[RecordedSnapshot], reason: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        check_offer(terms, snapshots, service_count=1)


def test_an_offer_that_is_one_tells_its_position() -> None:
    assert check_offer(TERMS, [shipped(0), shipped(-1)], service_count=1) == 960
