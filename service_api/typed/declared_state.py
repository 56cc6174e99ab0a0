"""State that a service declares: kept, undone, written to snapshots and compared without another line of its author's.

    class Bank(TypedService):
        accounts: dict[str, int] = state()
        opened_count: int = state(default=0)
        richest: int = derived(lambda bank: max(bank.accounts.values(), default=0))

The problem: a handler that raises may have changed half of what it meant to. A copy of the state for each message would
cost as much as the state is large. The idea: write down what was there before, for what the handler touches.

* What cannot change in place is an attribute like any other. One shallow copy of the attributes undoes all of these.
* Of a dict each key that is written or handed out is written down. So a large state lives in a dict.
* Of any other value that can change (a list, a dataclass that is not frozen), the whole is written down, as bytes, when
  it is first handed out for a message.

When the handler returns, what it changed is checked: a value of another type is an error, and undone. While a query is
answered the same book says whether anything was changed.

One thing is not undone: the order of a dict's keys. A key that a failed handler had removed comes back as the last one,
on every member.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from ..errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ..outbox.outbox import Outbox
from .attributes import check_class, check_instance, show_attributes
from .codec import ValueCodec, to_builtins
from .declared_field import NamedField, StateField
from .journal import MISSING, Journal
from .outboxes import OutboxField
from .schema import PLAIN_TYPES, CodecError, fields_of, is_frozen, is_record, show_type
from .state_dicts import DeepDict, DictKind, FlatDict, is_same, plain_items
from .value_checks import CheckSource, fitted, make_check, plain, wrong_type

JOURNAL: Final = "_TypedService__journal"
"""The attribute of a service that is its journal."""
_PLAN: Final = "_TypedService__plan"
"""The attribute of a class of services that is its plan."""


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


class DerivedField(NamedField):
    """A value that a service derives from its state, as an attribute of the service. `derived` makes it."""

    def __init__(self, make: Callable[[Any], object]) -> None:
        self.make = make
        self.is_dict = False

    def __get__(self, service: Any, owner: type) -> Any:
        # Only until the service has started; then the attribute of the instance comes before this descriptor.
        if service is None:
            return self
        self.remake(service)
        return service.__dict__[self.name]

    def remake(self, service: Any) -> None:
        """Make it of the state as it is now."""
        attributes = service.__dict__
        value, journal = self.make(service), attributes[JOURNAL]
        if hasattr(value, "attach_journal"):
            value.attach_journal(journal)
        attributes[self.name] = self.stored(value, journal)

    def stored(self, value: Any, journal: Journal) -> Any:
        """Return a value as it is kept: a dict as one that writes down what it changes."""
        if not self.is_dict:
            return value
        if not isinstance(value, dict):
            raise LocalProtocolError(f"{self.name}: value of type {type(value).__name__}, expected dict as declared")
        return FlatDict(value.items(), journal, DictKind(self.name, _fits_all, _unreachable))


class TouchedField(DerivedField):
    """One whose value can change in place and does not write down how: a message that fails has it made again."""

    def __get__(self, service: Any, owner: type) -> Any:
        if service is None:
            return self
        attributes = service.__dict__
        if self.name not in attributes:
            self.remake(service)
        attributes[JOURNAL].touch(self.name, self, service)
        return attributes[self.name]

    def __set__(self, service: Any, value: object) -> None:
        attributes = service.__dict__
        attributes[JOURNAL].touch(self.name, self, service)
        attributes[self.name] = value


def derived(make: Callable[[Any], object]) -> Any:
    """Declare what the service derives from its state, such as an index: not in snapshots, made again at each start.

        class Shop(TypedService):
            prices: dict[str, int] = state()
            by_price: dict[int, str] = derived(lambda shop: {price: name for name, price in shop.prices.items()})

    `make` is given the service when its state is loaded, and returns the value; handlers keep it up to date. It must
    come to the same as they do, on every member. What a handler changed before it raised is undone in a value that
    cannot change in place, and in a dict of such values; anything else that the handler had used is made again, which
    takes as long as `make` does.

    Raises:
        ConfigurationError: it is given no function.
    """
    if not callable(make):
        raise ConfigurationError(f"derived({make!r}): expected a function that is given the service")
    return DerivedField(make)


class DeepField(StateField):
    """A field whose value can change in place and is no dict: its bytes are written down when it is handed out."""

    def __init__(self, declared: StateField, field: DeclaredField) -> None:
        super().__init__(declared.default, declared.factory)
        self.name = field.name
        self._field = field

    def __get__(self, service: Any, owner: type) -> Any:
        if service is None:
            return self
        attributes = service.__dict__
        value, journal = attributes[self.name], attributes[JOURNAL]
        if journal.is_open and self.name not in journal.handed_names:
            journal.handed_names.add(self.name)
            journal.keep(DeepValue(attributes, self._field), value, self._field.codec.encode(value))
        return value

    def __set__(self, service: Any, value: object) -> None:
        attributes = service.__dict__
        if attributes[JOURNAL].is_open:
            self.__get__(service, type(service))  # what was handed out may be changed later, too
        attributes[self.name] = value


@dataclass(slots=True)
class DeepValue:
    """The value of one such field of one service, in its journal."""

    attributes: dict[str, Any]
    field: DeclaredField

    def undo(self, key: object, before: bytes) -> bool:
        """Put back the value `key`, which was handed out, if it has changed."""
        if is_same(self.field.codec, key, before):
            return False
        self.attributes[self.field.name] = self.field.codec.decode(before)
        return True

    def check(self, key: object) -> None:
        """Make sure that the field's value is still of its type."""
        self.attributes[self.field.name] = self.field.stored(self.attributes[self.field.name], None)


class DeclaredField:
    """A field as a class declares it: its type, and how values of it are kept, checked and written."""

    def __init__(self, declared: StateField, annotation: Any, where: str) -> None:
        self.name = declared.name
        self.where = where
        self.codec: ValueCodec[Any] = ValueCodec(annotation, where)
        self.annotation = annotation
        self.is_dict = get_origin(plain(annotation)) is dict
        if self.is_dict:
            key, value = get_args(plain(annotation))
            self.pair_codec: ValueCodec[list[tuple[Any, Any]]] = ValueCodec(list[tuple[key, value]], where)  # type: ignore[valid-type]
            self._key_codec: ValueCodec[Any] = ValueCodec(key, where)
            self.value_codec: ValueCodec[Any] = ValueCodec(value, where)
            self.is_flat = is_immutable(value)
            self._fits_key, self._fits_value = make_check(key), make_check(value)
            self._dict_kind = DictKind(
                where, make_check(key, value), self._fit_pair, None if self.is_flat else self.value_codec
            )
        else:
            self.is_flat = is_immutable(annotation)
            self.fits = make_check(annotation)
        self._declared = declared
        self.check_first()

    def __repr__(self) -> str:
        return f"<DeclaredField {self.where}: {self.annotation!r}>"

    @property
    def is_deep(self) -> bool:
        """Whether its value can change in place without a note of what was there before."""
        return not self.is_flat and not self.is_dict

    def check_first(self) -> None:
        """Make sure that there is a first value, of the type.

        Raises:
            ConfigurationError: there is none, or it can change and all services would share it.
        """
        if self._declared.default is not MISSING and not (self.is_flat and not self.is_dict):
            raise ConfigurationError(f"{self.where}: default={self._declared.default!r} can change; give a factory")
        try:
            self.stored(self.first(), None)
        except LocalProtocolError as error:
            raise ConfigurationError(f"the first value of {error}") from error

    def first(self) -> Any:
        """Make the value that the field begins with."""
        if self._declared.factory is not None:
            return self._declared.factory()
        if self._declared.default is not MISSING:
            return self._declared.default
        schema = self.codec.schema
        if isinstance(schema, list) and schema[0] == "union" and "None" in schema:
            return None
        made = get_origin(plain(self.annotation)) or plain(self.annotation)
        try:
            return made()
        except TypeError as error:
            raise ConfigurationError(
                f"{self.where}: type={made!r} gives no first value; say default or factory"
            ) from error

    def stored(self, value: Any, journal: Journal | None) -> Any:
        """Return a value as it is kept; without a `journal` it is only checked.

        Raises:
            LocalProtocolError: it is of another type.
        """
        if not self.is_dict:
            return value if self.fits(value) else fitted(self.codec, self.where, value)
        if not isinstance(value, dict):
            raise wrong_type(self.where, value, "dict")
        fits, fit = self._dict_kind.fits, self._fit_pair
        content = ((key, each if fits(key, each) else fit(key, each)) for key, each in plain_items(value))
        if journal is None:
            return dict(content)
        return (FlatDict if self.is_flat else DeepDict)(content, journal, self._dict_kind)

    @property
    def _written(self) -> ValueCodec[Any]:
        """What a snapshot is written with: a dict is in it as lists of pairs."""
        return self.pair_codec if self.is_dict else self.codec

    def encode(self, value: Any) -> bytes:
        """Write a value, or some pairs of a dict.

        Raises:
            LocalProtocolError: they have no bytes; says of which field.
        """
        try:
            return self._written.encode(value)
        except (TypeError, OverflowError, ValueError) as error:
            raise self._unwritable(error) from error

    def check_bytes(self, body: bytes) -> None:
        """Make sure that what was written can be read again.

        Raises:
            LocalProtocolError: it cannot; says of which field.
        """
        try:
            self._written.decode(body)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise self._unwritable(error) from error

    def decode(self, body: bytes, schema: Any) -> Any:
        """Read a value, or some pairs of a dict, that was written by a schema.

        Raises:
            RemoteProtocolError: the bytes are no such value; says of which field, and what to do.
        """
        codec = self._written
        try:
            if schema == self.codec.schema:
                return codec.decode(body)
            return codec.decode_older(body, ["list", ["tuple", *schema[1:]]] if self.is_dict else schema, self.where)
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise RemoteProtocolError(
                f"{self.where}: what the snapshot has is no {show_type(self.codec.schema)}: {error}; start the code "
                f"that wrote it, or write a static method migrate_{self.name}(old) that gives the new value"
            ) from error

    def _unwritable(self, error: Exception) -> LocalProtocolError:
        return LocalProtocolError(
            f"{self.where}: no {show_type(self.codec.schema)} could be read from the snapshot again: {error}"
        )

    def _fit_pair(self, key: Any, value: Any) -> Any:
        if not self._fits_key(key) and fitted(self._key_codec, f"{self.where}: key", key) is not key:
            # Another key would take its place in the dict.
            raise wrong_type(f"{self.where}: key", key, show_type(self._key_codec.schema))
        return value if self._fits_value(value) else fitted(self.value_codec, f"{self.where}[{key!r}]", value)


def journal_of(service: Any) -> Journal:
    """Return the journal of a service."""
    journal: Journal = service.__dict__[JOURNAL]
    return journal


def plan_of(service: Any) -> StatePlan:
    """Return what the class of a service declares."""
    plan: StatePlan = getattr(type(service), _PLAN)
    return plan


def as_builtins(value: object) -> Any:
    """Give a value of the state as plain dicts, lists, strings and numbers."""
    return to_builtins(dict(plain_items(value)) if isinstance(value, dict) else value)


class StatePlan:
    """All that a class of services declares; made once for a class."""

    def __init__(self, owner: type, framework: type, *, keeps_more: bool = False) -> None:
        """Take a class, and the one whose own attributes are not looked at.

        `keeps_more`: the author writes more than the declared state to snapshots, so there may be more attributes.

        Raises:
            ConfigurationError: a field has no annotation, or one that cannot be written in bytes, or an attribute is
                neither state nor derived from it; says which.
        """
        self.owner, self._keeps_more = owner, keeps_more
        try:
            hints = typing.get_type_hints(owner, include_extras=True)
        except NameError as error:
            raise CodecError(f"{owner.__qualname__}: an annotation cannot be read: {error}") from error
        self.fields = {name: self._field(each, hints) for name, each in _declared(owner, StateField).items()}
        self.outboxes = [each for each in _declared(owner, StateField).values() if isinstance(each, OutboxField)]
        self.derived = {name: self._derived(each, hints) for name, each in _declared(owner, DerivedField).items()}
        declared = {*self.fields, *self.derived}
        self._constants = frozenset() if keeps_more else check_class(owner, framework, hints, declared)
        self.check: Callable[[dict[str, Any], dict[str, Any]], None] = self._make_check()
        self._is_same: Callable[[dict[str, Any], dict[str, Any]], bool] = self._make_is_same(declared)

    def __repr__(self) -> str:
        return f"<StatePlan {self.owner.__qualname__} fields={[*self.fields]}>"

    def begin(self, service: Any) -> None:
        """Give a service its first values."""
        attributes = service.__dict__
        journal = attributes.setdefault(JOURNAL, Journal(attributes, self._is_same))
        for name, field in self.fields.items():
            attributes[name] = field.stored(field.first(), journal)

    def check_untouched(self, service: Any) -> None:
        """Make sure that a constructor set no field: it would be lost when a snapshot is loaded.

        Raises:
            ConfigurationError: it did; says which.
        """
        for name, field in self.fields.items():
            if as_builtins(service.__dict__[name]) != as_builtins(field.first()):
                raise ConfigurationError(
                    f"{field.where}: {name} was set before on_start, and a snapshot would take its place; "
                    f"expected the first value in the declaration: state(factory=...) or state(default=...)"
                )

    def settle(self, service: Any) -> None:
        """Take the state as it is when the service has started.

        Raises:
            ConfigurationError: an attribute is neither state nor derived.
            LocalProtocolError: a value is of another type than it is declared with.
        """
        attributes = service.__dict__
        journal: Journal = attributes[JOURNAL]
        for name, field in self.fields.items():
            if name not in attributes:
                raise ConfigurationError(f"{field.where}: on_start deleted it; expected a value")
            if not isinstance(attributes[name], FlatDict):
                attributes[name] = field.stored(attributes[name], journal)
        for name, value in attributes.items():
            if isinstance(value, Outbox):
                raise ConfigurationError(
                    f"{self.owner.__qualname__}.{name}: Outbox() is for services without declared state, and would not "
                    f"be undone; expected `{name}: Outbox[Charge] = outbox()` with `class Charge(Effect)`"
                )
        if not self._keeps_more:
            names = [name for name in attributes if name not in self.fields and name not in self.derived]
            check_instance(self.owner, attributes, names, self._constants)
        for each in self.derived.values():
            each.remake(service)

    def find_drift(self, service: Any) -> str | None:
        """Say which derived value is another one than it would be after a start, if one that can be compared is."""
        attributes = service.__dict__
        for name, each in self.derived.items():
            now, made = attributes[name], each.make(service)
            if _is_comparable(now) and now != made:
                return f"{self.owner.__qualname__}.{name}: derived expected={made!r} actual={now!r}"
        return None

    def _field(self, declared: StateField, hints: dict[str, Any]) -> DeclaredField:
        name, where = declared.name, f"{self.owner.__qualname__}.{declared.name}"
        if name not in hints:
            raise ConfigurationError(
                f"{where}: a field of the state needs its type: `{name}: dict[str, int] = state()`"
            )
        annotation = hints[name]
        if isinstance(declared, OutboxField):
            annotation = declared.bind(annotation, where)
        elif get_origin(plain(annotation)) is Outbox:
            raise ConfigurationError(f"{where}: an outbox is declared with `= outbox()`, not with `= state()`")
        field = DeclaredField(declared, annotation, where)
        if field.is_deep != isinstance(declared, DeepField):
            made = DeepField(declared, field) if field.is_deep else StateField(declared.default, declared.factory)
            made.name = name
            setattr(self.owner, name, made)
        return field

    def _derived(self, declared: DerivedField, hints: dict[str, Any]) -> DerivedField:
        name, where = declared.name, f"{self.owner.__qualname__}.{declared.name}"
        if name not in hints:
            raise ConfigurationError(
                f"{where}: a derived value needs its type: `{name}: dict[str, int] = derived(...)`"
            )
        annotation = plain(hints[name])
        is_dict = get_origin(annotation) is dict and is_immutable(get_args(annotation)[1])
        writes_down = isinstance(annotation, type) and hasattr(annotation, "attach_journal")
        kind = DerivedField if is_dict or writes_down or is_immutable(annotation) else TouchedField
        if type(declared) is kind and declared.is_dict == is_dict:
            return declared
        made = kind(declared.make)
        made.name, made.is_dict = name, is_dict
        setattr(self.owner, name, made)
        return made

    def _make_check(self) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        """Write the function that checks what a handler changed: it is called for each message."""
        source = CheckSource()
        fix, check_names = source.name(self._fix), source.name(self._check_names)
        lines = ["def made(now, before):", "    try:", "        if len(now) != len(before):"]
        lines.append(f"            {check_names}(now, before)")
        for name, field in self.fields.items():
            if field.is_dict:
                lines += [f"        if now[{name!r}] is not before[{name!r}]:"]
            elif field.is_flat:
                fits = source.expression(field.annotation, "v")
                lines += [f"        v = now[{name!r}]", f"        if v is not before[{name!r}] and not ({fits}):"]
            else:
                continue
            lines.append(f"            {fix}(now, {name!r})")
        for name, each in self.derived.items():
            if each.is_dict:
                lines += [f"        if now[{name!r}] is not before[{name!r}]:", f"            {fix}(now, {name!r})"]
        lines += ["    except KeyError:", f"        {check_names}(now, before)", "        raise"]
        return source.compile("\n".join(lines))

    def _make_is_same(self, names: Collection[str]) -> Callable[[dict[str, Any], dict[str, Any]], bool]:
        """Write the function that says whether attributes are the same objects: it is called for each query."""
        same = " and ".join(("len(now) == len(before)", *(f"now[{name!r}] is before[{name!r}]" for name in names)))
        lines = ["def made(now, before):", "    try:", f"        return {same}", "    except KeyError:"]
        return CheckSource().compile("\n".join((*lines, "        return False")))

    def _fix(self, now: dict[str, Any], name: str) -> None:
        """Take another value into a field, or raise."""
        field = self.fields.get(name) or self.derived[name]
        now[name] = field.stored(now[name], now[JOURNAL])

    def _check_names(self, now: dict[str, Any], before: dict[str, Any]) -> None:
        """Refuse attributes that a handler made or deleted."""
        changed = now.keys() ^ before.keys()
        if changed and not self._keeps_more:
            raise LocalProtocolError(show_attributes(self.owner, sorted(changed), now))


def _declared(owner: type, kind: type) -> dict[str, Any]:
    """List what a class and its bases declare of a kind, the bases' first."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, kind):
                found[name] = value
            else:
                found.pop(name, None)
    return found


def _is_comparable(value: Any) -> bool:
    """Whether equal values of a type compare as equal."""
    own: object = type(value).__eq__
    return own is not object.__eq__


def _fits_all(key: object, value: object) -> bool:
    return True


def _unreachable(key: object, value: object) -> object:
    return value


def is_immutable(annotation: Any, outer: tuple[type, ...] = ()) -> bool:
    """Whether values of a type cannot change in place, nor what is in them."""
    annotation = plain(annotation)
    origin = get_origin(annotation)
    if annotation in PLAIN_TYPES or annotation is None or annotation in outer or origin is Literal:
        return True
    if origin in (Union, types.UnionType, tuple, frozenset):
        return all(is_immutable(each, outer) for each in get_args(annotation) if each is not ...)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return True
    if not is_record(annotation):
        return False
    return is_frozen(annotation) and all(
        is_immutable(each.type, (*outer, annotation)) for each in fields_of(annotation)
    )
