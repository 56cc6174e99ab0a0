"""Recorded messages as rows: an object for programs, a line for people."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ...files.reader import FrameReader, MessageReader, RecordedMessage
from ...format.descriptor import RecordingDescriptor
from ...reading.message_view import MessageViewer, Vocabulary
from ...reading.search import Hit, payload_start
from ..output import ABSENT, format_time

EXCERPT_BYTES: Final = 64
"""How much of a payload a row shows as text."""

BEGINNING_MESSAGES: Final = 16
"""So many messages are looked at to tell whose recording it is."""

HEADING: Final = f"{'rec':>5}  {'position':>14}  {'type':<22}  {'session':>20}  {'time':<24}  payload"


class MessageRows:
    """Makes the rows of one recording."""

    def __init__(self, directory: Path, descriptor: RecordingDescriptor, vocabulary: Vocabulary) -> None:
        beginning = islice(MessageReader(FrameReader(directory, descriptor)), BEGINNING_MESSAGES)
        self._viewer = MessageViewer.of(vocabulary, descriptor.stream_id, beginning, is_whole=False)
        self._recording_id = int(descriptor.recording_id)
        self._registry = vocabulary.registry

    def row(self, message: RecordedMessage, *, around: int | None = None) -> dict[str, Any]:
        """Make the object that stands for a message: as `dump --messages`, with the beginning of its payload.

        Or with the part of it around a byte of the message.
        """
        start = payload_start(message.payload, self._registry)
        return self._row(message, None if around is None else max(0, around - start))

    def hit_row(self, hit: Hit) -> dict[str, Any]:
        """Make the object that stands for what was found, with the part of its payload around that."""
        return self._row(hit.message, hit.match_start)

    def _row(self, message: RecordedMessage, match_start: int | None) -> dict[str, Any]:
        start = payload_start(message.payload, self._registry)
        near = start + max(0, (match_start or 0) - EXCERPT_BYTES // 4)
        return {
            "recording_id": self._recording_id,
            "session_id": message.session_id,
            **self._viewer.view(message),
            "match_offset": match_start,
            "excerpt": as_text(message.payload[near : near + EXCERPT_BYTES]),
        }


def as_text(data: bytes) -> str:
    r"""Show bytes as text: what is printable ASCII as it is, the rest as `\x00`."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in data)


def as_line(row: Mapping[str, Any]) -> str:
    """Write a row as a line below `HEADING`; what is context only has a `-` behind its recording id."""
    fields: Mapping[str, Any] = row.get("fields", {})
    session = fields.get("clusterSessionId", row["session_id"])
    timestamp = fields.get("timestamp")
    time = ABSENT if timestamp is None else format_time(timestamp) or str(timestamp)
    others = [f"{name}={value}" for name, value in fields.items() if name not in _IN_COLUMNS]
    text = row["excerpt"] if "payload_length" in row else " ".join(others)
    mark = "" if row.get("match", True) else "-"
    return f"{row['recording_id']}{mark}".rjust(5) + (
        f"  {row['position']:>14}  {row['name']:<22}  {session:>20}  {time:<24}  {text}"
    )


_IN_COLUMNS: Final = frozenset({"leadershipTermId", "clusterSessionId", "timestamp"})
