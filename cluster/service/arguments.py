"""What a service passes to its cluster is checked where it enters: behind that, it is replicated state."""

from __future__ import annotations

import operator

from ...service_api import LocalProtocolError


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
