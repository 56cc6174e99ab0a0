"""State that a service declares: kept, undone, written to snapshots and compared without another line of its author's.

    class Bank(TypedService):
        accounts: dict[str, int] = state()
        opened_count: int = state(default=0)

The problem: a handler that raises may have changed half of what it meant to. A copy of the state for each message would
cost as much as the state is large. The idea: write down what was there before, for what the handler touches.

* A value that cannot change is itself what was there before.
* Of a dict each key that is written or handed out is written down. So a large state lives in a dict.
* Of any other value that can change (a list, a dataclass that is not frozen), the whole is written down, as bytes, when
  it is first handed out for a message.

While a query is answered the same book says whether anything was changed.

One thing is not undone: the order of a dict's keys. A key that a failed handler had removed comes back as the last one,
on every member.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, SupportsIndex, TypeVar, Union, cast, get_args, get_origin

import msgspec

from ..errors import ConfigurationError, LocalProtocolError
from .codec import ValueCodec, to_builtins
from .schema import PLAIN_TYPES, CodecError, fields_of, is_pydantic, is_record

K = TypeVar("K")
V = TypeVar("V")

MISSING: Final = object()
_SHOWN_LENGTH: Final = 80
"""Characters of a value that is of another type than its field."""


class Journal:
    """What was there before the message that is handled; shared by all state of a service."""

    __slots__ = ("_undo", "is_open", "is_read_only", "message_number")

    def __init__(self) -> None:
        self._undo: list[Callable[[], bool]] = []
        self.message_number = 0
        """Which message is handled, counted in this process: what is written down is so once for each."""
        self.is_open = False
        """Whether a handler runs, so that changes are written down."""
        self.is_read_only = False
        """Whether a query is answered."""

    def __repr__(self) -> str:
        return f"<Journal open={self.is_open} read_only={self.is_read_only} entries={len(self._undo)}>"

    def begin(self, *, is_read_only: bool = False) -> None:
        """Forget what was written down, and begin again."""
        self._undo.clear()
        self.message_number += 1
        self.is_open, self.is_read_only = True, is_read_only

    def note(self, undo: Callable[[], bool]) -> None:
        """Write down how to undo a change; what it gives says whether there was one."""
        self._undo.append(undo)

    def check_writable(self, what: str) -> None:
        """Refuse a change while a query is answered.

        Raises:
            LocalProtocolError: a query is answered.
        """
        if self.is_read_only:
            raise LocalProtocolError(f"a query may not change the state: {what}")

    def commit(self) -> None:
        """Keep what was changed."""
        self.is_open = self.is_read_only = False
        self._undo.clear()

    def roll_back(self) -> bool:
        """Undo everything since `begin`, the newest first. Whether anything had been changed."""
        self.is_open = self.is_read_only = False
        undo, self._undo = self._undo, []
        is_changed = False
        for step in reversed(undo):
            is_changed |= step()
        return is_changed


class StateField:
    """A declared field of a service: a descriptor. `state` makes it."""

    def __init__(self, default: object, factory: Callable[[], object] | None) -> None:
        self.default = default
        self.factory = factory
        self.name = ""

    def __repr__(self) -> str:
        return f"<StateField {self.name}>"

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, service: Any, owner: type) -> Any:
        if service is None:
            return self
        return cells_of(service)[self.name].read()

    def __set__(self, service: Any, value: object) -> None:
        cells_of(service)[self.name].write(value)


def state(*value: object, default: Any = MISSING, factory: Callable[[], object] | None = None) -> Any:
    """Declare a field of the state, with the type of its annotation.

    It begins as `default`, which must be a value that cannot change, or what `factory` gives; without both as what the
    type gives: 0, "", False, None, an empty dict, list or set.

    Raises:
        ConfigurationError: the default is not named, or both are given.
    """
    if value:
        raise ConfigurationError(f"state({value[0]!r}): expected the name of the default: state(default={value[0]!r})")
    if default is not MISSING and factory is not None:
        raise ConfigurationError("state: default and factory are given, expected one of them")
    return StateField(default, factory)


class Cell:
    """The value of one declared field of one service."""

    def __init__(self, field: StateField, annotation: Any, where: str, journal: Journal) -> None:
        self.name = field.name
        self.where = where
        self.codec: ValueCodec[Any] = ValueCodec(annotation, where)
        self._field = field
        self._journal = journal
        self._annotation = annotation
        plain = _plain(annotation)
        self._types = _types_of(annotation)
        self.is_dict = get_origin(plain) is dict
        if self.is_dict:
            key, value = get_args(plain)
            self.pair_codec: ValueCodec[list[tuple[Any, Any]]] = ValueCodec(list[tuple[key, value]], where)  # type: ignore[valid-type]
            self._value_codec: ValueCodec[Any] = ValueCodec(value, where)
            self._checks = _DictChecks(where, _types_of(key), _types_of(value))
            self._is_flat = is_immutable(value)
        else:
            self._is_flat = is_immutable(annotation)
        self.value: Any = None
        self._noted_number = 0
        self.load(self._first())

    def __repr__(self) -> str:
        return f"<Cell {self.name}: {self._annotation!r}>"

    def _first(self) -> object:
        if self._field.factory is not None:
            return self._field.factory()
        if self._field.default is not MISSING:
            if not self._is_flat:
                raise ConfigurationError(f"{self.where}: default={self._field.default!r} can change; give a factory")
            return self._field.default
        plain = _plain(self._annotation)
        if isinstance(self.codec.schema, list) and self.codec.schema[0] == "union" and "None" in self.codec.schema:
            return None
        made = get_origin(plain) or plain
        try:
            return made()
        except TypeError as error:
            raise ConfigurationError(
                f"{self.where}: type={made!r} gives no first value; say default or factory"
            ) from error

    def load(self, value: object) -> None:
        """Take a value without writing down the one before."""
        if self.is_dict:
            kind = FlatDict if self._is_flat else DeepDict
            self.value = kind(cast("dict[Any, Any]", value), self._journal, self._value_codec, self._checks)
        else:
            self.value = value

    @property
    def value_count(self) -> int:
        """How many values there are in it; 1 if it is no collection."""
        return len(self.value) if isinstance(self.value, dict | list | set | frozenset | tuple) else 1

    def as_builtins(self) -> Any:
        """Give the value as plain dicts, lists, strings and numbers."""
        value = dict(plain_items(self.value)) if self.is_dict else self.value
        return to_builtins(value)

    def read(self) -> Any:
        """Hand out the value; written down first, where it can be changed in place."""
        journal = self._journal
        if self._is_flat or self.is_dict or not journal.is_open or self._noted_number == journal.message_number:
            return self.value
        self._noted_number = journal.message_number
        before = self.codec.encode(self.value)

        def undo() -> bool:
            if self.codec.encode(self.value) == before:
                return False
            self.value = self.codec.decode(before)
            return True

        journal.note(undo)
        return self.value

    def write(self, value: object) -> None:
        """Put another value in the place of this one."""
        journal, before = self._journal, self.value
        journal.check_writable(self.where)
        if journal.is_open:
            if not self._is_flat and not self.is_dict:
                self.read()  # what was handed out may be changed later, too

            def undo() -> bool:
                self.value = before
                return True

            journal.note(undo)
        if self.is_dict:
            if not isinstance(value, dict):
                raise _wrong_type(self.where, value, "dict")
            value = {key: self._checks.checked(key, each) for key, each in value.items()}
        elif self._types is not None and type(value) not in self._types:
            value = _converted(self.where, value, self._types)
        self.load(value)


@dataclass(slots=True, frozen=True)
class _DictChecks:
    """The types that keys and values of a dict have; None where they are not checked."""

    where: str
    key_types: frozenset[type] | None
    value_types: frozenset[type] | None

    def checked(self, key: object, value: Any) -> Any:  # Any: a value of the dict
        """Return the value to be kept.

        Raises:
            LocalProtocolError: the key or the value is of another type.
        """
        if self.key_types is not None and type(key) not in self.key_types:
            _converted(f"{self.where}: key", key, self.key_types - {float})
        if self.value_types is not None and type(value) not in self.value_types:
            return _converted(f"{self.where}[{key!r}]", value, self.value_types)
        return value


class FlatDict(dict[K, V], Generic[K, V]):
    """A dict whose values cannot change in place: what is written is written down."""

    def __init__(self, content: dict[K, V], journal: Journal, codec: ValueCodec[V], checks: _DictChecks) -> None:
        super().__init__(content)
        self._journal = journal
        self._codec = codec
        self._checks = checks

    def _note(self, key: K) -> None:
        journal = self._journal
        journal.check_writable(f"key={key!r}")
        if not journal.is_open:
            return
        before = dict.get(self, key, MISSING)

        def undo() -> bool:
            if before is MISSING:
                dict.pop(self, key, None)
            else:
                dict.__setitem__(self, key, cast("V", before))
            return True

        journal.note(undo)

    def __setitem__(self, key: K, value: V) -> None:
        value = self._checks.checked(key, value)
        self._note(key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        self._note(key)
        dict.__delitem__(self, key)

    def pop(self, key: K, *default: Any) -> Any:
        """As of a dict."""
        if key in self:
            self._note(key)
        return dict.pop(self, key, *default)

    def popitem(self) -> tuple[K, V]:
        """As of a dict."""
        if self:
            self._note(next(reversed(self)))
        return dict.popitem(self)

    def setdefault(self, key: K, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **more: Any) -> None:
        """As of a dict."""
        for key, value in dict(*others, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        """As of a dict."""
        for key in list(self):
            del self[key]

    def copy(self) -> dict[K, V]:
        """A plain dict of the same."""
        return dict(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class DeepDict(FlatDict[K, V]):
    """A dict whose values can change in place: what is handed out is written down, too."""

    def __init__(self, content: dict[K, V], journal: Journal, codec: ValueCodec[V], checks: _DictChecks) -> None:
        super().__init__(content, journal, codec, checks)
        self._noted: set[K] = set()
        self._noted_number = 0

    def _note_value(self, key: K, value: V) -> None:
        """Write down a value that may be changed by who has it."""
        journal = self._journal
        if not journal.is_open:
            return
        if self._noted_number != journal.message_number:
            self._noted_number = journal.message_number
            self._noted.clear()
        elif key in self._noted:
            return
        self._noted.add(key)
        before = self._codec.encode(value)

        def undo() -> bool:
            if self._codec.encode(value) == before:
                return False
            dict.__setitem__(self, key, self._codec.decode(before))
            return True

        journal.note(undo)

    def __iter__(self) -> Iterator[K]:
        # Without it `dict(state)` would take the values past `__getitem__`.
        return dict.__iter__(self)

    def _note(self, key: K) -> None:
        value = dict.get(self, key, MISSING)
        if value is not MISSING:
            self._note_value(key, cast("V", value))
        super()._note(key)

    def __getitem__(self, key: K) -> V:
        value = dict.__getitem__(self, key)
        self._note_value(key, value)
        return value

    def get(self, key: K, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            return default
        return self[key]

    def values(self) -> Any:
        """The values, one after the other; each is written down when it is handed out."""
        return _Handed(self, lambda key: self[key])

    def items(self) -> Any:
        """Keys with values, one after the other; each value is written down when it is handed out."""
        return _Handed(self, lambda key: (key, self[key]))

    def copy(self) -> dict[K, V]:
        """A plain dict of the same values."""
        return dict(self.items())


class _Handed(Generic[V]):
    """A view of a dict that hands out through it."""

    def __init__(self, of: dict[Any, Any], give: Callable[[Any], V]) -> None:
        self._of = of
        self._give = give

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[V]:
        return map(self._give, dict.__iter__(self._of))

    def __reversed__(self) -> Iterator[V]:
        return map(self._give, dict.__reversed__(self._of))

    def __contains__(self, value: object) -> bool:
        return any(each == value for each in self)


def plain_items(value: dict[K, V]) -> Iterable[tuple[K, V]]:
    """Go through a dict of the state without writing anything down."""
    return dict.items(value)


CELLS: Final = "_trimaran_cells"


def cells_of(service: Any) -> dict[str, Cell]:
    """Return the cells of a service by name, in their order; made when they are first needed."""
    cells: dict[str, Cell] | None = service.__dict__.get(CELLS)
    return service.make_cells() if cells is None else cells


def declared_fields(owner: type) -> dict[str, StateField]:
    """List what a class and its bases declare, the bases' first."""
    return {
        name: value
        for base in reversed(owner.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, StateField)
    }


def make_cells(owner: type, journal: Journal) -> dict[str, Cell]:
    """Make the cells of a service.

    Raises:
        ConfigurationError: a field has no annotation, or one that cannot be written in bytes; says which.
    """
    fields = declared_fields(owner)
    if not fields:
        return {}
    try:
        hints = typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise CodecError(f"{owner.__qualname__}: an annotation cannot be read: {error}") from error
    cells = {}
    for name, field in fields.items():
        where = f"{owner.__qualname__}.{name}"
        if name not in hints:
            raise ConfigurationError(
                f"{where}: a field of the state needs its type: `{name}: dict[str, int] = state()`"
            )
        cells[name] = Cell(field, hints[name], where, journal)
    return cells


_SCALARS: Final = (int, str, bytes, bool, float)


def _types_of(annotation: Any) -> frozenset[type] | None:
    """Return the types that values of a scalar type have, or of a union of scalars; None for any other type."""
    annotation = _plain(annotation)
    if annotation in _SCALARS:
        return frozenset((annotation,))
    if annotation is None or annotation is type(None):
        return frozenset((type(None),))
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [_types_of(each) for each in get_args(annotation)]
        return None if None in parts else frozenset().union(*(part for part in parts if part is not None))
    return None


def _converted(where: str, value: Any, kinds: frozenset[type]) -> Any:
    """Return a value that is no exact one of some scalar types as one of them.

    Raises:
        LocalProtocolError: it is of another type. It would be written to snapshots, and no member could read them.
    """
    if float in kinds and type(value) is int:
        return float(value)
    if not isinstance(value, bool) and isinstance(value, tuple(kinds)):
        return value  # of a subclass, such as an enum
    raise _wrong_type(where, value, " or ".join(sorted(kind.__name__ for kind in kinds)).replace("NoneType", "None"))


def _wrong_type(where: str, value: object, expected: str) -> LocalProtocolError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}..."
    return LocalProtocolError(f"{where}: value={shown} is of type {type(value).__name__}, expected {expected}")


def _plain(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated or hasattr(annotation, "__supertype__"):
        annotation = getattr(annotation, "__supertype__", None) or get_args(annotation)[0]
    return annotation


def is_immutable(annotation: Any, outer: tuple[type, ...] = ()) -> bool:
    """Whether values of a type cannot change in place, nor what is in them."""
    annotation = _plain(annotation)
    origin = get_origin(annotation)
    if annotation in PLAIN_TYPES or annotation is None or annotation in outer or origin is Literal:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(is_immutable(each, outer) for each in get_args(annotation) if each is not ...)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return True
    if not is_record(annotation):
        return False
    return _is_frozen(annotation) and all(
        is_immutable(each.type, (*outer, annotation)) for each in fields_of(annotation)
    )


def _is_frozen(record: Any) -> bool:
    if is_pydantic(record):
        return bool(record.model_config.get("frozen"))
    if issubclass(record, msgspec.Struct):
        return bool(record.__struct_config__.frozen)
    return bool(record.__dataclass_params__.frozen)
