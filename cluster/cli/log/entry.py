"""One entry of the log as it is shown: who wrote it when, what it is, and its payload whole or as a preview."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

from trimaran.archive.files.reader import RecordedMessage
from trimaran.archive.reading.message_view import find_message
from trimaran.archive.tool.output import format_time
from trimaran.service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, peek_header
from trimaran.service_api.wire.session import SessionMessageHeader

from ...messages import LOG_MESSAGES

UNKNOWN_TYPE: Final = "unknown"
TABLE_HEADING: Final = (
    f"{'position':>14}  {'term':>5}  {'type':<22}  {'session':>20}  {'time':<24}  payload, or what the entry says"
)
_COLUMNS: Final = ("leadership_term_id", "cluster_session_id", "timestamp")
"""What has a column of its own; the rest of an entry's fields stands in the last one."""


@dataclass(slots=True, frozen=True, kw_only=True)
class LogEntry:
    """An entry of the log. In JSON all keys are always there."""

    position: int
    """Where it begins in the log."""
    end_position: int
    leadership_term_id: int | None
    type: str
    """The message's name in the schema, such as `SessionOpenEvent`; `unknown` for what no version of it has."""
    cluster_session_id: int | None
    timestamp: int | None
    """Cluster time: milliseconds since the Unix epoch, unless the cluster counts otherwise."""
    time: str | None
    """The same as a date, for people."""
    fields: dict[str, Any]
    """What else the entry says."""
    payload_length: int
    payload: str | None
    """A client's message, whole; None where an entry has none."""
    payload_encoding: str | None
    """`utf-8` where the payload is text, otherwise `base64`."""

    def as_dict(self) -> dict[str, Any]:
        """Make the object that stands for the entry in JSON."""
        return asdict(self)

    def as_line(self, width: int) -> str:
        """Write the entry as one line of at most `width` columns, in the columns of `TABLE_HEADING`."""
        term, session = (
            "-" if value is None else str(value) for value in (self.leadership_term_id, self.cluster_session_id)
        )
        line = (
            f"{self.position:>14}  {term:>5}  {self.type:<22}  {session:>20}  {self.time or '-':<24}  {self._summary()}"
        )
        return line if len(line) <= width else line[: width - 1] + "…"

    def _summary(self) -> str:
        facts = " ".join(f"{name}={value}" for name, value in self.fields.items())
        if self.payload is None:
            return facts
        preview = self.payload if self.payload_encoding == "utf-8" else f"base64:{self.payload}"
        return " ".join(part for part in (facts, f"{self.payload_length} bytes:", preview) if part)


def make_entry(message: RecordedMessage) -> LogEntry:
    """Read one message of a log; what cannot be decoded is an entry of unknown type, all payload."""
    decoded = find_message(message.payload, LOG_MESSAGES)
    payload = _application_payload(message.payload, decoded)
    values = {} if decoded is None else _values(decoded)
    text, encoding = (None, None) if payload is None else encode_payload(payload)
    timestamp = values.get("timestamp")
    return LogEntry(
        position=message.position,
        end_position=message.end_position,
        leadership_term_id=values.get("leadership_term_id"),
        type=UNKNOWN_TYPE if decoded is None else decoded.WIRE_NAME,
        cluster_session_id=values.get("cluster_session_id"),
        timestamp=timestamp,
        time=None if timestamp is None else format_time(timestamp),
        fields={name: value for name, value in values.items() if name not in _COLUMNS},
        payload_length=0 if payload is None else len(payload),
        payload=text,
        payload_encoding=encoding,
    )


def encode_payload(payload: bytes) -> tuple[str, str]:
    """Give a payload as text, and how: text that can be shown is itself, anything else base64."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and text.isprintable():
        return text, "utf-8"
    return base64.b64encode(payload).decode(), "base64"


def _application_payload(data: bytes, decoded: Message | None) -> bytes | None:
    """Give what a client or a service wrote: all that stands behind the header, however long that is."""
    if decoded is None:
        return data
    if not isinstance(decoded, SessionMessageHeader):
        return None
    block_length, _, _, _ = peek_header(data)
    return data[MESSAGE_HEADER_LENGTH + block_length :]


def _values(message: Message) -> dict[str, Any]:
    """Give the fields of a message as JSON knows them; what is absent on the wire is None."""
    return {name: _plain(value) for name, value in message}


def _plain(value: Any) -> Any:  # what a field holds, and what JSON can hold
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return encode_payload(value)[0]
    if isinstance(value, str):
        return "".join(char if char.isprintable() else "?" for char in value)
    return value
