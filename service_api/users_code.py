"""Which functions call code of users: their services, their authenticators, the modules of these.

How long such a function takes is not ours to judge. The watchdog of a member looks for them on the stack of a loop that
stands still. A mark costs nothing where the function runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, Final, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])  # Any: it is only looked at

USERS_CODE: Final[set[CodeType]] = set()
"""The code of all functions that are marked; as many as there are marks."""


def calls_users_code(function: _F) -> _F:
    """Mark a function, or a coroutine function, that calls code of users while it is on the stack."""
    USERS_CODE.add(cast(Any, function).__code__)
    return function
