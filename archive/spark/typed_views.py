"""`typed_messages`: what typed services were sent and have published, by the names of its classes and fields.

The log holds the schema of each class before the first message of it, so no class is needed here. The driver reads the
schemas first: `typed_schemas`. Which class a message is of is found by Spark's own expressions; only its fields are
read in Python, and only if somebody selects them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.typed.log_schemas import LogSchemas
from ...service_api.typed.schema import Schema
from ...service_api.typed.snapshots import SNAPSHOT_BEGIN, field_number, read_pairs
from ...service_api.wire.payload_header import (
    FINGERPRINT_BYTES,
    HEADER_BYTES,
    MAGIC,
    SERVICE_ID_LIMIT,
    PayloadKind,
    tag_of,
)
from ...service_api.wire.topics import TOPIC_MARK
from ..reading.schema_search import SchemaSearch
from ..reading.vector.typed_columns import merged_fields
from .decoders import BODY, READ, WRONG, session_messages, with_bodies
from .executor_readers import PLACE, PROBLEM
from .messages import expect_columns
from .typed_readers import FieldReader

SCHEMA_LIMIT_COUNT: Final = 65_536
"""How many schemas are read of a log: a service takes 4,096 from clients."""

_UNKNOWN: Final = (
    "no schema in the log, so the class is not known; if its beginning was removed, give "
    "schemas=typed_schemas(log, snapshots=...)"
)
_TYPED: Final = "_typed"
_COLUMNS: Final = ("request_sequence", "acknowledged_sequence", "service_id", "topic", "kind", "message", "fields")
_KINDS: Final = {PayloadKind.COMMAND: "command", PayloadKind.EVENT: "event", PayloadKind.SCHEMA: "schema"}


def typed_schemas(df: DataFrame, *, snapshots: DataFrame | None = None) -> LogSchemas:
    """Read the schemas of typed messages that are in a log: all of it is read once.

    `df` is as for `typed_messages`. If the beginning of the log was removed, it may lack schemas that were announced
    there. `snapshots` has them: recordings of snapshots of typed services, with recording_id, position and payload,
    read with the options recordingId=all and messages=true.

    Raises:
        ConfigurationError: a column is missing, or it is a stream.
    """
    if df.isStreaming:
        raise ConfigurationError(
            "a stream has no end: give log=, the directory of the log, or schemas=typed_schemas(log) of a batch of it"
        )
    schemas = LogSchemas()
    for body in [*_schemas_in_snapshots(snapshots), *_schemas_in_log(df)]:
        try:
            schemas.note(body)
        except RemoteProtocolError:
            continue  # the service refused it
    return schemas


def _schemas_in_log(df: DataFrame) -> list[bytes]:
    rows = _typed_rows(df).where((F.col("kind") == _KINDS[PayloadKind.SCHEMA]) & F.col(WRONG).isNull())
    body = F.col(_TYPED).substr(F.lit(HEADER_BYTES + 1), F.length(_TYPED))
    place = F.col("position") if "position" in df.columns else F.lit(0)
    found = rows.select(body.alias(BODY), place.alias("place")).groupBy(BODY).agg(F.min("place").alias("place"))
    return [bytes(row[BODY]) for row in found.orderBy("place", BODY).limit(SCHEMA_LIMIT_COUNT).collect()]


def _schemas_in_snapshots(snapshots: DataFrame | None) -> list[bytes]:
    """Read what services know of clients' schemas: that is in their state."""
    if snapshots is None:
        return []
    expect_columns(snapshots, (*PLACE, "payload"))
    begins = F.substring("payload", 1, len(SNAPSHOT_BEGIN)) == F.lit(SNAPSHOT_BEGIN)
    found: list[bytes] = []
    for row in snapshots.where(begins).select(*PLACE, "payload").orderBy(*PLACE).collect():
        number = field_number(bytes(row.payload), "known_schemas")
        if number is None:
            continue
        is_piece = (F.col("recording_id") == row.recording_id) & (F.col("position") > row.position)
        is_piece &= F.substring("payload", 1, 2) == F.lit(number.to_bytes(2, "little"))
        pieces = snapshots.where(is_piece).select("position", "payload").orderBy("position").collect()
        found += [bytes(schema) for _, schema in read_pairs(bytes(piece.payload) for piece in pieces)]
    return found


def typed_messages(
    df: DataFrame,
    message: str | None = None,
    *,
    schemas: LogSchemas | None = None,
    log: str | Path | None = None,
) -> DataFrame:
    """Show the messages of typed clients and the published events of typed services by name.

    `df` has payload and cluster_session_id, and better template_id, position and flags, as docs/archive-frames.md
    says; read it with the option messages=true. Its other columns stay. Instead of `payload` there are

    - `request_sequence`, `acknowledged_sequence`: of a request; `topic`: of what a service published.
    - `service_id`: of the service that published, or that a typed request is for.
    - `kind`: command, event or schema; NULL for a payload that is not typed.
    - `message`: the name of the class. NULL if the log has no schema for it, or the payload is not typed.
    - `fields`: with `message`, a struct of the class's fields, in Spark's types; else JSON text.
    - `bytes`: the payload of the application, where `fields` is NULL; `problem`: why it is so.

    `message` chooses the messages of one class, of all its versions: a field that a version does not have is NULL.
    `schemas` are those of `typed_schemas`; without it they are read from `df` at once. With `log`, the directory or URL
    of the same log, they are read from there, and a stream reads those of newer versions as they come: with `message`
    one that has other columns ends the query, and a restart goes on there. Messages of a stream whose class is not
    known are rows with a `problem`, also with `message`.

    Raises:
        ConfigurationError: a column is missing, the log has no such class, or a stream comes without schemas.
    """
    search = None if log is None else SchemaSearch.open(log)
    found = search.schemas if search is not None else typed_schemas(df) if schemas is None else schemas
    rows, versions = _typed_rows(df), found.of_class(message)
    if message is not None:
        if not versions:
            known = ", ".join(sorted({schema["name"] for schema in found.of_class().values()})) or "none"
            raise ConfigurationError(
                f"message={message!r} expected a class whose schema is in the log: {known}; if its "
                "beginning was removed, give schemas=typed_schemas(log, snapshots=...)"
            )
        others = found.of_class().keys() - versions
        is_wanted = _fingerprint().isin(list(versions)) if not df.isStreaming else _is_none_of(others)
        rows = rows.where(F.col("kind").isin(_KINDS[PayloadKind.COMMAND], _KINDS[PayloadKind.EVENT]) & is_wanted)
    fields = None if message is None else merged_fields(list(versions.values()))
    reader = FieldReader(versions, fields, name=message, search=search if df.isStreaming else None)
    shown = _with_fields(rows.withColumn("message", _message_name(versions)), reader, is_open=df.isStreaming)
    if message is not None and df.isStreaming:
        shown = shown.where(F.coalesce(F.col("message"), F.lit(message)) == F.lit(message))
    kept = [name for name in df.columns if name != "payload"]
    return shown.select(*kept, *_COLUMNS, "bytes", PROBLEM)


def _is_none_of(fingerprints: Collection[bytes]) -> Column:
    return ~_fingerprint().isin(list(fingerprints)) if fingerprints else F.lit(True)


def _typed_rows(df: DataFrame) -> DataFrame:
    """Find the typed payload of each session message, `_typed`, its kind, and the topic that it was published to."""
    expect_columns(df, ("payload", "cluster_session_id"))
    rows = with_bodies(session_messages(df, "all", None))
    body = F.col(BODY)
    mark = len(TOPIC_MARK)
    is_topic = (F.col("cluster_session_id") < 0) & (F.substring(body, 1, mark) == F.lit(TOPIC_MARK))
    length = F.conv(F.hex(F.substring(body, mark + 1, 1)), 16, 10).try_cast("int")
    rows = rows.withColumn("topic", F.when(is_topic, body.substr(F.lit(mark + 2), length).cast("string")))
    typed = F.when(is_topic, body.substr(length + mark + 2, F.length(body))).otherwise(body)
    rows = rows.withColumn(_TYPED, typed)
    header = F.when(F.length(_TYPED) >= HEADER_BYTES, F.hex(F.substring(_TYPED, 1, 2)))
    tags = [(number, each) for number in _KINDS for each in range(SERVICE_ID_LIMIT)]
    names = [F.lit(one) for tag in tags for one in (f"{MAGIC:02X}{tag_of(*tag):02X}", _KINDS[tag[0]])]
    kind = F.try_element_at(F.create_map(*names), header)
    addressee = F.when(kind.isNotNull(), F.conv(F.substring(header, 3, 1), 16, 10).cast("int"))
    return rows.withColumn("kind", kind).withColumn("service_id", F.coalesce("service_id", addressee))


def _fingerprint() -> Column:
    return F.substring(_TYPED, 3, FINGERPRINT_BYTES)


def _message_name(schemas: dict[bytes, Schema]) -> Column:
    """The name of the class: by its fingerprint, which of an announcement is that of the schema that it announces."""
    if not schemas:
        return F.lit(None).cast("string")
    pairs = [F.lit(text) for each, schema in schemas.items() for text in (each.hex().upper(), schema["name"])]
    return F.when(F.col("kind").isNotNull(), F.try_element_at(F.create_map(*pairs), F.hex(_fingerprint())))


def _with_fields(rows: DataFrame, reader: FieldReader, *, is_open: bool) -> DataFrame:
    """Add what is read of each message; `is_open`: of classes, too, that the driver does not know yet."""
    value_type = from_arrow_type(reader.value_type, False)
    text = StringType()
    returned = StructType([StructField("value", value_type), StructField(PROBLEM, text), StructField("message", text)])
    read = arrow_udf(reader.__call__, returned)  # type: ignore[call-overload]
    is_readable = F.col(WRONG).isNull() & F.col("kind" if is_open else "message").isNotNull()
    if is_open:
        read = read.asNondeterministic()  # else Spark reads each message twice: rows are chosen by the class
    rows = rows.withColumn(READ, read(F.when(is_readable, F.col(_TYPED))))
    if is_open:
        rows = rows.withColumn("message", F.coalesce("message", F.col(READ)["message"]))
    fingerprint = F.lower(F.hex(_fingerprint()))
    unknown = F.concat(F.lit(f"{_UNKNOWN}: fingerprint="), fingerprint)
    problem = F.when(F.col("kind").isNull(), F.lit("not typed")).when(F.col("message").isNull(), unknown)
    rows = rows.withColumn(PROBLEM, F.coalesce(F.col(WRONG), problem, F.col(READ)[PROBLEM]))
    rows = rows.withColumn("fields", F.col(READ)["value"])
    return rows.withColumn("bytes", F.when(F.col("fields").isNull(), F.col(BODY)))
