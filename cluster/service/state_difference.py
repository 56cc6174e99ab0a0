"""Says in what two states differ that `state_hash` returned: by key, index or element, not as two numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Final

from ...service_api.errors import LocalProtocolError
from ...service_api.service_texts import ServiceTexts
from .digests import canonical_bytes

_SHOWN_COUNT: Final = 8
_SHOWN_LENGTH: Final = 80
_MISSING: Final = object()

FORGOTTEN_ADVICE: Final = "does on_take_snapshot write every field, and on_start read it?"
DERIVED_ADVICE: Final = "If it need not be kept, such as a cache, write a state_hash of the fields that count."


def describe_difference(expected: object, actual: object) -> str:
    """Return the first differences between two states, each as `place: expected=... actual=...`; "" without any.

    Raises:
        LocalProtocolError: a state holds an object that cannot be compared between processes.
    """
    return "; ".join(islice(_differences("", expected, actual), _SHOWN_COUNT))


def describe_payload_difference(expected: object, actual: object) -> str:
    """Return what two payloads, or two other results, show where they differ."""
    if not isinstance(expected, bytes) or not isinstance(actual, bytes) or len(expected) < _SHOWN_LENGTH:
        return f"expected={shown_value(expected)} actual={shown_value(actual)}"
    at = next((index for index, pair in enumerate(zip(expected, actual, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return f"expected length={len(expected)} actual length={len(actual)}"
    end = at + _SHOWN_LENGTH // 2
    return f"from byte {at} on: expected={expected[at:end]!r} actual={actual[at:end]!r}"


def find_forgotten(before: object, after: object) -> str | None:
    """Say which attribute of a service is another one in a new instance that has loaded its snapshot.

    Attributes that hold other things than plain values are not looked at: they may be what a start makes.
    """
    for name, value in vars(before).items():
        loaded = {name: getattr(after, name)} if hasattr(after, name) else {}
        try:
            problem = describe_difference({name: value}, loaded)
        except LocalProtocolError:
            continue
        if problem:
            return f"{type(before).__qualname__}{problem}"
    return None


def describe_payloads(expected: object, actual: object, texts: ServiceTexts) -> str:
    """Return what two payloads, or two other results, show where they differ: by field where these are messages."""
    told = texts.difference(expected, actual) if isinstance(expected, bytes) and isinstance(actual, bytes) else None
    return told or describe_payload_difference(expected, actual)


def shown_payload(value: object, texts: ServiceTexts) -> str:
    """Show a payload as the message that it is, or any other value, in one line."""
    return (texts.message(value) if isinstance(value, bytes) else None) or shown_value(value)


def _differences(place: str, expected: object, actual: object) -> Iterator[str]:
    if canonical_bytes(expected) == canonical_bytes(actual):
        return
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in dict.fromkeys((*expected, *actual)):
            yield from _of_part(f"{place}[{key!r}]", expected.get(key, _MISSING), actual.get(key, _MISSING))
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        for index in range(max(len(expected), len(actual))):
            parts = (each[index] if index < len(each) else _MISSING for each in (expected, actual))
            yield from _of_part(f"{place}[{index}]", *parts)
    elif isinstance(expected, AbstractSet) and isinstance(actual, AbstractSet):
        for element in sorted(expected - actual, key=repr):
            yield f"{place or 'set'} lacks {shown_value(element)}"
        for element in sorted(actual - expected, key=repr):
            yield f"{place or 'set'} has {shown_value(element)} besides"
    elif is_dataclass(expected) and type(expected) is type(actual):
        for each in fields(expected):
            yield from _of_part(f"{place}.{each.name}", getattr(expected, each.name), getattr(actual, each.name))
    else:
        yield f"{place or 'state'}: expected={shown_value(expected)} actual={shown_value(actual)}"


def _of_part(place: str, expected: object, actual: object) -> Iterator[str]:
    if expected is _MISSING:
        yield f"{place}: expected nothing, actual={shown_value(actual)}"
    elif actual is _MISSING:
        yield f"{place}: expected={shown_value(expected)} is missing"
    else:
        yield from _differences(place, expected, actual)


def shown_value(value: object) -> str:
    """Show a value in one line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."
