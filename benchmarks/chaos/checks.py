"""What must hold after a round: every check takes what was noted and returns what is wrong, in words.

journals      all members were given the same at each position, and answered the same; no operation ran twice
answers       what a client was told stands in the journals; what it was told never ran does not
log order     in the order of the log, every answer is what the model says, and real time agrees
searched      an order that explains every answer is found without believing any position
recordings    byte for byte the same up to the commit position
states        `state_hash` is the same on every member at one position
resources     memory and descriptors of every member stay below their bounds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import MemberDirectory
from ...archive.reading.difference import find_mismatch
from ...cluster.testing.simulation.clients.history import ClientOperation, History
from ...cluster.testing.simulation.clients.linearizability import check_linearizability, check_log_order
from ...service_api.errors import ClusterError
from .journal import NO_ANSWER, JournalEntry, MergedJournal
from .load import AskedRequest, Notes
from .models import ChaosModel
from .service import HEAD, ChaosOperation

RSS_LIMIT_BYTES: Final = 512 << 20
"""A member of a round needs 60 to 100 MiB."""
DESCRIPTOR_LIMIT: Final = 512
SILENCE_LIMIT_NS: Final = 20_000_000_000
"""Without an answer to anybody, while hostile clients are about."""
_FAULT_LIMIT: Final = 20


@dataclass(slots=True)
class HistoryVerdict:
    """What the checks of a history say."""

    violations: list[str]
    undecided_count: int = 0
    """Objects whose search was given up: neither a yes nor a no."""
    checked_count: int = 0
    """Operations that were checked."""
    resolved_count: int = 0
    """Operations that no client was told of, and which the journals show to have run."""


def check_history(notes: Notes, journal: MergedJournal) -> HistoryVerdict:
    """Hold what clients of the campaign's own service saw against the journals, the model and real time."""
    history = notes.history
    by_head, violations = journal.by_head({_head_of(operation) for operation in history})
    operations = [*_explained(history, by_head, violations)]
    resolved_count = sum(not operation.is_acknowledged for operation in operations)
    violations += history.faults
    violations += check_log_order(operations, ChaosModel())
    report = check_linearizability(operations, ChaosModel())
    violations += report.violations
    return HistoryVerdict(violations, report.undecided_count, len(operations), resolved_count)


def _explained(
    history: History, by_head: Mapping[bytes, JournalEntry], violations: list[str]
) -> Sequence[ClientOperation]:
    """Give each operation its position; leave out those that never ran.

    One that no client was told of has taken effect when the first member was given it, at the latest: that is its
    return. It narrows the search, and is true, for what was given to a service was committed.
    """
    operations = []
    faults: list[str] = []
    for operation in history.operations:
        if operation.is_query:
            if operation.is_acknowledged:
                operations.append(operation)
            continue
        delivery = by_head.get(_head_of(operation))
        if delivery is None:
            if operation.is_acknowledged:
                faults.append(f"{operation} was answered, and no member was ever given it")
            continue
        if operation.is_rejected:
            faults.append(f"{operation}: the client was told that it never ran, and it stands at {delivery}")
            continue
        operation.log_position = delivery.log_position
        if not operation.is_acknowledged:
            operation.returned_ns = max(delivery.monotonic_ns, operation.invoked_ns)
        operations.append(operation)
    violations += faults[:_FAULT_LIMIT]
    return operations


def check_answers(asked: Sequence[AskedRequest], journal: MergedJournal) -> list[str]:
    """Hold requests of any service against the journals: each ran once, and answered what its client was told."""
    ran: Counter[tuple[int, int]] = Counter()
    answered: Counter[tuple[int, int, int]] = Counter()
    for delivery in journal.deliveries.values():
        if delivery.is_request:
            ran[delivery.cluster_session_id, delivery.payload_crc] += 1
            answered[delivery.cluster_session_id, delivery.payload_crc, delivery.answer_crc] += 1
    sessions = {request.cluster_session_id for request in asked}
    sent = Counter((request.cluster_session_id, request.payload_crc) for request in asked)
    told: Counter[tuple[int, int, int]] = Counter()
    for request in asked:
        if request.answer_crc is not None:
            told[request.cluster_session_id, request.payload_crc, request.answer_crc] += 1
    faults = [
        f"a request ran more often than it was sent: session={session} payload_crc={crc:08x} sent={sent[session, crc]} "
        f"ran={count}"
        for (session, crc), count in ran.items()
        if session in sessions and count > sent[session, crc]
    ]
    faults += [
        f"answers that no member gave: session={session} payload_crc={crc:08x} answer_crc={answer:08x} told={count} "
        f"given={answered[session, crc, answer]}"
        for (session, crc, answer), count in told.items()
        if count > answered[session, crc, answer] and answer != NO_ANSWER
    ]
    return faults[:_FAULT_LIMIT]


def check_recordings(directories: Mapping[int, Path], commit_position: int) -> list[str]:
    """Compare the logs of stopped members, byte for byte, from where both begin up to the commit position."""
    logs, faults = {}, []
    for member_id, directory in directories.items():
        try:
            log = LogFile.find(MemberDirectory.find(directory))
            end = log.ending()
        except ClusterError as error:
            faults.append(f"member {member_id} has no log to read: {error}")
            continue
        if end.position < commit_position:
            faults.append(f"member {member_id}: its log ends at {end.position}, below commit={commit_position}: {end}")
            continue
        logs[member_id] = log
    for (a, log_a), (b, log_b) in combinations(logs.items(), 2):
        start = max(log_a.descriptor.start_position, log_b.descriptor.start_position)
        mismatch = find_mismatch(log_a, log_b, start, commit_position)
        if mismatch is not None:
            faults.append(f"recordings of members {a} and {b} differ: {mismatch}")
    return faults


def check_group(journal: MergedJournal, clients: range) -> list[str]:
    """Return what a group was given that clients of another group had sent."""
    faults = [
        f"a group was given a message of another one: {delivery}"
        for delivery in journal.deliveries.values()
        if HEAD.unpack(delivery.head)[0] not in clients
    ]
    return faults[:_FAULT_LIMIT]


def check_removed(
    removed: Mapping[int, tuple[Path, int]], member: Path, journals: Mapping[int, Sequence[JournalEntry]]
) -> list[str]:
    """Hold members that were removed against the others: their logs up to their removal, if they still have one, and
    what they were given, of which each entry was given to another member, too.

    Each removed member comes with its directory, and with the position at which its removal ends.
    """
    faults = []
    for member_id, (directory, end) in removed.items():
        others = {entry.log_position for i, lines in journals.items() if i != member_id for entry in lines}
        alone = {entry.log_position for entry in journals[member_id]} - others
        if alone:
            faults.append(f"member {member_id}, which was removed, was given alone: log_positions={sorted(alone)[:5]}")
        if not (directory / "archive").exists():
            continue
        try:
            log, log_of_member = (LogFile.find(MemberDirectory.find(each)) for each in (directory, member))
            start = max(log.descriptor.start_position, log_of_member.descriptor.start_position)
            mismatch = find_mismatch(log, log_of_member, start, min(end, log.ending().position))
        except ClusterError as error:
            faults.append(f"member {member_id}, which was removed, has no log to read: {error}")
            continue
        if mismatch is not None:
            faults.append(f"the log of member {member_id}, which was removed, is not that of the others: {mismatch}")
    return faults


def check_states(hashes: Mapping[int, tuple[int, bytes]]) -> list[str]:
    """Compare the state hashes of members that stand at one position; each is a position and a hash."""
    if len(set(hashes.values())) <= 1:
        return []
    told = ", ".join(f"member {i} {value.hex()} at {position}" for i, (position, value) in sorted(hashes.items()))
    return [f"states differ: {told}"]


def check_resources(maxima: Mapping[int, Mapping[str, int]]) -> list[str]:
    """Hold the most memory and descriptors of each member against their bounds."""
    limits = {"rss_bytes": RSS_LIMIT_BYTES, "descriptor_count": DESCRIPTOR_LIMIT}
    return [
        f"member {member_id}: {name}={most[name]} expected at most {limit}"
        for member_id, most in maxima.items()
        for name, limit in limits.items()
        if most[name] > limit
    ]


def check_service(notes: Notes, begun_ns: int, ended_ns: int) -> list[str]:
    """Hold the longest time without an answer against its bound; for rounds in which most members always run."""
    times = sorted(answered_ns for _, answered_ns in notes.answered_ns if begun_ns <= answered_ns <= ended_ns)
    longest_ns = max((after - before for before, after in pairwise([begun_ns, *times, ended_ns])), default=0)
    if longest_ns <= SILENCE_LIMIT_NS:
        return []
    return [f"no answer for {longest_ns / 1e9:.1f} s: expected at most {SILENCE_LIMIT_NS / 1e9:g} s"]


def _head_of(operation: ClientOperation) -> bytes:
    asked = operation.argument
    assert isinstance(asked, ChaosOperation)
    return HEAD.pack(asked.client, asked.number)
