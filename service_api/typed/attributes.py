"""Attributes of a typed service that are neither state nor derived from it: refused, since nothing would keep them.

They work until a member starts again. Then it has other values than the others, and nobody is told.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Collection, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from random import Random
from typing import Any, ClassVar, Final, get_origin

from ..errors import ConfigurationError
from .schema import is_frozen, is_record

_MUTABLE: Final = (MutableMapping, MutableSequence, MutableSet, bytearray, Iterator, Random)
_CACHES: Final = (functools.cached_property, type(functools.lru_cache(lambda: None)))
_FRAMEWORK: Final = re.compile("typing|abc|builtins")
_REMEDY: Final = (
    "expected `= state()` for what the log decides, `= derived(make)` for what is made of the state at each start, or "
    "`Final` for a constant that cannot change in place"
)


def check_class(owner: type, framework: type, hints: Mapping[str, Any], declared: Collection[str]) -> frozenset[str]:
    """Refuse attributes of a class and its bases that a message could change and nothing would keep.

    Returns the names of constants that a constructor sets: `limit: Final[int]`.

    Raises:
        ConfigurationError: there is one; says where and what to do.
    """
    constants: set[str] = set()
    for base in owner.__mro__:
        if base in framework.__mro__ or _FRAMEWORK.fullmatch(base.__module__):
            continue
        for name in inspect.get_annotations(base):
            if name in declared:
                continue
            where, kind = f"{base.__qualname__}.{name}", hints.get(name)
            if _is_of(kind, Final) and name not in vars(base):
                constants.add(name)
            elif not _is_of(kind, Final) and not _is_of(kind, ClassVar):
                raise ConfigurationError(f"{where}: a value that nothing keeps, {_REMEDY}")
        for name, value in vars(base).items():
            if name not in declared and not name.startswith("__"):
                _check_value(f"{base.__qualname__}.{name}", value)
    return frozenset(constants)


def check_instance(
    owner: type, attributes: Mapping[str, Any], names: Collection[str], constants: frozenset[str]
) -> None:
    """Refuse attributes that a constructor or `on_start` has set.

    Raises:
        ConfigurationError: one is no constant, or one that can change in place.
    """
    for name in names:
        if name in constants:
            _check_value(f"{owner.__qualname__}.{name}", attributes[name])
        elif not name.startswith("_TypedService__"):
            raise ConfigurationError(
                f"{owner.__qualname__}.{name}: value={type(attributes[name]).__name__} set in __init__ or on_start is "
                f"a value that nothing keeps, {_REMEDY}"
            )


def show_attributes(owner: type, names: Collection[str], now: Mapping[str, Any]) -> str:
    """Say what is wrong with attributes that a handler made or deleted."""
    made = [name for name in names if name in now]
    what = f"{owner.__qualname__}.{(made or [*names])[0]}"
    return (
        f"{what}: a handler made an attribute, {_REMEDY}" if made else f"{what}: a handler deleted it, expected a value"
    )


def changes_in_place(value: object) -> bool:
    """Whether a value is known to be one that can change in place."""
    if isinstance(value, tuple):
        return any(map(changes_in_place, value))
    if isinstance(value, type):
        return False
    return isinstance(value, _MUTABLE) or (is_record(type(value)) and not is_frozen(type(value)))


def _check_value(where: str, value: object) -> None:
    inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if isinstance(inner, _CACHES):
        raise ConfigurationError(
            f"{where}: {type(inner).__name__} keeps what it gave, and nothing else does, {_REMEDY}"
        )
    if isinstance(value, types.MemberDescriptorType):
        raise ConfigurationError(f"{where}: a slot is an attribute that nothing keeps, {_REMEDY}")
    if changes_in_place(value):
        raise ConfigurationError(f"{where}: value={type(value).__name__} can change in place, {_REMEDY}")


def _is_of(annotation: Any, kind: Any) -> bool:
    return annotation is kind or get_origin(annotation) is kind
