"""What the truth beside the Aeron samples says of a log, computed in plain Python for the tests of the analyses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from tests.interchange.samples import truth_of
from trimaran.archive.report.engine.frames import SqlFrame


@dataclass(slots=True)
class Entry:
    """One message of a log, with the frames that it takes and the padding that follows it."""

    message: dict[str, Any]
    frames: list[dict[str, Any]]

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self.message["fields"])

    @property
    def name(self) -> str:
        return str(self.message["name"])

    @property
    def position(self) -> int:
        return int(self.message["position"])

    @property
    def end_position(self) -> int:
        """Where the next entry begins."""
        last = self.frames[-1]
        return int(last["position"]) + (int(last["frame_length"]) + 31) // 32 * 32

    @property
    def payload_bytes(self) -> int:
        return sum(frame["frame_length"] - 32 for frame in self.frames if frame["type"] == 1)

    @property
    def session(self) -> tuple[int | None, int | None]:
        """The client's session, or the service."""
        session_id = self.fields["clusterSessionId"]
        return (session_id, None) if session_id >= 0 else (None, (session_id + 2**63) >> 56)


class LogTruth:
    """The log of one node of the samples."""

    def __init__(self, name: str) -> None:
        self.recording: dict[str, Any] = next(r for r in truth_of(name)["recordings"] if r["kind"] == "log")
        self.frames: list[dict[str, Any]] = self.recording["frames"]
        self.messages: list[dict[str, Any]] = self.recording["messages"]
        self.time_unit: str = self.messages[0]["fields"]["timeUnit"]
        self.entries = list(self._entries())

    def micros(self, timestamp: int) -> int:
        """A time of the log in microseconds, as Spark keeps it."""
        return timestamp // 1000 if self.time_unit == "NANOS" else timestamp * 1000

    def time(self, entry: Entry) -> int:
        return self.micros(entry.fields["timestamp"])

    def of(self, name: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.name == name]

    def _entries(self) -> Iterator[Entry]:
        starts = {message["position"]: message for message in self.messages}
        entry: Entry | None = None
        for frame in self.frames:
            if frame["position"] in starts:
                if entry is not None:
                    yield entry
                entry = Entry(starts[frame["position"]], [frame])
            else:
                assert entry is not None
                entry.frames.append(frame)
        assert entry is not None
        yield entry


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Collect a frame of either engine; timestamps become microseconds since 1970, whatever this zone is."""
    if isinstance(frame, SqlFrame):
        return [{name: _value_of(value) for name, value in row.items()} for row in frame.collect()]
    times = {field.name for field in frame.schema.fields if isinstance(field.dataType, TimestampType)}
    columns = [(F.unix_micros(name) if name in times else F.col(name)).alias(name) for name in frame.columns]
    return [row.asDict(recursive=True) for row in frame.select(*columns).collect()]


def _value_of(value: Any) -> Any:
    return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) if isinstance(value, datetime) else value
