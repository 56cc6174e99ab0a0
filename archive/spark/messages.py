"""`log_messages`: the messages of one class as typed columns.

The columns are those of the message's pydantic model, in its order; archive knows no class of the cluster, so the
caller passes it in. Executors get a plan of names and numbers, never the class, and read whole batches by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from service_api.errors import ConfigurationError, RemoteProtocolError
from service_api.types import TimeUnit
from service_api.wire.message import Message

from ..log_fields import LOG_SCHEMA_ID
from ..vector.message_columns import find_messages, read_messages
from ..vector.message_plan import MessagePlan
from ..vector.payloads import Payloads
from .field_comments import field_comments

PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"
FAILFAST: Final = "FAILFAST"
MODES: Final = (PERMISSIVE, DROPMALFORMED, FAILFAST)
"""What becomes of a message that cannot be read: NULL and a reason, no row, or the end of the query."""

PROBLEM: Final = "problem"
"""The column that says why the others are NULL."""

TIME_UNIT_KEY: Final = "time_unit"
"""In the metadata of the column `timestamp` of a log: ms, us or ns, the unit of the cluster's clock."""

TIME_UNITS: Final = {"ms": TimeUnit.MILLIS, "us": TimeUnit.MICROS, "ns": TimeUnit.NANOS}

_PLACE: Final = ("recording_id", "position")
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

    - `time_unit`: of the cluster's clock: ms, us, ns or a `TimeUnit`. None: what the data source says of the log,
      otherwise milliseconds. Of the archive's own messages it is always milliseconds.
    - `mode`: what becomes of a message that cannot be read. FAILFAST ends the query with its position and the reason,
      DROPMALFORMED leaves it out, PERMISSIVE gives NULL in every field and the reason in a column `problem`.

    Raises:
        ConfigurationError: not a class of messages that recordings hold, a column is missing, no such mode or unit.
    """
    plan = MessagePlan.of(message, time_unit_of(df, time_unit))
    check_mode(mode)
    if plan.schema_id in _OTHER_FILES:
        where = _OTHER_FILES[plan.schema_id]
        raise ConfigurationError(f"no recording holds it: {message.__name__} is of schema {plan.schema_id}, of {where}")
    check_columns(df, (*_PLACE, "payload"))
    chosen = df
    if plan.schema_id == LOG_SCHEMA_ID and "template_id" in df.columns:
        chosen = df.where(F.col("template_id") == plan.template_id)
    elif "flags" in df.columns:
        chosen = df.where(F.col("flags").bitwiseAND(_FLAG_BEGIN) != 0)
    mapper = _MessageMapper(plan, mode)
    schema = _spark_schema(mapper.schema, field_comments(message))
    return chosen.select(*_PLACE, "payload").mapInArrow(mapper, schema)


def message_schema(message: type[Message]) -> StructType:
    """The columns that `log_messages` gives for a class of messages.

    Raises:
        ConfigurationError: it is no message class.
    """
    mapper = _MessageMapper(MessagePlan.of(message, TimeUnit.MILLIS), FAILFAST)
    return _spark_schema(mapper.schema, field_comments(message))


def time_unit_of(df: DataFrame, given: TimeUnit | str | None) -> TimeUnit:
    """Choose the unit of the cluster's clock: the one given, the one that the log's column tells, or milliseconds.

    Raises:
        ConfigurationError: there is no such unit.
    """
    if isinstance(given, TimeUnit):
        return given
    if given is None:
        told = [f.metadata.get(TIME_UNIT_KEY) for f in df.schema.fields if f.name == "timestamp" and f.metadata]
        given = next(filter(None, told), "ms")
    if given not in TIME_UNITS:
        raise ConfigurationError(f"time_unit={given!r} expected one of {', '.join(TIME_UNITS)}")
    return TIME_UNITS[given]


def check_mode(mode: str) -> None:
    """Refuse a mode that is none.

    Raises:
        ConfigurationError: there is no such mode.
    """
    if mode not in MODES:
        raise ConfigurationError(f"mode={mode!r} expected one of {', '.join(MODES)}")


def check_columns(df: DataFrame, names: Iterable[str]) -> None:
    """Refuse a DataFrame that is no log.

    Raises:
        ConfigurationError: a column is missing.
    """
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise ConfigurationError(f"not the columns of a log: missing={','.join(missing)} found={','.join(df.columns)}")


class _MessageMapper:
    """Turns batches of recording_id, position, payload into those of the message's columns, on an executor."""

    def __init__(self, plan: MessagePlan, mode: str) -> None:
        self._plan = plan
        self._mode = mode
        fields = [pa.field(name, pa.int64()) for name in _PLACE]
        fields += [field.with_name(f"message_{field.name}") if field.name in _PLACE else field for field in plan.schema]
        if mode == PERMISSIVE:
            fields.append(pa.field(PROBLEM, pa.string()))
        self.schema = pa.schema(fields)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield self.read(batch)

    def read(self, batch: Any) -> Any:
        """Read one batch.

        Raises:
            RemoteProtocolError: a message cannot be read, with FAILFAST.
        """
        recording_ids, positions, column = batch.columns
        payloads = Payloads.of(column)
        is_found = find_messages(payloads, self._plan)
        if not is_found.all():
            payloads = payloads.rows(is_found)
            chosen = pa.array(is_found)
            recording_ids, positions = recording_ids.filter(chosen), positions.filter(chosen)
        columns, faults = read_messages(payloads, self._plan)
        bad = faults.first()
        if bad is not None and self._mode == FAILFAST:
            raise RemoteProtocolError(
                f"recording_id={recording_ids[bad[0]]} position={positions[bad[0]]} {bad[1]}; "
                "of a message of several frames all are there with the option messages=true"
            )
        if self._mode == PERMISSIVE:
            columns.append(faults.texts())
        read = pa.RecordBatch.from_arrays([recording_ids, positions, *columns], schema=self.schema)
        return read.filter(pa.array(~faults.is_bad)) if bad is not None and self._mode == DROPMALFORMED else read


def _spark_schema(schema: Any, comments: dict[str, str]) -> StructType:
    fields = []
    for field in schema:
        comment = comments.get(field.name.removeprefix("message_"), "") if field.name not in _PLACE else ""
        metadata = {"comment": comment} if comment else None
        fields.append(StructField(field.name, from_arrow_type(field.type, False), True, metadata))
    return StructType(fields)
