"""The unit of a log's timestamps: where it is said, and which message is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory, locate_archive
from trimaran.archive.log.time_unit import find_time_unit
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api.types import MemberId, TermId, TimeUnit
from trimaran.service_api.wire.log.fields import read_time_unit
from trimaran.service_api.wire.log.messages import NewLeadershipTermEvent
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker


def descriptors_of(directory: Path) -> list[RecordingDescriptor]:
    entries = read_catalog(OsFileSystem(), directory).entries
    return [entry.descriptor for entry in entries if entry.descriptor is not None]


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_both_messages_say_it_where_they_are_written_to_say_it(unit: TimeUnit) -> None:
    event = NewLeadershipTermEvent(
        leadership_term_id=TermId(0),
        log_position=96,
        timestamp=1,
        term_base_log_position=0,
        leader_member_id=MemberId(0),
        log_session_id=1,
        time_unit=unit,
    )
    marker = SnapshotMarker(
        type_id=1, log_position=96, leadership_term_id=TermId(0), index=0, mark=SnapshotMark.BEGIN, time_unit=unit
    )

    assert [read_time_unit(message.encode()) for message in (event, marker)] == [unit, unit]
    assert read_time_unit(event.encode()[:-5]) is None
    assert read_time_unit(b"") is None


@pytest.mark.parametrize(("scenario", "unit"), [("single-node", TimeUnit.MILLIS), ("checksummed", TimeUnit.NANOS)])
def test_a_log_says_it_or_if_its_beginning_is_purged_a_snapshot(tmp_path: Path, scenario: str, unit: TimeUnit) -> None:
    directory = extract_sample(scenario, tmp_path) / "node0" / "archive"
    location, descriptors = locate_archive(directory), descriptors_of(directory)
    snapshots = [descriptor for descriptor in descriptors if descriptor.stream_id != 100]

    assert find_time_unit(location, descriptors) is unit
    assert len(snapshots) > 1
    assert find_time_unit(location, snapshots) is unit


def test_every_reader_of_a_log_whose_beginning_is_purged_has_the_same_unit(tmp_path: Path) -> None:
    member = extract_sample("checksummed", tmp_path) / "node0"
    log = LogFile.find(MemberDirectory.find(member))
    first = next(iter(log.reader()))
    purged = LogFile(log.location, replace(log.descriptor, start_position=first.end_position))

    assert [log.time_unit(), purged.time_unit(), MemberLog.open(member).time_unit] == [TimeUnit.NANOS] * 3


def test_without_such_messages_it_is_milliseconds(tmp_path: Path) -> None:
    directory = extract_sample("archive-only", tmp_path) / "node0" / "archive"

    assert find_time_unit(locate_archive(directory), descriptors_of(directory)) is TimeUnit.MILLIS
