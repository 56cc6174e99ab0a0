"""A plan for reading a message class by columns: field names, numbers and Arrow types, without the class.

A plan travels to other processes, where the message class, its enums and its package need not be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ....service_api.errors import ConfigurationError
from ....service_api.types import TimeUnit

if TYPE_CHECKING:
    from ....service_api.wire.fields import BlockField, MessageLayout

ARCHIVE_SCHEMA_ID: Final = 101
"""Its times are epoch milliseconds, whatever the unit of a cluster's clock is."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
"""The type of points in time: what Spark has."""

_NUMBER_TYPES: Final = {"q": pa.int64(), "i": pa.int32(), "h": pa.int16(), "b": pa.int8(), "B": pa.int16()}


@dataclass(slots=True, frozen=True)
class FixedFieldPlan:
    """One field of a block."""

    name: str
    format: str
    offset: int
    end: int
    since: int
    null: int
    values: tuple[tuple[int, str], ...] | None
    """Of an enum, its values and their names; of a boolean, 0 and 1."""
    type: Any  # a pyarrow.DataType
    time_unit: TimeUnit | None
    """Of a point in time, the unit that it is written in."""
    is_unit_assumed: bool
    """Nobody said the unit: a time of the far future is then one of another unit."""


@dataclass(slots=True, frozen=True)
class VarFieldPlan:
    """One text or some data."""

    name: str
    since: int
    type: Any  # a pyarrow.DataType


@dataclass(slots=True, frozen=True)
class BlockPlan:
    """Fields that lie together: a message, or the elements of a group."""

    where: str
    """What a reason calls it: the class, or the class and the group."""
    block_length: int
    fields: tuple[FixedFieldPlan, ...]
    var_fields: tuple[VarFieldPlan, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The block as a structured type."""
        return np.dtype(
            {
                "names": [field.name for field in self.fields],
                "formats": ["<" + np.dtype(field.format).str[1:] for field in self.fields],
                "offsets": [field.offset for field in self.fields],
                "itemsize": self.block_length,
            }
        )

    @property
    def arrow_fields(self) -> list[Any]:
        """The columns, in the order of the model."""
        columns = [(field.name, field.type) for field in self.fields]
        columns += [(var.name, var.type) for var in self.var_fields]
        return [pa.field(name, arrow_type) for name, arrow_type in columns]


@dataclass(slots=True, frozen=True)
class GroupPlan:
    """One repeating group."""

    name: str
    block: BlockPlan

    @property
    def type(self) -> Any:
        """The type of its column: a list of structs."""
        return pa.list_(pa.struct(self.block.arrow_fields))


@dataclass(slots=True, frozen=True)
class MessagePlan:
    """One message class."""

    template_id: int
    schema_id: int
    block: BlockPlan
    groups: tuple[GroupPlan, ...]

    @classmethod
    def of(cls, message: Any, time_unit: TimeUnit | None) -> MessagePlan:
        """Make the plan of a message class; `time_unit` is that of the cluster's clock, assumed to be ms if None.

        Raises:
            ConfigurationError: it is no message class.
        """
        from ....service_api.wire.message import Message  # where a plan is used there may be no pydantic

        if not (isinstance(message, type) and issubclass(message, Message) and hasattr(message, "TEMPLATE_ID")):
            raise ConfigurationError(f"not a message class: {message!r} expected a class such as SessionOpenEvent")
        if message.SCHEMA_ID == ARCHIVE_SCHEMA_ID:
            time_unit = TimeUnit.MILLIS
        name, layout = message.WIRE_NAME, message.LAYOUT
        groups = [
            GroupPlan(group.name, _block(f"{name}.{group.name}", group.layout, time_unit)) for group in layout.groups
        ]
        return cls(message.TEMPLATE_ID, message.SCHEMA_ID, _block(name, layout, time_unit), tuple(groups))

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the columns: the fields of the model, in its order."""
        fixed_count = len(self.block.fields)
        fields = self.block.arrow_fields
        groups = [pa.field(group.name, group.type) for group in self.groups]
        return pa.schema([*fields[:fixed_count], *groups, *fields[fixed_count:]])


def _block(where: str, layout: MessageLayout, time_unit: TimeUnit | None) -> BlockPlan:
    return BlockPlan(
        where,
        layout.block_length,
        tuple(_fixed(field, time_unit) for field in layout.block),
        tuple(
            VarFieldPlan(field.name, field.since, pa.string() if field.is_text else pa.binary())
            for field in layout.var_data
        ),
    )


def _fixed(field: BlockField, time_unit: TimeUnit | None) -> FixedFieldPlan:
    values = None if field.values is None else tuple((value, _name_of(meaning)) for value, meaning in field.values)
    if field.is_time:
        arrow_type = TIMESTAMP
    elif field.values is None:
        arrow_type = _NUMBER_TYPES[field.format]
    else:
        arrow_type = pa.bool_() if isinstance(field.values[0][1], bool) else pa.string()
    return FixedFieldPlan(
        name=field.name,
        format=field.format,
        offset=field.offset,
        end=field.end,
        since=field.since,
        null=field.null,
        values=values,
        type=arrow_type,
        time_unit=(TimeUnit.MILLIS if time_unit is None else time_unit) if field.is_time else None,
        is_unit_assumed=time_unit is None,
    )


def _name_of(meaning: Any) -> str:
    return str(meaning) if isinstance(meaning, bool) else meaning.name
