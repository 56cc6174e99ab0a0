"""What an entry changed in two instances of a typed service, compared: by their journals, not by their whole states.

The problem: two instances are to be compared after each entry, and a state as plain values, or as bytes, costs as much
as it is large: 14 us for seven small fields. The idea: an entry changes what its handlers assigned, and what the two
journals name. From a position on at which the states are equal, they are equal as long as these are.

    a field that cannot change in place and has plain values    compared each time: `==` of two numbers or texts
    any other field                                             compared if it holds another object than before
    a key of a dict, a value that was handed out                compared if one of the journals names it

Invariant: what is compared decides by bytes wherever `==` is of an author's class, which may leave out a field.

What goes round the journals, such as a value of the state that was kept and changed at a later entry, is not seen here:
it is found when the whole states are compared, at the next snapshot. A class that overrides a callback of the log may
change state where no journal is open; its instances are not paired.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from ..errors import LocalProtocolError
from ..service import PLAIN_CALLBACKS
from ..state_pair import StatePair, pair_states
from .declared_state import DeclaredField, DeepValue, journal_of, plan_of
from .journal import MISSING
from .service import TypedService
from .state_dicts import plain_items
from .state_fields import DeclaredValues, compare_fields, read_value, shown
from .value_checks import CheckSource, plain

_PLAIN: Final = (bool, int, float, str, bytes, type(None))


class _Place:
    """One declared field of both instances, as it was when they were the same."""

    __slots__ = ("_encode", "field", "first", "is_plain", "second")

    def __init__(self, field: DeclaredField, first: Any, second: Any) -> None:
        self.field, self.first, self.second = field, first, second
        kind = get_args(plain(field.annotation))[1] if field.is_dict else field.annotation
        self.is_plain = _is_plain(kind)
        """Whether `==` says if two values, of a dict two of its values, are the same."""
        self._encode: Callable[[Any], bytes] = field.value_codec.encode if field.is_dict else field.codec.encode

    def is_same(self, first: Any, second: Any) -> bool:
        """Whether two values, of a dict two of its values, are the same; what cannot be written never is."""
        if self.is_plain or first is MISSING or second is MISSING:
            return bool(first == second)
        try:
            return self._encode(first) == self._encode(second)
        except (TypeError, OverflowError, ValueError):
            return False


class TypedPair:
    """Two instances of one class of typed services."""

    def __init__(self, first: TypedService, second: TypedService) -> None:
        self._plan = plan_of(first)
        self._attributes = first.__dict__, second.__dict__
        self._journals = journal_of(first), journal_of(second)
        self._notes = self._journals[0].listen(), self._journals[1].listen()
        self._places = {name: self._place_of(name) for name in self._plan.fields}
        self._dicts: dict[int, _Place] = {}
        """By `id`, the dicts of both instances, which `_places` keeps."""
        self._known: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        """The objects that the fields held when they were the same, by name."""
        for name in self._places:
            self._take(name)
        self._holds_same = _make_holds_same(self._places)

    def __repr__(self) -> str:
        return f"<TypedPair {self._plan.owner.__qualname__}>"

    def close(self) -> None:
        """Listen to the journals no more."""
        for journal, notes in zip(self._journals, self._notes, strict=True):
            journal.ignore(notes)

    def find_difference(self) -> str:
        """Say by field in what the entries since the last call have made them differ; "" if in nothing."""
        dicts, get = self._dicts, dict.get
        first_notes, second_notes = self._notes
        (one, two), (known, other_known) = self._attributes, self._known
        keys: dict[str, list[Any]] = {}
        names: list[str] = []
        for owner, key, _ in (*first_notes, *second_notes):
            place = dicts.get(id(owner))
            if place is not None:
                first, second = get(place.first, key, MISSING), get(place.second, key, MISSING)
                if not (first == second if place.is_plain else place.is_same(first, second)):
                    keys.setdefault(place.field.name, []).append(key)
            elif isinstance(owner, DeepValue):
                names.append(owner.field.name)
        first_notes.clear()
        second_notes.clear()
        if names or not self._holds_same(one, two, known, other_known):
            names += self._find_replaced(names)
        elif not keys:
            return ""
        told = [self._describe(name, some) for name, some in keys.items() if name not in names]
        return "; ".join(filter(None, (*told, *map(self._describe_whole, names))))

    def _place_of(self, name: str) -> _Place:
        first, second = self._attributes
        return _Place(self._plan.fields[name], first[name], second[name])

    def _take(self, name: str) -> None:
        """Keep what a field holds in both instances, which is the same."""
        before, place = self._places[name], self._place_of(name)
        self._dicts.pop(id(before.first), None)
        self._dicts.pop(id(before.second), None)
        self._places[name] = place
        self._known[0][name], self._known[1][name] = place.first, place.second
        if place.field.is_dict:
            self._dicts[id(place.first)] = self._dicts[id(place.second)] = place

    def _find_replaced(self, handed: list[str]) -> list[str]:
        """List the fields that hold other objects than before, beside those that were handed out."""
        first, second = self._attributes
        return [
            name
            for name, each in self._places.items()
            if (first[name] is not each.first or second[name] is not each.second) and name not in handed
        ]

    def _describe_whole(self, name: str) -> str:
        """Say in what the values of a field differ; where they do not, they are taken for known."""
        place = self._place_of(name)
        told = ""
        if place.field.is_dict or not place.is_same(place.first, place.second):
            told = self._describe(name, None)
        if not told:
            self._take(name)
        return told

    def _describe(self, name: str, keys: list[Any] | None) -> str:
        """Say in what the values of a field differ, or those of some keys of a dict."""
        place = self._place_of(name)
        pair = [_part_of(place.field, each, keys) for each in (place.first, place.second)]
        try:
            states = [
                DeclaredValues({name: read_value(place.field.codec.schema, place.field.encode(each))}) for each in pair
            ]
            return "; ".join(compare_fields(*states).differences)
        except LocalProtocolError:  # a value that has no bytes
            return "" if pair[0] == pair[1] else f"{name}: expected={shown(pair[0])} actual={shown(pair[1])}"


def _part_of(field: DeclaredField, value: Any, keys: list[Any] | None) -> Any:
    """Return a value as it is written: of a dict the pairs of some keys, or all."""
    if not field.is_dict:
        return value
    if keys is None:
        return [*plain_items(value)]
    return [(key, dict.__getitem__(value, key)) for key in dict.fromkeys(keys) if key in value]


def _is_plain(annotation: Any) -> bool:
    """Whether two values of a type are the same if they are equal: no class of an author says what is equal."""
    annotation = plain(annotation)
    if get_origin(annotation) in (Union, UnionType, tuple):
        return all(map(_is_plain, filter(lambda each: each is not ..., get_args(annotation))))
    return annotation is None or annotation in _PLAIN


def _make_holds_same(places: dict[str, _Place]) -> Callable[..., bool]:
    """Write the function that compares the fields by themselves: it is called for each entry.

    It is given the attributes of both instances, and the objects that they held when they were the same.
    """
    source = CheckSource()
    tests = []
    for name, each in places.items():
        if each.is_plain and not each.field.is_dict:
            tests.append(f"one[{name!r}] == two[{name!r}]")
        else:
            tests.append(f"one[{name!r}] is known[{name!r}] and two[{name!r}] is other_known[{name!r}]")
    return source.compile(f"def made(one, two, known, other_known):\n    return {' and '.join(tests)}\n")


@pair_states.register
def _pair_typed(first: TypedService, second: TypedService) -> StatePair | None:
    kind = type(first)
    is_whole = all(getattr(kind, name) is getattr(TypedService, name) for name in (*PLAIN_CALLBACKS, "state_hash"))
    return TypedPair(first, second) if is_whole and type(second) is kind else None
