"""What each member's service was given, and what it answered: one file for each member, beside its directory.

The probe writes 64 bytes for each request and message, before the answer leaves. A member that starts again delivers
entries that it has delivered before, and writes them again. All lines of all members and of all their lives must agree
on what stands at a position, and every answer that a client was given must stand there: the clients' history is held
against this.

The file is written past the disk shim, so a power loss does not take what was delivered before it: what one member
was given was committed, and may not be lost.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_LINE: Final = struct.Struct("<qqqIIi16s12x")
"""Position, monotonic time, session, CRC of the payload, CRC of the answer, 1 for a request, the payload's head."""
_HEAD_LENGTH: Final = 16
_FAULT_LIMIT: Final = 20

NO_ANSWER: Final = 0
"""Stands for the answer of what has none."""


class JournalEntry(NamedTuple):
    """One entry of the log, as a member's service was given it."""

    log_position: int
    monotonic_ns: int
    cluster_session_id: int
    payload_crc: int
    answer_crc: int
    is_request: int
    head: bytes
    """The first 16 bytes of the payload."""

    @property
    def content(self) -> tuple[int, int, int, int, bytes]:
        """What all members must agree on."""
        return self.cluster_session_id, self.payload_crc, self.answer_crc, self.is_request, self.head


class JournalWriter:
    """Appends to the journal of one member."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._write: Callable[[int, bytes], int] = os.write
        self._now_ns = time.monotonic_ns

    def note(
        self, log_position: int, cluster_session_id: int, payload: bytes, answer: bytes | None, *, is_request: bool
    ) -> None:
        """Write one delivery."""
        answer_crc = NO_ANSWER if answer is None else zlib.crc32(answer)
        line = _LINE.pack(
            log_position,
            self._now_ns(),
            cluster_session_id,
            zlib.crc32(payload),
            answer_crc,
            is_request,
            payload[:_HEAD_LENGTH],
        )
        self._write(self._handle, line)


def read_journal(path: Path) -> list[JournalEntry]:
    """Read what a member was given, in the order in which it was; a line that a kill cut short is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [JournalEntry(*fields) for fields in _LINE.iter_unpack(data[: len(data) // _LINE.size * _LINE.size])]


@dataclass(slots=True, frozen=True)
class MergedJournal:
    """What all members agree on, and where they do not."""

    deliveries: dict[int, JournalEntry]
    """By position, the earliest delivery of each entry."""
    faults: list[str]

    def by_head(self, heads: Collection[bytes]) -> tuple[dict[bytes, JournalEntry], list[str]]:
        """Return deliveries by the head of their payload, of the heads that are unique; and those that ran twice."""
        found: dict[bytes, JournalEntry] = {}
        faults = []
        for delivery in self.deliveries.values():
            if delivery.head not in heads:
                continue
            other = found.setdefault(delivery.head, delivery)
            if other is not delivery:
                head = struct.unpack("<qq", delivery.head)
                faults.append(f"operation {head} ran at two positions: {other.log_position}, {delivery.log_position}")
        return found, faults[:_FAULT_LIMIT]


def merge_journals(journals: Iterable[tuple[int, list[JournalEntry]]]) -> MergedJournal:
    """Put the journals of all members together; each comes with its member's id."""
    deliveries: dict[int, JournalEntry] = {}
    origin: dict[int, int] = {}
    faults: list[str] = []
    for member_id, lines in journals:
        for line in lines:
            known = deliveries.setdefault(line.log_position, line)
            if known is line:
                origin[line.log_position] = member_id
            elif known.content != line.content:
                faults.append(
                    f"services differ at log_position={line.log_position}: member {origin[line.log_position]} "
                    f"{_told(known)}, member {member_id} {_told(line)}"
                )
            elif line.monotonic_ns < known.monotonic_ns:
                deliveries[line.log_position] = line
                origin[line.log_position] = member_id
    return MergedJournal(dict(sorted(deliveries.items())), faults[:_FAULT_LIMIT])


def _told(delivery: JournalEntry) -> str:
    return (
        f"session={delivery.cluster_session_id} payload_crc={delivery.payload_crc:08x} "
        f"answer_crc={delivery.answer_crc:08x} head={delivery.head.hex()}"
    )
