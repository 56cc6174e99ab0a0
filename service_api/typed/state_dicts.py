"""Dicts of the state: as any dict, but they write down what was there before, and refuse values of another type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, SupportsIndex, TypeVar, cast

from .codec import ValueCodec
from .journal import MISSING, Journal

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class DictKind:
    """What a dict may hold."""

    where: str
    fits: Callable[[Any, Any], bool]
    """Whether a key and a value are of the declared types."""
    fit: Callable[[Any, Any], Any]
    """Return a value that does not fit as one that does; raises `LocalProtocolError` if there is none."""
    value_codec: ValueCodec[Any] | None = None
    """Of values that can change in place; None where they cannot."""


class FlatDict(dict[K, V], Generic[K, V]):
    """A dict whose values cannot change in place."""

    __slots__ = ("_fits", "_journal", "kind")

    def __init__(self, content: Iterable[tuple[K, V]], journal: Journal, kind: DictKind) -> None:
        """Take content that fits."""
        super().__init__(content)
        self._journal = journal
        self._fits = kind.fits
        self.kind = kind

    def undo(self, key: K, before: Any) -> bool:
        """Put back what was there before."""
        if before is MISSING:
            dict.pop(self, key, None)
        else:
            dict.__setitem__(self, key, before)
        return True

    def __setitem__(self, key: K, value: V) -> None:
        if not self._fits(key, value):
            value = self.kind.fit(key, value)
        self._journal.note((self, key, dict.get(self, key, MISSING)))
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: K) -> None:
        self._journal.note((self, key, dict.get(self, key, MISSING)))
        dict.__delitem__(self, key)

    def pop(self, key: K, *default: Any) -> Any:
        """As of a dict."""
        if key in self:
            self._journal.note((self, key, dict.__getitem__(self, key)))
        return dict.pop(self, key, *default)

    def popitem(self) -> tuple[K, V]:
        """As of a dict."""
        for key in reversed(self):
            return key, self.pop(key)
        return dict.popitem(self)  # raises

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

    __slots__ = ()

    def undo(self, key: Any, before: Any) -> bool:
        """Put back a value as the bytes that were written down say, or as a flat dict does."""
        if not isinstance(before, Handed):
            return super().undo(key, before)
        codec = self._codec
        if is_same(codec, before.value, before.encoded):
            return False
        dict.__setitem__(self, key, codec.decode(before.encoded))
        return True

    def check(self, key: Any) -> None:
        """Make sure that a value that was handed out is still of its type."""
        value = dict.get(self, key, MISSING)
        if value is not MISSING and not self._fits(key, value):
            dict.__setitem__(self, key, self.kind.fit(key, value))

    def __iter__(self) -> Iterator[K]:
        # Without it `dict(state)` would take the values past `__getitem__`.
        return dict.__iter__(self)

    def __getitem__(self, key: K) -> V:
        value = dict.__getitem__(self, key)
        self._hand_out(key, value)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            self._hand_out(key, dict.__getitem__(self, key))
        super().__setitem__(key, value)
        self._hand_out(key, dict.__getitem__(self, key))  # its author has it still

    def __delitem__(self, key: K) -> None:
        if key in self:
            self._hand_out(key, dict.__getitem__(self, key))
        super().__delitem__(key)

    def pop(self, key: K, *default: Any) -> Any:
        """As of a dict."""
        if key in self:
            self._hand_out(key, dict.__getitem__(self, key))
        return super().pop(key, *default)

    def get(self, key: K, default: Any = None) -> Any:
        """As of a dict."""
        if key not in self:
            return default
        return self[key]

    def values(self) -> Any:
        """The values, one after the other; each is written down when it is handed out."""
        return _HandedView(self, lambda key: self[key])

    def items(self) -> Any:
        """Keys with values, one after the other; each value is written down when it is handed out."""
        return _HandedView(self, lambda key: (key, self[key]))

    def copy(self) -> dict[K, V]:
        """A plain dict of the same values."""
        return dict(self.items())

    @property
    def _codec(self) -> ValueCodec[Any]:
        assert self.kind.value_codec is not None
        return self.kind.value_codec

    def _hand_out(self, key: K, value: V) -> None:
        """Write down a value that may be changed by who has it."""
        journal = self._journal
        place = (id(self), key)
        if not journal.is_open or place in journal.handed_names:
            return
        journal.handed_names.add(place)
        journal.keep(self, key, Handed(value, self._codec.encode(value)))


@dataclass(slots=True)
class Handed:
    """A value that was handed out, and its bytes at that time."""

    value: Any
    encoded: bytes


class _HandedView(Generic[V]):
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


def is_same(codec: ValueCodec[Any], value: object, encoded: bytes) -> bool:
    """Whether a value still has these bytes."""
    try:
        return codec.encode(value) == encoded
    except (TypeError, OverflowError, ValueError):
        return False  # what was put into it has no bytes at all


def plain_items(value: dict[K, V]) -> Iterable[tuple[K, V]]:
    """Go through a dict of the state without writing anything down."""
    return cast("Iterable[tuple[K, V]]", dict.items(value))
