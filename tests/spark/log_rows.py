"""Logs of a few messages as DataFrames, without files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from trimaran.service_api.wire.log.messages import encode_session_message
from trimaran.service_api.wire.request import REQUEST_HEADER, REQUEST_MESSAGE

CLIENT: Final = 5
TIME: Final = 1_700_000_000_000


def log_of(spark: SparkSession, messages: Sequence[tuple[int, bytes]], *, flags: Sequence[int] = ()) -> DataFrame:
    """A log of messages: session id and the whole SBE message; a timer has the session id 0."""
    count = len(messages)
    templates = [int.from_bytes(data[2:4], "little") for _, data in messages]
    table = pa.table(
        {
            "recording_id": pa.array([0] * count, pa.int64()),
            "position": pa.array(range(0, 64 * count, 64), pa.int64()),
            "flags": pa.array(flags or [0xC0] * count, pa.int16()),
            "template_id": pa.array(templates, pa.int32()),
            "cluster_session_id": pa.array([session or None for session, _ in messages], pa.int64()),
            "payload": pa.array([data for _, data in messages], pa.binary()),
        }
    )
    return spark.createDataFrame(table)


def messages(*payloads: bytes, session: int = CLIENT) -> list[tuple[int, bytes]]:
    return [(session, encode_session_message(1, session, TIME, payload)) for payload in payloads]


def requests(*payloads: bytes) -> list[tuple[int, bytes]]:
    return [
        (CLIENT, REQUEST_HEADER.pack(*REQUEST_MESSAGE, 1, CLIENT, TIME, index + 1, index) + payload)
        for index, payload in enumerate(payloads)
    ]
