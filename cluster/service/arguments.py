"""What a service passes to its cluster is checked where it enters: behind that, it is replicated state."""

from __future__ import annotations

import operator

from trimaran.service_api import LocalProtocolError

Payload = bytes | bytearray | memoryview


def whole_number(name: str, value: object) -> int:
    """Return a number that a service gave.

    Raises:
        LocalProtocolError: it is none, such as 1.5 or True, which no log entry and no snapshot can hold.
    """
    if isinstance(value, bool):
        raise LocalProtocolError(f"{name}={value!r} expected an int, not a bool")
    try:
        return operator.index(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        raise LocalProtocolError(f"{name}={value!r} type={type(value).__name__} expected an int") from None


def plain_bytes(name: str, value: object) -> Payload:
    """Return a payload of a service whose length is its number of bytes.

    Raises:
        LocalProtocolError: it is no payload, such as a str.
    """
    if isinstance(value, memoryview):
        return value if value.itemsize == 1 and value.c_contiguous else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise LocalProtocolError(f"{name}: type={type(value).__name__} expected bytes, bytearray or memoryview")
