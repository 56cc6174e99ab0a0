"""Methods of typed clients, one for each message, with asyncio and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from ...service_api.typed import Command, Query
from .exchange import wrong_call
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
        LocalProtocolError: it is a `Query`: use `asks`.
    """
    if isinstance(command, type) and issubclass(command, Query):
        raise wrong_call(command, "calls", takes=Command, other="asks")
    return Method(command, "call")


def asks(query: Callable[P, Query[R]]) -> Method[P, R]:
    """Declare a method of a client that sends a query: with the parameters of its class, and its reply.

    Raises:
        LocalProtocolError: it is a `Command`: use `calls`.
    """
    if isinstance(query, type) and issubclass(query, Command):
        raise wrong_call(query, "asks", takes=Query, other="calls")
    return Method(query, "ask")
