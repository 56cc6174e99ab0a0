"""`decode_payload`: the payloads of applications as typed columns.

An application's payload lies after the session message header, and after 16 bytes more where it is a request
(`request`). Spark's own expressions find it, so that filters on other columns go on to be pushed down
to the data source, and what nobody selects is not computed. JSON is then read in the JVM, everything else by whole
Arrow arrays in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from ...service_api.errors import ConfigurationError
from ...service_api.types import TimeUnit
from ...service_api.wire.message import MESSAGE_HEADER_LENGTH, Message
from ...service_api.wire.request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER_LENGTH
from ...service_api.wire.session import SESSION_HEADER_LENGTH, SESSION_MESSAGE, SessionMessageHeader
from ..reading.vector.message_columns import read_messages
from ..reading.vector.message_plan import MessagePlan
from ..reading.vector.struct_columns import StructPlan, read_structs
from .executor_readers import (
    DROPMALFORMED,
    FAILFAST,
    PROBLEM,
    BodyReader,
    function_reader,
    make_body_decoder,
    plan_reader,
)
from .json_schema import json_schema, required_fields
from .messages import check_mode, expect_columns
from .source.timestamps import parse_time_unit

Decoder = str | struct.Struct | type | Callable[[Any], Any]
"""See `decode_payload`."""

JSON: Final = "json"
SENDERS: Final = ("clients", "services", "all")

BODY: Final = "_body"
READ: Final = "_read"
WRONG: Final = "_wrong"
_PLAIN: Final = SESSION_MESSAGE[0].to_bytes(2, "little")
_REQUEST: Final = REQUEST_BLOCK_LENGTH.to_bytes(2, "little")
"""The block lengths of a session message and of a request, as they lie in its first two bytes."""
_UNFRAGMENTED: Final = 0xC0
_PREVIEW_LENGTH: Final = 60
_MIN_INT64: Final = -(1 << 63)
_SERVICE_SHIFT: Final = 56


def decode_payload(
    df: DataFrame,
    decoder: Decoder,
    *,
    names: Sequence[str] | None = None,
    schema: StructType | str | None = None,
    sent_by: str = "clients",
    requests: bool | None = None,
    time_unit: TimeUnit | str | None = None,
    mode: str = "PERMISSIVE",
) -> DataFrame:
    """Decode the application's payloads of a log: the rows of session messages, `payload` decoded.

    `df` has payload, and better template_id, position and flags, as docs/archive-frames.md says. Its other columns
    stay as they are. `payload` becomes a struct of the decoder's columns: `select("position", "payload.*")`. New
    columns: `request_sequence` and `acknowledged_sequence`, NULL in what is no request, and `problem`.

    `decoder` is one of

    - `bytes` or `str`: the payload itself, as binary or as UTF-8 text; then `payload` is no struct.
    - a `struct` format, "<qi8s", or a `struct.Struct`, with a name in `names` for each of its values; one more name
      takes the bytes after them. Unsigned numbers get the next longer type.
    - "json" with a `schema` as Spark writes it, "host string, time_s long"; or a pydantic model for what it is in
      JSON: its types and which fields are required are held to, its own validators do not run.
    - a message class of `trimaran.service_api.wire`, for SBE.
    - a callable with a `schema`: given a `pyarrow.BinaryArray`, it gives a StructArray, RecordBatch or Table of as many
      rows. NULL in a StructArray is a bad payload; an exception ends the query.

    `sent_by`: clients, services (adds `service_id`) or all. `requests`: True takes requests alone, False other messages
    alone. `time_unit` is that of times in SBE messages, as for `log_messages`.

    `mode` says what becomes of a bad payload, one that does not decode or that is only a part of a message of several
    frames. PERMISSIVE: `payload` is NULL and `problem` says why. DROPMALFORMED: no row. FAILFAST: the query ends with
    the position and the reason.

    Raises:
        ConfigurationError: a column is missing, or the arguments do not say how to decode.
    """
    check_mode(mode)
    if sent_by not in SENDERS:
        raise ConfigurationError(f"sent_by={sent_by!r} expected one of {', '.join(SENDERS)}")
    expect_columns(df, ("payload",) if sent_by == "all" else ("payload", "cluster_session_id"))
    kept = [name for name in df.columns if name != "payload"]
    rows = with_bodies(session_messages(df, sent_by, requests))
    rows = _DecoderChoice(names, schema, parse_time_unit(time_unit), mode == DROPMALFORMED).apply(rows, decoder)
    added = ["request_sequence", "acknowledged_sequence"] if requests is not False else []
    added += ["service_id"] if sent_by != "clients" else []
    if mode == DROPMALFORMED:
        return rows.where(F.col(PROBLEM).isNull()).select(*kept, *added, "payload")
    if mode == FAILFAST:
        place = F.concat_ws(" ", *(F.concat(F.lit(f"{n}="), n) for n in ("recording_id", "position") if n in kept))
        failed = F.raise_error(F.concat(place, F.lit(" "), PROBLEM))
        rows = rows.withColumn("payload", F.when(F.col(PROBLEM).isNotNull(), failed).otherwise(F.col("payload")))
        return rows.select(*kept, *added, "payload")
    return rows.select(*kept, *added, "payload", PROBLEM)


def session_messages(df: DataFrame, sent_by: str, requests: bool | None) -> DataFrame:
    """Choose the rows that begin a session message."""
    if "template_id" in df.columns:
        df = df.where(F.col("template_id") == SessionMessageHeader.TEMPLATE_ID)
    else:
        identity = struct.pack("<HH", SessionMessageHeader.TEMPLATE_ID, SessionMessageHeader.SCHEMA_ID)
        df = df.where(F.substring("payload", 3, 4) == F.lit(identity))
    if sent_by != "all":
        df = df.where(F.col("cluster_session_id") >= 0 if sent_by == "clients" else F.col("cluster_session_id") < 0)
    if requests is not None:
        df = df.where(_is_request() == F.lit(requests))
    return df


def with_bodies(df: DataFrame) -> DataFrame:
    """Add what lies after the header, the numbers of a request, the service; and `_wrong`, why there is no body."""
    wrong = F.lit(None).cast("string")
    if "flags" in df.columns:
        text = "a part of a message of several frames: read the log with the option messages=true"
        wrong = F.when(F.col("flags").bitwiseAND(_UNFRAGMENTED) != _UNFRAGMENTED, text)
    block_length = F.substring("payload", 1, 2)
    begin = F.when(block_length == F.lit(_PLAIN), SESSION_HEADER_LENGTH)
    begin = begin.when(block_length == F.lit(_REQUEST), REQUEST_HEADER_LENGTH)
    begin = begin.otherwise((MESSAGE_HEADER_LENGTH + _little_endian(1, 2)).cast("int"))
    columns = {
        BODY: F.col("payload").substr(begin + 1, F.length("payload")),
        "request_sequence": F.when(_is_request(), _little_endian(33, 8)),
        "acknowledged_sequence": F.when(_is_request(), _little_endian(41, 8)),
        WRONG: wrong,
    }
    if "cluster_session_id" in df.columns:
        service = F.shiftrightunsigned(F.col("cluster_session_id").bitwiseXOR(F.lit(_MIN_INT64)), _SERVICE_SHIFT)
        columns["service_id"] = F.when(F.col("cluster_session_id") < 0, service.cast("int"))
    return df.withColumns(columns)


def _is_request() -> Column:
    return F.substring("payload", 1, 2) == F.lit(_REQUEST)


def _little_endian(first: int, length: int) -> Column:
    """A number in the payload; `first` counts from 1, as SQL does."""
    digits = [F.hex(F.substring("payload", first + index, 1)) for index in reversed(range(length))]
    return F.conv(F.concat(*digits), 16, 10).try_cast("long")


class _DecoderChoice:
    """What the caller said about decoding; turns `_body` into `payload` and `problem`."""

    def __init__(
        self,
        names: Sequence[str] | None,
        schema: StructType | str | None,
        time_unit: TimeUnit | None,
        is_filtered: bool,
    ) -> None:
        self._names = names
        self._schema = schema
        self._time_unit = time_unit
        self._is_filtered = is_filtered

    def apply(self, rows: DataFrame, decoder: Decoder) -> DataFrame:
        """Decode by what the decoder is."""
        if isinstance(decoder, struct.Struct) or (isinstance(decoder, str) and decoder != JSON):
            return self._apply_struct(rows, decoder)
        self._expect(names=False, schema=decoder == JSON or _is_function(decoder))
        if decoder is bytes:
            return _decoded(rows, F.col(BODY), F.lit(None).cast("string"))
        if decoder is str:
            is_text = F.is_valid_utf8(F.col(BODY))
            return _decoded(rows, F.col(BODY).cast("string"), F.when(~is_text, F.lit("not UTF-8")))
        if decoder == JSON:
            return _apply_json(rows, _struct_type(self._schema), ())
        if isinstance(decoder, type) and issubclass(decoder, Message):
            plan = MessagePlan.of(decoder, self._time_unit)
            return _apply_python(
                rows, plan_reader(read_messages, plan), _spark_struct(plan.schema), is_filtered=self._is_filtered
            )
        if isinstance(decoder, type) and issubclass(decoder, BaseModel):
            return _apply_json(rows, json_schema(decoder), required_fields(decoder))
        if isinstance(decoder, str | type):
            raise ConfigurationError(
                f"decoder={decoder!r} expected bytes, str, a struct format, 'json', a model, message or callable"
            )
        schema = _struct_type(self._schema)
        reader = function_reader(decoder, to_arrow_type(schema, timezone="UTC"))
        return _apply_python(rows, reader, schema, is_filtered=self._is_filtered)

    def _apply_struct(self, rows: DataFrame, decoder: str | struct.Struct) -> DataFrame:
        self._expect(names=True, schema=False)
        plan = StructPlan.of(decoder if isinstance(decoder, str) else decoder.format, tuple(self._names or ()))
        return _apply_python(
            rows, plan_reader(read_structs, plan), _spark_struct(plan.schema), is_filtered=self._is_filtered
        )

    def _expect(self, *, names: bool, schema: bool) -> None:
        """Refuse what the decoder does not take, or lacks."""
        for name, value, is_taken in (("names", self._names, names), ("schema", self._schema, schema)):
            if is_taken and value is None:
                raise ConfigurationError(f"this decoder needs {name}=")
            if not is_taken and value is not None:
                raise ConfigurationError(f"{name}={value!r} is not for this decoder")


def _is_function(decoder: Any) -> bool:
    return callable(decoder) and not isinstance(decoder, type)


def _decoded(rows: DataFrame, value: Column, problem: Column) -> DataFrame:
    """Put the value in the place of the payload, unless there is no body or the value is bad."""
    rows = rows.withColumn(PROBLEM, F.coalesce(F.col(WRONG), problem))
    return rows.withColumn("payload", F.when(F.col(PROBLEM).isNull(), value))


def _apply_json(rows: DataFrame, schema: StructType, required: Sequence[str]) -> DataFrame:
    """Read JSON in the JVM: it takes each payload by itself, so one bad text spoils no other."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": WRONG}
    with_corrupt = StructType([*schema.fields, StructField(WRONG, StringType())])
    rows = rows.withColumn(READ, F.from_json(F.col(BODY).cast("string"), with_corrupt, options))
    text = F.substring(F.col(BODY).cast("string"), 1, _PREVIEW_LENGTH)
    is_bad = F.col(READ).isNull() | F.col(READ)[WRONG].isNotNull()
    problem = F.when(is_bad, F.concat(F.lit("not JSON of this schema: "), text))
    for name in required:
        problem = problem.when(F.col(READ)[name].isNull(), F.lit(f"{name} is missing or null"))
    return _decoded(rows, F.struct(*(F.col(READ)[name].alias(name) for name in schema.names)), problem)


def _apply_python(rows: DataFrame, read: BodyReader, schema: StructType, *, is_filtered: bool) -> DataFrame:
    """Read by whole arrays in Python; other columns stay in the JVM.

    `is_filtered`: rows will be chosen by what came out. Spark would then decode twice, once for the filter; it does not
    if the decoder is said not to be deterministic, at the price that filters after it are not pushed down.
    """
    returned = StructType([StructField("value", schema), StructField(PROBLEM, StringType())])
    decoder = arrow_udf(make_body_decoder(read), returned)  # type: ignore[call-overload]
    if is_filtered:
        decoder = decoder.asNondeterministic()
    body = F.when(F.col(WRONG).isNull(), F.col(BODY))
    rows = rows.withColumn(READ, decoder(body))
    return _decoded(rows, F.col(READ)["value"], F.col(READ)[PROBLEM])


def _struct_type(schema: StructType | str | None) -> StructType:
    """Read a schema as Spark writes it.

    Raises:
        ConfigurationError: it is none.
    """
    if isinstance(schema, StructType):
        return schema
    try:
        found = StructType.fromDDL(schema or "")
    except Exception as error:  # Spark has no one class for it: a parser's, or that of a JVM
        raise ConfigurationError(f"schema={schema!r} expected such as 'host string, time_s long'") from error
    if not isinstance(found, StructType):
        raise ConfigurationError(f"schema={schema!r} expected such as 'host string, time_s long'")
    return found


def _spark_struct(schema: Any) -> StructType:
    return StructType([StructField(field.name, from_arrow_type(field.type, False)) for field in schema])
