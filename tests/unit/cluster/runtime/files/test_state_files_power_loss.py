"""Power lost, or the process killed, at every write and sync of the small files: what was acknowledged is there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.unit.archive.streams import PowerLoss, PowerSupply
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.service_api.wire.log.recording_log import RecordingLogEntry

DIRECTORY = Path("/cluster")
SEEDS = range(6)
LIVES = 12


class Machine:
    """A disk that loses power, or its process, at a chosen operation."""

    def __init__(self, seed: int, operation: int) -> None:
        self.random = random.Random(seed * 1000 + operation)
        self.disk = MemoryFileSystem()
        self.disk.make_directory(DIRECTORY)
        self.power = PowerSupply()
        self.power.operations_left = operation
        self.disk.on_operation = self.power

    def crash(self) -> None:
        """End this life; the next one ends after a random number of operations."""
        if self.random.random() < 0.25:
            self.disk.crash_process()
        else:
            share = self.random.choice((0.0, 0.5, 1.0))
            self.disk.crash(lambda: self.random.random() < share)
        self.power.operations_left = self.random.randrange(12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", range(12))
def test_candidate_term_never_falls_below_what_was_acknowledged(operation: int, seed: int) -> None:
    machine = Machine(seed, operation)
    acknowledged = proposed = -1
    for _ in range(LIVES):
        try:
            file = NodeStateFile.open(DIRECTORY, file_system=machine.disk)
            assert acknowledged <= file.candidate_term_id <= proposed
            acknowledged = file.candidate_term_id  # what was read is believed from here on
            for _ in range(4):
                proposed = max(proposed, acknowledged) + 1
                acknowledged = file.propose_max_candidate_term_id(proposed, proposed * 64, 1)
        except PowerLoss:
            pass
        machine.crash()

    machine.power.operations_left = -1
    assert acknowledged <= NodeStateFile.open(DIRECTORY, file_system=machine.disk).candidate_term_id <= proposed


def terms(file: RecordingLogFile) -> dict[int, tuple[int, int]]:
    """The valid terms: id to base and end position."""
    return {e.leadership_term_id: (e.term_base_log_position, e.log_position) for e in file.recording_log.entries}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("operation", range(16))
def test_terms_that_were_acknowledged_are_there_and_a_change_is_had_up_to_a_point(operation: int, seed: int) -> None:
    """Changes of up to 12 entries, which lie in two or three sectors, and cuts."""
    machine = Machine(seed, operation)
    acknowledged: dict[int, tuple[int, int]] = {}
    removed_from = 1 << 30
    """Terms from here on were being removed when the power went."""
    position = 0
    for _ in range(LIVES):
        try:
            file = RecordingLogFile.open(DIRECTORY, file_system=machine.disk)
            found = terms(file)
            assert list(found) == list(range(len(found)))  # without gaps, each once
            kept = {term_id: base for term_id, (base, _) in acknowledged.items() if term_id < removed_from}
            assert {term_id: found[term_id][0] for term_id in kept} == kept
            acknowledged, removed_from = found, 1 << 30
            for _ in range(3):
                last: RecordingLogEntry | None = file.recording_log.last_term()
                if last is not None and machine.random.random() < 0.3:
                    cut = machine.random.choice(list(acknowledged.values()))[0] + 1
                    removed_from = (
                        min(term_id for term_id in found if found[term_id][0] >= cut)
                        if any(base >= cut for base, _ in found.values())
                        else 1 << 30
                    )
                    file.recording_log.truncate_terms(cut)
                    position = cut
                else:
                    position += 64
                    next_term_id = 0 if last is None else last.leadership_term_id + machine.random.randrange(1, 13)
                    file.recording_log.ensure_coherent(
                        recording_id=0,
                        leadership_term_id=next_term_id,
                        term_base_log_position=position if last is not None else 0,
                        log_position=-1,
                        timestamp=1,
                    )
                file.persist()
                acknowledged, removed_from = terms(file), 1 << 30
                found = acknowledged
        except PowerLoss:
            pass
        machine.crash()
        position = max(position, *(base for base, _ in acknowledged.values()), 0) if acknowledged else 0

    machine.power.operations_left = -1
    RecordingLogFile.open(DIRECTORY, file_system=machine.disk).close()
