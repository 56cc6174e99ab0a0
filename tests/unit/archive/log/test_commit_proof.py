"""What a member's directory proves about how far its log is committed, and what proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.archive.spark.member_logs import Log, MemberFiles, Term
from tests.unit.archive.streams import extract_sample
from trimaran.archive.log.commit_proof import CommitClaim, MemberMarks, parse_marks, prove_commit
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.reading.frame_batches import find_entries
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile, read_recording_log
from trimaran.service_api.errors import RemoteProtocolError


def three_terms() -> Log:
    """A log of three terms, some messages in each."""
    log = Log()
    for term_id in range(3):
        log.begin_term(term_id)
        for i in range(5):
            log.message(f"term {term_id} message {i}")
    return log


def proven(member: MemberFiles) -> CommitClaim | None:
    return prove_commit(member.archive, member.descriptor(), read_marks(member.write()))


def read_marks(directory: Path) -> MemberMarks:
    marks = MemberDirectory.find(directory).read_marks()
    assert marks is not None
    return marks


def test_entry_that_begins_a_term_proves_what_lies_before_it(tmp_path: Path) -> None:
    log = three_terms()

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log))

    assert claim == CommitClaim(2, log.terms[2].base_position)
    assert claim.position < log.position


def test_mark_of_a_term_proves_nothing_without_its_entry(tmp_path: Path) -> None:
    """A winner marks its term at the end of its own log before anybody else has that log."""
    log = three_terms()
    log.terms.append(Term(3, log.position))

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log))

    assert claim == CommitClaim(2, log.terms[2].base_position)


def test_entry_of_another_term_at_the_base_proves_nothing(tmp_path: Path) -> None:
    log = three_terms()
    log.terms[2] = Term(5, log.terms[2].base_position)

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log, marked_terms=None))

    assert claim == CommitClaim(1, log.terms[1].base_position)


def test_entry_behind_padding_proves_its_term(tmp_path: Path) -> None:
    log = Log()
    log.begin_term(0)
    while log.position % 65536 < 65536 - 64:
        log.message("x")
    assert 0 < 65536 - log.position % 65536 <= 64
    base_position = log.begin_term(1)
    assert log.padding_ends  # the entry did not fit

    assert proven(MemberFiles(directory=tmp_path / "0", log=log)) == CommitClaim(1, base_position)


def test_snapshot_proves_its_position(tmp_path: Path) -> None:
    log = three_terms()
    inside = log.message_ends[-3]

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log, snapshots=[Term(2, inside)]))

    assert claim == CommitClaim(2, inside)


def test_newer_term_goes_before_an_older_snapshot(tmp_path: Path) -> None:
    log = three_terms()
    inside = log.message_ends[2]

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log, snapshots=[Term(0, inside)]))

    assert claim == CommitClaim(2, log.terms[2].base_position)


def test_purged_log_proves_what_its_last_term_does(tmp_path: Path) -> None:
    log = Log()
    log.begin_term(0)
    while log.position < 100_000:
        log.message("y" * 900)
    log.begin_term(1)

    claim = proven(MemberFiles(directory=tmp_path / "0", log=log, start_position=65536))

    assert claim == CommitClaim(1, log.terms[1].base_position)


def test_member_without_a_term_proves_nothing(tmp_path: Path) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=three_terms(), marked_terms=0)

    assert proven(member) is None
    assert read_marks(tmp_path / "0") == MemberMarks(-1)


def test_recording_log_is_found_from_the_archive_too(tmp_path: Path) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=three_terms())
    member.write()

    found = MemberDirectory.find(member.archive).recording_log
    assert found == MemberDirectory.find(member.directory).recording_log == tmp_path / "0" / "cluster" / "recording.log"
    (tmp_path / "0" / "cluster" / "recording.log").unlink()
    assert MemberDirectory.find(member.archive).recording_log is None


def test_slots_are_read_as_the_cluster_reads_them(tmp_path: Path) -> None:
    """Removed terms, invalid snapshots and standby snapshots with long endpoints lie among the others."""
    file = RecordingLogFile.open(tmp_path, file_sync_level=0)
    log: RecordingLog = file.recording_log
    for term_id in range(4):
        log.append_term(recording_id=7, leadership_term_id=term_id, term_base_log_position=term_id * 96, timestamp=1)
        if term_id == 1:
            log.append_standby_snapshot(
                RecordedSnapshot(
                    recording_id=9,
                    leadership_term_id=1,
                    term_base_log_position=96,
                    log_position=160,
                    timestamp=1,
                    service_id=-1,
                ),
                archive_endpoint="standby.example:9000" * 9,
            )
        log.append_snapshot(
            RecordedSnapshot(
                recording_id=8,
                leadership_term_id=term_id,
                term_base_log_position=term_id * 96,
                log_position=term_id * 96 + 32,
                timestamp=1,
                service_id=-1,
            )
        )
    last = log.last_term()
    assert last is not None
    assert log.invalidate_latest_snapshot()
    log.remove_entry(last)
    file.persist()
    file.close()

    marks = parse_marks((tmp_path / "recording.log").read_bytes())

    terms = [entry for entry in read_recording_log(tmp_path / "recording.log").entries if entry.is_valid_term]
    entries = read_recording_log(tmp_path / "recording.log").entries
    snapshots = [entry for entry in entries if entry.is_valid and not entry.is_valid_term]
    assert [tuple(term) for term in marks.terms] == [
        (term.leadership_term_id, term.term_base_log_position, None if term.log_position < 0 else term.log_position)
        for term in terms
    ]
    assert [tuple(claim) for claim in marks.snapshots] == sorted(
        (s.leadership_term_id, s.log_position) for s in snapshots
    )
    assert (marks.log_recording_id, marks.last_term_id) == (7, 2)


@pytest.mark.parametrize(
    ("offset", "said"), [(8, "position=0: .*checksum"), (44, "position=0 type=66"), (108, "position=64 type=66")]
)
def test_damaged_recording_log_is_named(tmp_path: Path, offset: int, said: str) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=three_terms())
    path = member.write() / "cluster" / "recording.log"
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\x42")

    with pytest.raises(RemoteProtocolError, match=said):
        parse_marks(path.read_bytes())


def test_slot_cut_off_at_the_end_is_left_out(tmp_path: Path) -> None:
    member = MemberFiles(directory=tmp_path / "0", log=three_terms())
    path = member.write() / "cluster" / "recording.log"
    path.write_bytes(path.read_bytes()[: 2 * 64 + 40])

    assert [mark.leadership_term_id for mark in parse_marks(path.read_bytes()).terms] == [0, 1]


@pytest.mark.parametrize(("is_stopped", "position"), [(True, "the end"), (False, "the last term's base")])
def test_end_of_the_last_term_counts_for_a_member_that_stopped_in_order(
    tmp_path: Path, is_stopped: bool, position: str
) -> None:
    """One that died in the next election wrote an end, too, and no stop position of its recording."""
    log = three_terms()
    member = MemberFiles(directory=tmp_path / "0", log=log, is_stopped=is_stopped)
    marks = read_marks(member.write())
    closed = marks.terms[-1]._replace(end_position=log.position)

    claim = prove_commit(
        member.archive,
        member.descriptor(),
        MemberMarks(marks.log_recording_id, (*marks.terms[:-1], closed), marks.snapshots),
    )

    expected = {"the end": log.position, "the last term's base": log.terms[2].base_position}[position]
    assert claim == CommitClaim(2, expected)


def test_end_beyond_what_is_recorded_proves_nothing(tmp_path: Path) -> None:
    log = three_terms()
    member = MemberFiles(directory=tmp_path / "0", log=log, is_stopped=True)
    marks = read_marks(member.write())
    closed = marks.terms[-1]._replace(end_position=log.position + 32)

    claim = prove_commit(
        member.archive, member.descriptor(), MemberMarks(marks.log_recording_id, (*marks.terms[:-1], closed))
    )

    assert claim == CommitClaim(2, log.terms[2].base_position)


@pytest.mark.parametrize(
    ("sample", "positions"),
    [
        ("single-node", ["its end"]),  # stopped in order
        ("three-node-failover", ["its end", 420192, "its end"]),  # one's last term is open: up to the last snapshot
        ("torn", [0]),  # killed in its first term
    ],
)
def test_real_members_prove_as_much_as_they_wrote_down(tmp_path: Path, sample: str, positions: list[int | str]) -> None:
    extract_sample(sample, tmp_path)
    directories = sorted(path.parent for path in tmp_path.rglob("archive") if path.is_dir())
    assert len(directories) == len(positions)

    for directory, position in zip(directories, positions, strict=True):
        marks = read_marks(directory)
        (entry,) = find_entries(directory / "archive", marks.log_recording_id)
        assert entry.descriptor is not None
        claim = prove_commit(directory / "archive", entry.descriptor, marks)
        assert claim is not None
        assert claim.position == (entry.descriptor.stop_position if position == "its end" else position)
