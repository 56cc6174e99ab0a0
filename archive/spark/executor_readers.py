"""What reads payloads on an executor: functions and plans that travel there.

Spark sends them by name, so an executor imports this module, and nothing here may need pydantic: the classes of
messages and models stay with the driver (`messages`, `decoders`), which turns them into plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...service_api.errors import LocalProtocolError, RemoteProtocolError
from ..reading.vector.message_columns import Faults, find_messages, read_messages
from ..reading.vector.message_plan import TIMESTAMP, MessagePlan
from ..reading.vector.payloads import Payloads
from ..reading.vector.struct_columns import StructPlan

PERMISSIVE: Final = "PERMISSIVE"
DROPMALFORMED: Final = "DROPMALFORMED"
FAILFAST: Final = "FAILFAST"

PROBLEM: Final = "problem"
"""The column that says why the others are NULL."""
PLACE: Final = ("recording_id", "position")

BodyReader = Callable[[Any], tuple[Any, Any]]
"""A BinaryArray without NULLs -> a StructArray and the reasons for those that are NULL."""


def make_body_decoder(read: BodyReader) -> Callable[[Any], Any]:
    """Make the function of a column of bodies that gives structs of `value` and `problem`."""

    def decode(bodies: pa.Array) -> pa.Array:
        values, problems = _read_bodies(read, bodies)
        return pa.StructArray.from_arrays([values, problems], names=["value", PROBLEM])

    return decode


def plan_reader(
    read: Callable[[Payloads, Any], tuple[list[Any], Faults]], plan: MessagePlan | StructPlan
) -> BodyReader:
    """Make the reader of a plan: columns and faults as structs."""

    def read_structs_of(bodies: Any) -> tuple[Any, Any]:
        columns, faults = read(Payloads.of(bodies), plan)
        is_bad = pa.array(faults.is_bad)
        return pa.StructArray.from_arrays(columns, fields=list(plan.schema), mask=is_bad), faults.texts()

    return read_structs_of


def function_reader(function: Callable[[Any], Any], arrow_type: Any) -> BodyReader:
    """Make the reader of a caller's function: what it gives must have as many rows, and the columns of the schema."""

    def read(bodies: Any) -> tuple[Any, Any]:
        given = function(bodies)
        table = pa.Table.from_struct_array(given) if isinstance(given, pa.StructArray) else given
        if not isinstance(table, pa.Table | pa.RecordBatch):
            raise LocalProtocolError(
                f"the decoder gave {type(given).__name__} expected a StructArray, RecordBatch or Table"
            )
        if table.num_rows != len(bodies):
            raise LocalProtocolError(f"the decoder gave rows={table.num_rows} expected={len(bodies)}")
        missing = [field.name for field in arrow_type if field.name not in table.column_names]
        if missing:
            raise LocalProtocolError(f"the decoder gave columns={table.column_names} missing={missing}")
        is_null = given.is_null() if isinstance(given, pa.StructArray) else pa.array([False] * len(bodies))
        columns = [_one(table.column(field.name)).cast(field.type) for field in arrow_type]
        value = pa.StructArray.from_arrays(columns, fields=list(arrow_type), mask=is_null)
        problems = pa.array(["the decoder gave NULL"]).take(
            pa.array(np.zeros(len(bodies), np.int8), mask=~_mask(is_null))
        )
        return value, problems

    return read


def _one(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _mask(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=False)


def _read_bodies(read: BodyReader, bodies: Any) -> tuple[Any, Any]:
    """Read the bodies that are there; the others are NULL without a reason of their own."""
    if not bodies.null_count:
        return read(bodies)
    is_there = bodies.is_valid()
    values, problems = read(bodies.filter(is_there))
    numbers = np.cumsum(is_there.to_numpy(zero_copy_only=False)) - 1
    places = pa.array(numbers, mask=bodies.is_null().to_numpy(zero_copy_only=False))
    return values.take(places), problems.take(places)


class MessageMapper:
    """Turns batches of recording_id, position, payload into those of the message's columns, on an executor.

    With a fourth column, that is the time of the message; its unit is known already.
    """

    def __init__(self, plan: MessagePlan, mode: str) -> None:
        self._plan = plan
        self._mode = mode
        fields = [pa.field(name, pa.int64()) for name in PLACE]
        fields += [field.with_name(f"message_{field.name}") if field.name in PLACE else field for field in plan.schema]
        if mode == PERMISSIVE:
            fields.append(pa.field(PROBLEM, pa.string()))
        self.schema = pa.schema(fields)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Read batches one after the other."""
        for batch in batches:
            yield self.read(batch)

    def read(self, batch: Any) -> Any:
        """Read one batch.

        Raises:
            RemoteProtocolError: a message cannot be read, with FAILFAST.
        """
        recording_ids, positions, column, *times = batch.columns
        payloads = Payloads.of(column)
        is_found = find_messages(payloads, self._plan)
        if not is_found.all():
            payloads = payloads.rows(is_found)
            chosen = pa.array(is_found)
            recording_ids, positions = recording_ids.filter(chosen), positions.filter(chosen)
            times = [column.filter(chosen) for column in times]
        columns, faults = read_messages(payloads, self._plan)
        if times:
            is_good = pa.array(~faults.is_bad)
            columns[self._plan.schema.get_field_index("timestamp")] = pc.if_else(
                is_good, times[0].cast(TIMESTAMP), None
            )
        bad = faults.first()
        if bad is not None and self._mode == FAILFAST:
            raise RemoteProtocolError(
                f"recording_id={recording_ids[bad[0]]} position={positions[bad[0]]} {bad[1]}; "
                "the option messages=true joins the frames of a message"
            )
        if self._mode == PERMISSIVE:
            columns.append(faults.texts())
        read = pa.RecordBatch.from_arrays([recording_ids, positions, *columns], schema=self.schema)
        return read.filter(pa.array(~faults.is_bad)) if bad is not None and self._mode == DROPMALFORMED else read
