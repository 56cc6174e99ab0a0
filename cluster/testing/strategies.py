"""Hypothesis strategies from message classes: `strategy_for(Deposit)` makes any deposit that can be sent.

Values are those that a message can hold on the wire: whole numbers of 64 bits, numbers that are equal to themselves,
text without surrogates. Constraints of `Annotated` and of pydantic fields hold. What a model's own validators refuse is
drawn again.
"""

from __future__ import annotations

import datetime
import enum
import types
import uuid
from collections import deque
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from ...service_api import ConfigurationError
from ...service_api.errors import MissingExtraError
from ...service_api.typed.schema import Field, fields_of, is_pydantic, is_record, schema_of

try:
    from hypothesis import reject
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtraError("strategies need Hypothesis: pip install 'trimaran[test]'") from error

M = TypeVar("M")

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 64) - 1
_FIRST_TIME: Final = datetime.datetime(1, 1, 2)
_LAST_TIME: Final = datetime.datetime(9999, 12, 30)
_DURATION_LIMIT: Final = datetime.timedelta(days=99_999)
_LENGTH_LIMIT: Final = 20
"""The most elements of a collection: a test wants many messages rather than long ones."""


def strategy_for(message: type[M], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[M]:
    """Return a strategy for objects of a class: a dataclass, a pydantic model or a `msgspec.Struct`.

        @given(st.lists(strategy_for(Deposit, account=st.sampled_from(["a", "b"]))))

    Args:
        message: The class.
        fields: Strategies for some of its fields, in place of those that their types say.

    Raises:
        ConfigurationError: it is no such class, has no such field, or a field has a type that cannot be sent.
    """
    given: Any = message  # a caller may not check types
    if not is_record(given):
        raise ConfigurationError(
            f"message={given!r} expected a class of messages: a dataclass, a pydantic model or a msgspec.Struct"
        )
    schema_of(message, message.__qualname__)  # tells a type that cannot be sent
    known = [field.name for field in fields_of(message)]
    if unknown := sorted(fields.keys() - known):
        raise ConfigurationError(f"{message.__qualname__} has no such field: {unknown} expected one of {known}")
    return _record(message, fields)


def _record(message: type[M], fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[M]:
    drawn = {field.name: _of_field(message, field) for field in fields_of(message)} | fields
    return st.builds(_maker(message), **drawn)


def _maker(message: type[M]) -> Any:
    """Return what makes an object of its fields; where a pydantic model refuses them, others are drawn."""
    if not is_pydantic(message):
        return message
    model: Any = message

    def make(**values: Any) -> Any:
        try:
            return model.model_validate(values, by_name=True)
        except ValueError:
            reject()

    return make


def _of_field(message: type, field: Field) -> st.SearchStrategy[Any]:
    model: Any = message
    constraints = tuple(model.model_fields[field.name].metadata) if is_pydantic(message) else ()
    return _of(Annotated[(field.type, *constraints)] if constraints else field.type)


def _of(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for a type that a schema has."""
    if hasattr(annotation, "__supertype__"):
        return _of(annotation.__supertype__)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _constrained(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(_of, arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (list, deque):
        return st.lists(_of(arguments[0]), max_size=_LENGTH_LIMIT).map(origin)
    if origin in (set, frozenset):
        return st.frozensets(_of(arguments[0]), max_size=_LENGTH_LIMIT).map(origin)
    if origin is dict:
        return st.dictionaries(*map(_of, arguments), max_size=_LENGTH_LIMIT)
    if origin is tuple:
        if arguments[1:] == (...,):
            return st.lists(_of(arguments[0]), max_size=_LENGTH_LIMIT).map(tuple)
        return st.tuples(*map(_of, arguments))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return st.sampled_from(annotation)
    return st.deferred(lambda: _record(annotation, {}))  # a record may hold itself


def _constrained(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for `Annotated[...]`: Hypothesis knows the constraints, we the bounds of the wire."""
    plain = get_args(annotation)[0]
    if plain is int:
        return st.from_type(annotation).filter(lambda value: _INT_MIN <= value <= _INT_MAX)
    if plain in (float, Decimal):
        return st.from_type(annotation).filter(lambda value: value == value and abs(value) != float("inf"))
    if plain in _PLAIN:
        return st.from_type(annotation)
    return _of(plain)


_PLAIN: Final[dict[Any, st.SearchStrategy[Any]]] = {
    None: st.none(),
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(_INT_MIN, _INT_MAX),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(),
    bytes: st.binary(),
    datetime.datetime: st.datetimes(_FIRST_TIME, _LAST_TIME),
    datetime.date: st.dates(),
    datetime.time: st.times(),
    datetime.timedelta: st.timedeltas(-_DURATION_LIMIT, _DURATION_LIMIT),
    uuid.UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
}
