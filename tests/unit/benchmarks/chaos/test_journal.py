"""What members were given, put together."""

from __future__ import annotations

import struct
from pathlib import Path

from trimaran.benchmarks.chaos.checks import check_answers, check_history, check_states
from trimaran.benchmarks.chaos.journal import JournalEntry, JournalWriter, merge_journals, read_journal
from trimaran.benchmarks.chaos.load import AskedRequest, Notes
from trimaran.benchmarks.chaos.models import object_key
from trimaran.benchmarks.chaos.service import ChaosOperation, ChaosOperationKind


def _delivery(position: int, number: int = 1, *, at_ns: int = 5, answer_crc: int = 9) -> JournalEntry:
    return JournalEntry(position, at_ns, 1, 77, answer_crc, 1, struct.pack("<qq", 1, number))


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.note(96, 4, b"p" * 40, b"answer", is_request=True)
    with (tmp_path / "j").open("ab") as file:
        file.write(b"cut short")

    (line,) = read_journal(tmp_path / "j")

    assert (line.log_position, line.cluster_session_id, line.is_request, line.head) == (96, 4, 1, b"p" * 16)


def test_members_that_agree_have_one_journal_with_the_earliest_times() -> None:
    merged = merge_journals([(0, [_delivery(96, at_ns=8)]), (1, [_delivery(96, at_ns=7), _delivery(96, at_ns=30)])])

    assert merged.faults == []
    assert merged.deliveries[96].monotonic_ns == 7


def test_another_answer_at_one_position_is_a_fault() -> None:
    merged = merge_journals([(0, [_delivery(96)]), (1, [_delivery(96, answer_crc=10)])])

    assert len(merged.faults) == 1
    assert "log_position=96: member 0" in merged.faults[0]


def test_an_operation_at_two_positions_is_a_fault() -> None:
    _, faults = merge_journals([(0, [_delivery(96), _delivery(192)])]).by_head({_delivery(96).head})

    assert faults == ["operation (1, 1) ran at two positions: 96, 192"]


def test_an_answer_that_no_member_gave_is_a_fault() -> None:
    merged = merge_journals([(0, [_delivery(96)])])

    assert check_answers([AskedRequest(1, 77, 9)], merged) == []
    assert len(check_answers([AskedRequest(1, 77, 10)], merged)) == 1


def test_a_request_that_ran_more_often_than_it_was_sent_is_a_fault() -> None:
    merged = merge_journals([(0, [_delivery(96, 1), _delivery(192, 2)])])

    faults = check_answers([AskedRequest(1, 77, 9)], merged)

    assert len(faults) == 1
    assert "sent=1 ran=2" in faults[0]


def test_an_answer_to_what_no_member_was_given_is_a_fault() -> None:
    notes = Notes()
    asked = ChaosOperation(1, 1, ChaosOperationKind.PUT, 0, 5)
    operation = notes.history.invoke(None, object_key(asked), "put", asked, now_ns=1)
    notes.history.acknowledge(operation, (1, 0), log_position=0, now_ns=2)

    verdict = check_history(notes, merge_journals([]))

    assert len(verdict.violations) == 1
    assert "no member was ever given it" in verdict.violations[0]


def test_states_at_one_position_are_equal() -> None:
    assert check_states({0: (96, b"a"), 1: (96, b"a")}) == []
    assert check_states({0: (96, b"a"), 1: (96, b"b")}) == ["states differ: member 0 61 at 96, member 1 62 at 96"]
