"""Methods of typed clients, one for each message, with asyncio and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from ...service_api.errors import ConfigurationError
from ...service_api.typed import Command, Query
from .exchange import find_kind_fault
from .sync_typed_client import SyncTypedClient
from .typed_client import TypedClient

R = TypeVar("R")
P = ParamSpec("P")


class Method(Generic[P, R]):
    """A method of a client that makes a message of its arguments and sends it. `calls` and `asks` make it."""

    def __init__(self, message: Callable[P, Any], name: str) -> None:
        self._message = message
        self._name = name

    def __repr__(self) -> str:
        return f"<Method {self._name} {getattr(self._message, '__name__', self._message)}>"

    @overload
    def __get__(self, client: TypedClient, owner: type) -> Callable[P, Awaitable[R]]: ...
    @overload
    def __get__(self, client: SyncTypedClient, owner: type) -> Callable[P, R]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self
        send = getattr(client, self._name)
        return lambda *args, **kwargs: send(self._message(*args, **kwargs))


def calls(command: Callable[P, Command[R]]) -> Method[P, R]:
    """Declare a method of a client that sends a command: with the parameters of its class, and its reply.

    Raises:
        ConfigurationError: the class is no command.
    """
    _check_class(command, Command)
    return Method(command, "call")


def asks(query: Callable[P, Query[R]]) -> Method[P, R]:
    """Declare a method of a client that sends a query: with the parameters of its class, and its reply.

    Raises:
        ConfigurationError: the class is no query.
    """
    _check_class(query, Query)
    return Method(query, "ask")


def _check_class(message: object, expected: type[Command[Any] | Query[Any]]) -> None:
    """Refuse a class of the other kind; a function that makes messages is checked by what it makes."""
    fault = find_kind_fault(message, expected) if isinstance(message, type) else None
    if fault is not None:
        raise ConfigurationError(fault)
