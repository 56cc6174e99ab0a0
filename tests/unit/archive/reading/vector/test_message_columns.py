"""Messages read by columns are those that the codec reads one by one: the golden messages, whole and cut short."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.service_api.wire.test_golden_messages import MESSAGES_ENTRIES, OLDER_ENTRIES
from trimaran.archive.format.messages import RecordingDescriptorRow
from trimaran.archive.reading.vector.message_columns import find_messages, read_messages
from trimaran.archive.reading.vector.message_plan import MessagePlan
from trimaran.archive.reading.vector.payloads import Payloads
from trimaran.cluster.messages import (
    ClusterMembersExtendedResponse,
    NewLeadershipTermEvent,
    SessionOpenEvent,
    Timer,
    TimerEvent,
)
from trimaran.service_api.errors import ConfigurationError, RemoteProtocolError
from trimaran.service_api.types import TimeUnit
from trimaran.service_api.wire.fields import BlockField, MessageLayout
from trimaran.service_api.wire.message import MESSAGES, Message, registry_key

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIMES = (-1, 2**63 - 1)

CLASSES = sorted(
    {
        (cls.SCHEMA_ID, cls.TEMPLATE_ID)
        for entry in MESSAGES_ENTRIES
        if (cls := MESSAGES[registry_key(entry["schema_id"], entry["template_id"])]).HEADER_LENGTH == 8
    }
)


def bytes_of(key: tuple[int, int]) -> list[bytes]:
    entries = (*MESSAGES_ENTRIES, *OLDER_ENTRIES)
    return [bytes.fromhex(e["hex"]) for e in entries if (e["schema_id"], e["template_id"]) == key]


def read(
    payloads: Sequence[bytes | None], message: type[Message], unit: TimeUnit | None = TimeUnit.MICROS
) -> tuple[Any, Any]:
    plan = MessagePlan.of(message, unit)
    columns, faults = read_messages(Payloads.of(pa.array(payloads, pa.binary())), plan)
    table = pa.table(columns, schema=plan.schema)
    table.validate(full=True)
    return table, faults.texts().to_pylist()


def expected_value(field: BlockField, value: Any, version: int) -> Any:
    """What a table says: names for enums, microseconds for times, NULL for what the schema calls null or absent."""
    if version < field.since or value is None or value == field.null:
        return None
    if field.is_time:
        return None if value in NO_TIMES else value
    return value.name if field.values is not None and not isinstance(value, bool) else value


def expected_fields(model: Any, layout: MessageLayout, version: int) -> dict[str, Any]:
    row = {field.name: expected_value(field, getattr(model, field.name), version) for field in layout.block}
    for group in layout.groups:
        row[group.name] = [expected_fields(e, group.layout, 1 << 16) for e in getattr(model, group.name)]
    for var in layout.var_data:
        row[var.name] = None if version < var.since else getattr(model, var.name)
    return row


def in_microseconds(table: Any) -> list[dict[str, Any]]:
    """Rows with times as numbers: most of those in the samples are beyond what a datetime can say."""
    schema = pa.schema([pa.field(field.name, with_numbers(field.type)) for field in table.schema])
    return list(table.cast(schema).to_pylist())


def with_numbers(arrow_type: Any) -> Any:
    if pa.types.is_timestamp(arrow_type):
        return pa.int64()
    if pa.types.is_list(arrow_type):
        return pa.list_(with_numbers(arrow_type.value_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, with_numbers(field.type)) for field in arrow_type])
    return arrow_type


def block_has_archive_times(key: tuple[int, int]) -> bool:
    return key[0] == 101


@pytest.mark.parametrize("key", CLASSES, ids=str)
def test_columns_are_what_the_codec_decodes(key: tuple[int, int]) -> None:
    message, payloads = MESSAGES[registry_key(*key)], bytes_of(key)

    table, reasons = read(payloads, message)

    scale = 1000 if block_has_archive_times(key) else 1
    rows = in_microseconds(table)
    times = {field.name for field in message.LAYOUT.block if field.is_time}
    assert reasons == [None] * len(payloads)
    for payload, row in zip(payloads, rows, strict=True):
        wanted = expected_fields(message.decode(payload), message.LAYOUT, int.from_bytes(payload[6:8], "little"))
        for name in times & wanted.keys():
            if wanted[name] is not None:
                wanted[name] = wanted[name] * scale if abs(wanted[name] * scale) < 2**63 else None
        assert row == wanted


@pytest.mark.parametrize("key", CLASSES, ids=str)
def test_what_the_codec_refuses_is_a_fault_and_null_and_nothing_else_is(key: tuple[int, int]) -> None:
    message, whole = MESSAGES[registry_key(*key)], bytes_of(key)[:2]
    payloads = [data[:length] for data in whole for length in range(len(data))]
    payloads += [flipped(data, at, byte) for data in whole[:1] for at in range(len(data)) for byte in (0, 0x7F, 0xFF)]

    table, reasons = read(list(payloads), message)

    rows = in_microseconds(table)
    for payload, reason, row in zip(payloads, reasons, rows, strict=True):
        assert (reason is not None) == is_refused(message, payload), payload.hex()
        if reason is not None:
            assert set(row.values()) == {None} or not row
            assert reason.startswith(message.WIRE_NAME)


def flipped(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


def is_refused(message: type[Message], payload: bytes) -> bool:
    try:
        message.decode(payload)
    except RemoteProtocolError:
        return True
    return False


def test_reason_names_the_field_and_the_numbers_as_the_codec_does() -> None:
    data = SessionOpenEvent(
        leadership_term_id=1,  # type: ignore[arg-type]
        correlation_id=2,  # type: ignore[arg-type]
        cluster_session_id=3,  # type: ignore[arg-type]
        timestamp=4,
        response_stream_id=5,
        response_channel="aeron:udp",
        encoded_principal=b"someone",
    ).encode()

    _, reasons = read([data, data[:-1], data[:20], b"", None], SessionOpenEvent)

    with pytest.raises(RemoteProtocolError) as refused:
        SessionOpenEvent.decode(data[:-1])
    assert reasons == [
        None,
        str(refused.value),
        "SessionOpenEvent block: length=36 available=12",
        "SessionOpenEvent header: length=8 available=0",
        "SessionOpenEvent header: length=8 available=0",
    ]


@pytest.mark.parametrize(
    ("unit", "ticks"), [(TimeUnit.MILLIS, 10**3), (TimeUnit.MICROS, 10**6), (TimeUnit.NANOS, 10**9)]
)
def test_times_are_points_in_time_whatever_the_unit_of_the_cluster(unit: TimeUnit, ticks: int) -> None:
    payloads = [
        TimerEvent(leadership_term_id=1, correlation_id=2, timestamp=time).encode()  # type: ignore[arg-type]
        for time in (1_700_000_000 * ticks, 0, -1, 2**63 - 1, -(2**63))
    ]

    table, _ = read(list(payloads), TimerEvent, unit)

    then = EPOCH + timedelta(seconds=1_700_000_000)
    assert table.column("timestamp").to_pylist() == [then, EPOCH, None, None, None]


def test_time_that_cannot_be_in_milliseconds_is_refused_where_nobody_said_the_unit() -> None:
    payloads = [Timer(correlation_id=1, deadline=time).encode() for time in (1_700_000_000_000, 1_700_000_000_000_000)]  # type: ignore[arg-type]

    _, assumed = read(payloads, Timer, None)
    _, told = read(payloads, Timer, TimeUnit.MILLIS)

    text = "Timer.deadline: time=1700000000000000 is beyond the year 9999 in milliseconds; give time_unit"
    assert assumed == [None, text]
    assert told == [None, None]


def test_times_of_the_archive_are_milliseconds_in_a_cluster_of_nanoseconds() -> None:
    plan = MessagePlan.of(RecordingDescriptorRow, TimeUnit.NANOS)

    units = {field.time_unit for field in plan.block.fields if field.time_unit is not None}

    assert units == {TimeUnit.MILLIS}


def test_field_newer_than_the_message_is_null_and_one_of_a_newer_schema_is_skipped() -> None:
    newest = NewLeadershipTermEvent(
        leadership_term_id=1,  # type: ignore[arg-type]
        log_position=96,
        timestamp=7,
        term_base_log_position=0,
        leader_member_id=2,  # type: ignore[arg-type]
        log_session_id=3,
        time_unit=TimeUnit.NANOS,
        app_version=1,
    ).encode()
    older = bytearray(newest[:-8])
    older[0:2], older[6:8] = (40).to_bytes(2, "little"), (3).to_bytes(2, "little")
    newer = bytearray(newest + b"\xab" * 16)
    newer[0:2], newer[6:8] = (64).to_bytes(2, "little"), (99).to_bytes(2, "little")

    table, reasons = read([newest, bytes(older), bytes(newer)], NewLeadershipTermEvent)

    assert reasons == [None, None, None]
    assert table.column("time_unit").to_pylist() == ["NANOS", None, "NANOS"]
    assert table.column("app_version").to_pylist() == [1, None, 1]
    assert table.column("log_session_id").to_pylist() == [3, 3, 3]


def test_columns_of_a_slice_with_nulls_are_those_of_its_rows() -> None:
    payloads = [None, *bytes_of((111, 43)), None, *bytes_of((111, 43))]
    plan = MessagePlan.of(ClusterMembersExtendedResponse, TimeUnit.MILLIS)
    column = pa.array(payloads, pa.binary())

    whole, _ = read_messages(Payloads.of(column), plan)
    part, faults = read_messages(Payloads.of(column[2:]), plan)
    large, _ = read_messages(Payloads.of(column.cast(pa.large_binary())), plan)

    assert [array.to_pylist()[2:] for array in whole] == [array.to_pylist() for array in part]
    assert [array.to_pylist() for array in whole] == [array.to_pylist() for array in large]
    assert faults.first() == (
        len(bytes_of((111, 43))) - 1,
        "ClusterMembersExtendedResponse header: length=8 available=0",
    )


def test_messages_of_a_class_are_found_by_schema_and_template() -> None:
    payloads = [bytes_of((111, 20))[0], bytes_of((111, 21))[0], bytes_of((101, 20))[0], b"short", None]
    plan = MessagePlan.of(TimerEvent, TimeUnit.MILLIS)

    found = find_messages(Payloads.of(pa.array(payloads, pa.binary())), plan)

    assert found.tolist() == [True, False, False, False, False]


def test_empty_column_gives_empty_columns() -> None:
    for message in (TimerEvent, SessionOpenEvent, ClusterMembersExtendedResponse):
        table, reasons = read([], message)

        assert table.num_rows == 0
        assert reasons == []


def test_what_is_no_message_class_is_refused() -> None:
    for wrong in (Message, int, "SessionOpenEvent"):
        with pytest.raises(ConfigurationError, match=r"message class"):
            MessagePlan.of(wrong, TimeUnit.MILLIS)
