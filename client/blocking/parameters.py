"""Functions that take the parameters of another one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def with_parameters_of(model: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function the parameters of another one, for type checkers and for `help`."""

    def take(function: Callable[..., T]) -> Callable[P, T]:
        returned = inspect.signature(function).return_annotation
        function.__signature__ = inspect.signature(model).replace(  # type: ignore[attr-defined]
            return_annotation=returned
        )
        return function

    return take
