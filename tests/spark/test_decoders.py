"""`decode_payload` through Spark: every kind of decoder, requests, services' messages, bad payloads."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import BaseModel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from examples.access_quota import Request
from tests.spark.log_rows import TIME, log_of, messages, requests
from trimaran.archive.spark import decode_payload
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.fields import Int32, Text, Timestamp
from trimaran.service_api.wire.log.messages import TimerEvent
from trimaran.service_api.wire.message import Message

FIRST_OF_SERVICE_1 = -(1 << 63) + (1 << 56) + 1


class Trade(Message):
    """A message of an application's own schema."""

    SCHEMA_ID: ClassVar[int] = 9001
    SCHEMA_VERSION: ClassVar[int] = 0
    TEMPLATE_ID: ClassVar[int] = 3
    quantity: Int32
    at: Timestamp
    symbol: Text = ""


class Visit(BaseModel):
    host: str
    time_s: int
    referrer: str | None = None


def timer() -> tuple[int, bytes]:
    return 0, TimerEvent(leadership_term_id=1, correlation_id=2, timestamp=3).encode()  # type: ignore[arg-type]


def decoded(df: DataFrame) -> list[Any]:
    """Payloads as tuples."""
    return [tuple(row.payload) if isinstance(row.payload, Row) else row.payload for row in df.collect()]


def read_requests(payloads: Any) -> Any:
    """The demo's requests: host TAB epoch seconds TAB url."""
    parts = pc.split_pattern(payloads.cast(pa.string()), "\t")
    host, time_s, url = (pc.list_element(parts, index) for index in range(3))
    return pa.table({"host": host, "time_s": time_s.cast(pa.int64()), "url": url})


def test_requests_of_the_demo_are_got_at_behind_their_longer_header(spark: SparkSession) -> None:
    asked = [Request("host.one", 804571201, "/a"), Request("host.two", 804571202, "/b")]
    log = log_of(spark, [*messages(b"no request"), timer(), *requests(*(one.encode() for one in asked))])

    rows = decode_payload(log, read_requests, schema="host string, time_s long, url string", requests=True)

    assert decoded(rows) == [tuple(one) for one in asked]
    assert rows.columns == [
        *("recording_id", "position", "flags", "template_id", "cluster_session_id"),
        *("request_sequence", "acknowledged_sequence", "payload", "problem"),
    ]
    places = rows.select("position", "request_sequence", "acknowledged_sequence").collect()
    assert [tuple(place) for place in places] == [(128, 1, 0), (192, 2, 1)]


def test_text_and_bytes_are_taken_as_they_are(spark: SparkSession) -> None:
    log = log_of(spark, [*messages(b"plain", b"", b"\xff"), *requests(b"asked")])

    assert decoded(decode_payload(log, bytes)) == [b"plain", b"", b"\xff", b"asked"]
    assert decoded(decode_payload(log, bytes, requests=False)) == [b"plain", b"", b"\xff"]
    rows = decode_payload(log, str).select("payload", "problem", "request_sequence").collect()
    assert [tuple(row) for row in rows] == [
        ("plain", None, None),
        ("", None, None),
        (None, "not UTF-8", None),
        ("asked", None, 1),
    ]


def test_struct_format(spark: SparkSession) -> None:
    log = log_of(spark, messages(struct.pack("<qI3s", -1, 2**32 - 1, b"abc"), b"short"))

    rows = decode_payload(log, struct.Struct("<qI3s"), names=["a", "b", "c"])

    assert decoded(rows) == [(-1, 2**32 - 1, b"abc"), None]
    assert rows.schema["payload"].dataType.simpleString() == "struct<a:bigint,b:bigint,c:binary>"
    assert [row.problem for row in rows.collect()] == [None, "struct <qI3s: length=5 expected=15"]


def test_json_by_schema_and_by_model(spark: SparkSession) -> None:
    good = b'{"host": "one", "time_s": 1, "more": [1]}'
    log = log_of(spark, messages(good, b'{"host": "two"}', b'{"host": "three", "time_s": "x"}', b"", b'["one"]'))

    by_schema = decode_payload(log, "json", schema="host string, time_s long")
    by_model = decode_payload(log, Visit)

    assert decoded(by_schema) == [("one", 1), ("two", None), None, None, None]
    assert decoded(by_model) == [("one", 1, None), None, None, None, None]
    assert [row.problem for row in by_model.collect()] == [
        None,
        "time_s is missing or null",
        'not JSON of this schema: {"host": "three", "time_s": "x"}',
        "not JSON of this schema: ",
        'not JSON of this schema: ["one"]',
    ]


def test_sbe_message_of_an_application(spark: SparkSession) -> None:
    data = Trade(quantity=7, at=TIME, symbol="ABC").encode()
    log = log_of(spark, messages(data, data[:-1], timer()[1]))

    rows = decode_payload(log, Trade).selectExpr(
        "payload.quantity", "unix_millis(payload.at)", "payload.symbol", "problem"
    )

    assert [tuple(row) for row in rows.collect()] == [
        (7, TIME, "ABC", None),
        (None, None, None, "Trade.symbol: length=3 available=2"),
        (None, None, None, "Trade: schema_id=111 expected=9001"),
    ]


def test_messages_of_services_are_told_apart(spark: SparkSession) -> None:
    log = log_of(spark, [*messages(b"client"), *messages(b"service", session=FIRST_OF_SERVICE_1)])

    assert decoded(decode_payload(log, str)) == ["client"]
    rows = decode_payload(log, str, sent_by="services").select("service_id", "payload").collect()
    assert [tuple(row) for row in rows] == [(1, "service")]
    assert [row.service_id for row in decode_payload(log, str, sent_by="all").collect()] == [None, 1]


def test_part_of_a_message_is_no_payload(spark: SparkSession) -> None:
    log = log_of(spark, messages(b"whole", b"begi"), flags=[0xC0, 0x80])

    rows = decode_payload(log, str).select("payload", "problem").collect()

    text = "a part of a message of several frames: read the log with the option messages=true"
    assert [tuple(row) for row in rows] == [("whole", None), (None, text)]


def test_bad_payloads_are_left_out_or_end_the_query_when_asked(spark: SparkSession) -> None:
    log = log_of(spark, messages(b"\x01\x00", b"bad", b"\x02\x00"))

    dropped = decode_payload(log, "<h", names=["a"], mode="DROPMALFORMED")
    failing = decode_payload(log, "<h", names=["a"], mode="FAILFAST")

    assert decoded(dropped) == [(1,), (2,)]
    assert "problem" not in dropped.columns
    with pytest.raises(PySparkException, match="recording_id=0 position=64 struct <h: length=3 expected=2"):
        failing.collect()


def test_null_of_a_callable_is_a_bad_payload(spark: SparkSession) -> None:
    def numbers(payloads: Any) -> Any:
        is_bad = pc.equal(payloads, b"bad")
        return pa.StructArray.from_arrays([pc.binary_length(payloads)], names=["length"], mask=is_bad)

    rows = decode_payload(log_of(spark, messages(b"good", b"bad")), numbers, schema="length int").collect()

    assert [(row.payload, row.problem) for row in rows] == [(Row(length=4), None), (None, "the decoder gave NULL")]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda payloads: payloads, "BinaryArray .*StructArray, RecordBatch or Table"),
        (lambda payloads: pa.table({"a": [1, 2, 3]}), "rows=3 expected=1"),
        (lambda payloads: pa.table({"b": [1]}), r"columns=\['b'\] missing=\['a'\]"),
    ],
)
def test_callable_that_gives_something_else_is_told_what(spark: SparkSession, given: Any, text: str) -> None:
    with pytest.raises(PySparkException, match=text):
        decode_payload(log_of(spark, messages(b"x")), given, schema="a long").collect()


def test_filters_behind_the_decoder_are_pushed_down(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_of(spark, messages(b"\x01\x00", b"\x02\x00")).write.parquet(str(tmp_path / "log"))

    spark.conf.set("spark.sql.maxMetadataStringLength", 1000)
    try:
        decode_payload(spark.read.parquet(str(tmp_path / "log")), "<h", names=["a"]).where("position > 3").explain()
    finally:
        spark.conf.unset("spark.sql.maxMetadataStringLength")

    assert "GreaterThan(position,3)" in capsys.readouterr().out


def test_what_cannot_be_meant_is_one_clear_line(spark: SparkSession) -> None:
    log = log_of(spark, [])
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "decoder needs names=": ("<q", {}),
        "decoder needs schema=": ("json", {}),
        r"names=\['a'\] .*this decoder": (str, {"names": ["a"]}),
        "schema='a int' .*this decoder": (Trade, {"schema": "a int"}),
        "schema='so on and on'": ("json", {"schema": "so on and on"}),
        "decoder=<class 'int'> .*struct": (int, {}),
        "sent_by='me' .*clients, services, all": (str, {"sent_by": "me"}),
        "mode='LAX' .*PERMISSIVE": (str, {"mode": "LAX"}),
    }

    for text, (decoder, options) in calls.items():
        with pytest.raises(ConfigurationError, match=text):
            decode_payload(log, decoder, **options)
    with pytest.raises(ConfigurationError, match="missing=cluster_session_id"):
        decode_payload(log.drop("cluster_session_id"), str)
