"""Valid messages to begin with: two of every model, one of small values and one of large ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic import BaseModel

from trimaran.service_api.wire.fields import BlockField, MessageLayout
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.message import Message

_LARGEST: Final = {"q": (1 << 63) - 1, "i": (1 << 31) - 1, "b": 127, "B": 254, "H": 65534}


def sample_messages(models: Iterable[type[Message]]) -> Iterator[Message]:
    """Make two messages of each model."""
    for model in models:
        for is_large in (False, True):
            yield make_sample(model, is_large=is_large)


def make_sample(model: type[Message], *, is_large: bool = False) -> Message:
    """Make a message of a model."""
    return model(**_values(model.LAYOUT, is_large=is_large))


def framed(messages: Iterable[Message], stream_id: int) -> bytes:
    """Lay messages out as frames, one after the other."""
    return b"".join(encode_frame(message.encode(), stream_id=stream_id) for message in messages)


def _values(layout: MessageLayout, *, is_large: bool) -> dict[str, Any]:
    values = {field.name: _value(field, index, is_large=is_large) for index, field in enumerate(layout.block)}
    for group in layout.groups:
        element: type[BaseModel] = group.element
        values[group.name] = (element(**_values(group.layout, is_large=is_large)),) * (2 if is_large else 1)
    for field in layout.var_data:
        text = "localhost:9000" if is_large else ""
        values[field.name] = text if field.is_text else text.encode()
    return values


def _value(field: BlockField, index: int, *, is_large: bool) -> Any:
    if field.values is not None:
        return field.values[-1 if is_large else 0][1]
    if is_large:
        return None if field.optional else _LARGEST[field.format]
    return index
