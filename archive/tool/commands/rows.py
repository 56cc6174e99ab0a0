"""Recorded messages as rows: an object for programs, a line for people; of `trimaran log` and `trimaran archive`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from ....service_api.payloads import encode_payload
from ....service_api.types import TICKS_PER_MS, TimeUnit
from ...files.reader import MessageReader, RecordedMessage
from ...log.log_file import LogFile
from ...reading.message_view import APPLICATION, MessageViewer, Vocabulary
from ...reading.search import Hit, payload_start
from ...reading.snapshot_schemas import read_snapshot_schemas
from ..output import ABSENT, format_time

EXCERPT_BYTES: Final = 64
"""How much of a payload a line shows."""

BEGINNING_MESSAGES: Final = 16
"""How many messages are read to find whose recording it is, so that one damaged message does not decide it."""

HEADING: Final = f"{'rec':>5}  {'position':>14}  {'term':>5}  {'type':<22}  {'session':>20}  {'time':<24}  payload"
_IN_COLUMNS: Final = frozenset({"leadershipTermId", "clusterSessionId", "timestamp"})


class MessageRows:
    """Makes the rows of one recording."""

    def __init__(self, recording_id: int, viewer: MessageViewer, vocabulary: Vocabulary, time_unit: TimeUnit) -> None:
        self._recording_id = recording_id
        self._viewer = viewer
        self._registry = vocabulary.registry
        self._ticks_per_second = TICKS_PER_MS[time_unit] * 1_000

    @classmethod
    def of(cls, log: LogFile, vocabulary: Vocabulary) -> MessageRows:
        """Make those of a recording on a disk, of which the first messages say what it holds."""
        viewer = view_recording(log, vocabulary, is_whole=False)
        return cls(log.descriptor.recording_id, viewer, vocabulary, log.time_unit())

    @classmethod
    def of_log(cls, recording_id: int, stream_id: int, vocabulary: Vocabulary) -> MessageRows:
        """Make those of a cluster's log that is read from a member, in Aeron's and our default unit of time."""
        viewer = MessageViewer(vocabulary.registry, unknown_name=APPLICATION, content=vocabulary.streams.get(stream_id))
        return cls(recording_id, viewer, vocabulary, TimeUnit.MILLIS)

    def row(self, message: RecordedMessage, *, around: int | None = None) -> dict[str, Any]:
        """Make the object that stands for a message: as `dump --messages`, with its payload and an excerpt of that.

        The excerpt is its beginning, or the part of it around a byte of the message.
        """
        start = payload_start(message.payload, self._registry)
        return self._row(message, None if around is None else max(0, around - start))

    def hit_row(self, hit: Hit) -> dict[str, Any]:
        """Make the object that stands for what was found, with the part of its payload around that."""
        return self._row(hit.message, hit.match_start) | {"match": hit.is_match}

    def _row(self, message: RecordedMessage, match_start: int | None) -> dict[str, Any]:
        start = payload_start(message.payload, self._registry)
        near = start + max(0, (match_start or 0) - EXCERPT_BYTES // 4)
        view = self._viewer.view(message)
        timestamp = view.get("fields", {}).get("timestamp")
        time = None if timestamp is None else format_time(timestamp, ticks_per_second=self._ticks_per_second)
        payload, encoding = encode_payload(message.payload[start:]) if "payload_length" in view else (None, None)
        return {
            "recording_id": self._recording_id,
            "session_id": message.session_id,
            **view,
            "time": time,
            "payload": payload,
            "payload_encoding": encoding,
            "match": True,
            "match_offset": match_start,
            "excerpt": printable_text(message.payload[near : near + EXCERPT_BYTES]),
        }


def view_recording(log: LogFile, vocabulary: Vocabulary, *, is_whole: bool) -> MessageViewer:
    """Make the viewer of a recording; `is_whole` says that its first message is the first to be shown."""
    beginning = islice(MessageReader(log.reader()), BEGINNING_MESSAGES)
    return MessageViewer.of(
        vocabulary,
        log.descriptor.stream_id,
        beginning,
        is_whole=is_whole,
        find_schemas=lambda: read_snapshot_schemas(log.location),  # the log may have lost its beginning
    )


def printable_text(data: bytes) -> str:
    r"""Show bytes as text: what is printable ASCII as it is, the rest as `\x00`."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in data)


def as_line(row: Mapping[str, Any]) -> str:
    """Write a row as a line below `HEADING`; what is context only has a `-` after its recording id.

    The session is that of the cluster; of a message that no registry knows it is that of its first frame.
    """
    fields: Mapping[str, Any] | None = row.get("fields")
    known = {} if fields is None else fields
    session = row["session_id"] if fields is None else known.get("clusterSessionId", ABSENT)
    term, timestamp = known.get("leadershipTermId", ABSENT), known.get("timestamp")
    time = ABSENT if timestamp is None else row["time"] or str(timestamp)
    others = [f"{name}={value}" for name, value in known.items() if name not in _IN_COLUMNS]
    text = _typed_text(row["typed"]) if "typed" in row else None
    text = text or (row["excerpt"] if "payload_length" in row else " ".join(others))
    mark = "" if row["match"] else "-"
    return f"{row['recording_id']}{mark}".rjust(5) + (
        f"  {row['position']:>14}  {term:>5}  {row['name']:<22}  {session:>20}  {time:<24}  {text}"
    )


def _typed_text(typed: Mapping[str, Any]) -> str | None:
    """Write a typed message as `topic: Name field=value`; None where its class or fields are not known."""
    if "message" not in typed or "problem" in typed:
        return None
    topic = f"{typed['topic']}: " if "topic" in typed else ""
    if "schema" in typed:
        return f"{topic}schema of {typed['message']}"
    fields = (f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in typed["values"].items())
    return " ".join((topic + typed["message"], *fields))
