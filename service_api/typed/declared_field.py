"""A declared field of a typed service, as it stands in the body of the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class NamedField:
    """A declaration in the body of a class that knows its name there."""

    name = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class StateField(NamedField):
    """A declared field of a service, where its value is an attribute of the service. `state` makes it."""

    def __init__(self, default: object, factory: Callable[[], object] | None) -> None:
        self.default = default
        self.factory = factory

    def __get__(self, service: Any, owner: type) -> Any:
        # The attribute of an instance comes before this descriptor.
        if service is None:
            return self
        raise AttributeError(f"{type(service).__name__}.{self.name}: the field of the state was deleted")
