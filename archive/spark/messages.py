"""`log_messages`: the messages of one class as typed columns.

The columns are those of the message's pydantic model, in its order; archive knows no class of the cluster, so the
caller passes it in. Executors get a plan of names and numbers, never the class, and read whole batches by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from ...service_api.errors import ConfigurationError
from ...service_api.types import TimeUnit
from ...service_api.wire.log.fields import LOG_FIELDS
from ...service_api.wire.log.layout import LOG_SCHEMA_ID
from ...service_api.wire.message import Message
from ..reading.vector.message_plan import MessagePlan
from .executor_readers import DROPMALFORMED, FAILFAST, PERMISSIVE, PLACE, MessageMapper
from .source.field_comments import field_comments
from .source.timestamps import parse_time_unit

MODES: Final = (PERMISSIVE, DROPMALFORMED, FAILFAST)
"""What becomes of a message that cannot be read: NULL and a reason, no row, or the end of the query."""

_OTHER_FILES: Final = {100: "archive-mark.dat", 110: "cluster-mark.dat", 112: "node-state.dat"}
_FLAG_BEGIN: Final = 0x80


def log_messages(
    df: DataFrame, message: type[Message], *, time_unit: TimeUnit | str | None = None, mode: str = FAILFAST
) -> DataFrame:
    """Read the messages of one class from a log, or from a snapshot's recording.

    `df` has recording_id, position, payload, and better template_id, as docs/archive-frames.md says. A message of
    several frames is whole only in a log read with the option messages=true.

    Gives recording_id and position of each message and the fields of its model, which docs/spark-messages.md
    explains: enums by name, times as timestamps, NULL where the schema says null or the field is newer than the
    message. A field that is called as one of the first two has `message_` before its name.

    - `time_unit`: of the cluster's clock: ms, us, ns or a `TimeUnit`. Without it, the time of a message of the log is
      the column `timestamp` of `df`, if that is there, and other times are taken to be milliseconds: one beyond the
      year 9999 is then refused. Times in the archive's own messages always are milliseconds.
    - `mode`: what becomes of a message that cannot be read. FAILFAST ends the query with its position and the reason,
      DROPMALFORMED leaves it out, PERMISSIVE gives NULL in every field and the reason in a column `problem`.

    Raises:
        ConfigurationError: not a class of messages that recordings hold, a column is missing, no such mode or unit.
    """
    unit, times = parse_time_unit(time_unit), list[str]()
    if unit is None and "timestamp" in df.columns and _is_of_log(message):
        unit, times = TimeUnit.MILLIS, ["timestamp"]  # any: the column is taken instead
    plan = MessagePlan.of(message, unit)
    check_mode(mode)
    if plan.schema_id in _OTHER_FILES:
        where = _OTHER_FILES[plan.schema_id]
        raise ConfigurationError(
            f"no recording holds it: {message.WIRE_NAME} is of schema {plan.schema_id}, of {where}"
        )
    expect_columns(df, (*PLACE, "payload"))
    chosen = df
    if plan.schema_id == LOG_SCHEMA_ID and "template_id" in df.columns:
        chosen = df.where(F.col("template_id") == plan.template_id)
    elif "flags" in df.columns:
        chosen = df.where(F.col("flags").bitwiseAND(_FLAG_BEGIN) != 0)
    mapper = MessageMapper(plan, mode)
    schema = _spark_schema(mapper.schema, field_comments(message))
    return chosen.select(*PLACE, "payload", *times).mapInArrow(mapper, schema)


def message_schema(message: type[Message]) -> StructType:
    """The columns that `log_messages` gives for a class of messages.

    Raises:
        ConfigurationError: it is no message class.
    """
    mapper = MessageMapper(MessagePlan.of(message, TimeUnit.MILLIS), FAILFAST)
    return _spark_schema(mapper.schema, field_comments(message))


def _is_of_log(message: Any) -> bool:
    """Whether it is a message whose only time is that of the log's column."""
    schema_id = getattr(message, "SCHEMA_ID", None)
    return schema_id == LOG_SCHEMA_ID and getattr(message, "TEMPLATE_ID", None) in LOG_FIELDS


def check_mode(mode: str) -> None:
    """Refuse a mode that is none.

    Raises:
        ConfigurationError: there is no such mode.
    """
    if mode not in MODES:
        raise ConfigurationError(f"mode={mode!r} expected one of {', '.join(MODES)}")


def expect_columns(df: DataFrame, names: Iterable[str]) -> None:
    """Refuse a DataFrame that is no log.

    Raises:
        ConfigurationError: a column is missing.
    """
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise ConfigurationError(f"not the columns of a log: missing={','.join(missing)} found={','.join(df.columns)}")


def _spark_schema(schema: Any, comments: dict[str, str]) -> StructType:
    fields = []
    for field in schema:
        comment = comments.get(field.name.removeprefix("message_"), "") if field.name not in PLACE else ""
        metadata = {"comment": comment} if comment else None
        fields.append(StructField(field.name, from_arrow_type(field.type, False), True, metadata))
    return StructType(fields)
