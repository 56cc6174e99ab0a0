"""The notes of failed and skipped entries outlive the process, and a damaged file is begun again."""

from __future__ import annotations

from pathlib import Path

from trimaran.cluster.core.vocabulary.held_entry import HeldEntry
from trimaran.cluster.runtime.files.delivery_notes_file import DELIVERY_NOTES_FILE_NAME, DeliveryNotesFile

FAILED = HeldEntry(576, "on_request", "MemoryError()")


def open_notes(directory: Path) -> DeliveryNotesFile:
    return DeliveryNotesFile.open(directory, file_sync_level=1)


def test_notes_are_there_after_a_restart(tmp_path: Path) -> None:
    notes = open_notes(tmp_path)
    notes.note_failure(FAILED)
    notes.note_skip(320, skip_log_position=960)

    again = open_notes(tmp_path)

    assert (again.failed, again.skipped_entries) == (FAILED, {320: 960})


def test_an_entry_that_is_skipped_fails_no_more(tmp_path: Path) -> None:
    notes = open_notes(tmp_path)
    notes.note_failure(FAILED)

    notes.note_skip(576, skip_log_position=960)

    assert notes.failed is None


def test_a_damaged_file_is_begun_again(tmp_path: Path) -> None:
    """Nothing is lost: what failed is tried again, and what is skipped stands in the log."""
    (tmp_path / DELIVERY_NOTES_FILE_NAME).write_bytes(b"\x00{")

    notes = open_notes(tmp_path)
    notes.note_failure(FAILED)

    assert open_notes(tmp_path).failed == FAILED
