"""Which method of a service takes which message: the decorators, and the table that they make.

What is wrong is told when the class is defined, with the file and the line of the method.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, Final, TypeVar, get_args, get_origin

from ..errors import ConfigurationError
from .messages import Command, Query, TimerMessage, TypedMessage, wire_name

S = TypeVar("S")
R = TypeVar("R")
C = TypeVar("C", bound=TypedMessage)
Handler = Callable[[Any, Any, Any], R]
"""A method: of a service, with a context and a message."""

_MARK: Final = "__trimaran_handles__"


class HandlerRole(Enum):
    """What a method is for."""

    COMMAND = "handles"
    QUERY = "answers"
    TIMER = "on_timer"
    UPCAST = "upcasts"


@dataclass(slots=True)
class _Mark:
    role: HandlerRole
    message: type
    place: str


_BASES: Final[dict[HandlerRole, type]] = {
    HandlerRole.COMMAND: Command,
    HandlerRole.QUERY: Query,
    HandlerRole.TIMER: TimerMessage,
    HandlerRole.UPCAST: TypedMessage,
}


def handles(message: type[Command[R]]) -> Callable[[Handler[R]], Handler[R]]:
    """Mark the method of a service that runs a command, and gives its reply.

    @handles(Deposit)
    def deposit(self, ctx: Context, message: Deposit) -> Balance: ...
    """
    return _marker(HandlerRole.COMMAND, message)


def answers(message: type[Query[R]]) -> Callable[[Handler[R]], Handler[R]]:
    """Mark the method of a service that answers a query: from the state as it is, which it may not change."""
    return _marker(HandlerRole.QUERY, message)


def on_timer(message: type[TimerMessage]) -> Callable[[Handler[None]], Handler[None]]:
    """Mark the method of a service that is called when a timer fires, which `Context.schedule` has set."""
    return _marker(HandlerRole.TIMER, message)


def upcasts(message: type[C]) -> Callable[[Callable[[C], R]], Callable[[C], R]]:
    """Mark the function that makes today's message of an older one, which is a class of the same name on the wire.

    class DepositOfMay(Command[Balance], name="Deposit"):
        account: int
        amount: int

    @upcasts(DepositOfMay)
    @staticmethod
    def from_may(old: DepositOfMay) -> Deposit: ...
    """
    return _marker(HandlerRole.UPCAST, message)


def _marker(role: HandlerRole, message: Any) -> Callable[[Any], Any]:
    decorator = f"@{role.value}"
    if not isinstance(message, type) or not issubclass(message, _BASES[role]):
        shown = message.__name__ if hasattr(message, "__name__") else repr(message)
        raise ConfigurationError(
            f"{decorator}({shown}) {_caller()}: expected a class that is a {_BASES[role].__name__}, as in "
            f"{decorator}(Deposit) above the method"
        )

    def mark(method: Any) -> Any:
        function = method.__func__ if isinstance(method, staticmethod) else method
        place = place_of(function)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise ConfigurationError(f"{place}: expected a plain function: def, without async and yield")
        _check_name_is_free(function, inspect.currentframe())
        marks = getattr(function, _MARK, ())
        setattr(function, _MARK, (*marks, _Mark(role, message, place)))
        return method

    return mark


def _check_name_is_free(function: Any, frame: FrameType | None) -> None:
    """Refuse a second method of one name: Python would leave the first one out without a word."""
    body = None if frame is None or frame.f_back is None else frame.f_back.f_locals
    other = None if body is None else body.get(function.__name__)
    other = other.__func__ if isinstance(other, staticmethod) else other
    if getattr(other, _MARK, ()):
        raise ConfigurationError(f"two methods of one name: {place_of(other)} and {place_of(function)}; rename one")


def _caller() -> str:
    frame = inspect.stack()[3]
    return f"{frame.filename}:{frame.lineno}"


def place_of(function: Any) -> str:
    """Where a function or class stands: its name with file and line."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


@dataclass(slots=True)
class Entry:
    """A method of a service, and the class that it takes."""

    role: HandlerRole
    message: type
    function: Callable[..., Any]
    place: str


def find_handlers(owner: type) -> Iterator[Entry]:
    """Go through the marked methods of a class; one that is overridden does not count.

    Raises:
        ConfigurationError: two for one message, or a method that does not take it.
    """
    seen: dict[tuple[HandlerRole, object], Entry] = {}
    for name in dict.fromkeys(name for base in reversed(owner.__mro__) for name in vars(base)):
        method = inspect.getattr_static(owner, name)
        function = method.__func__ if isinstance(method, staticmethod) else method
        for mark in getattr(function, _MARK, ()) if inspect.isfunction(function) else ():
            entry = Entry(mark.role, mark.message, function, mark.place)
            _check_signature(entry)
            key = (
                mark.role,
                f"{wire_name(mark.message)} {id(mark.message) if mark.role is HandlerRole.UPCAST else ''}",
            )
            other = seen.setdefault(key, entry)
            if other is not entry:
                raise ConfigurationError(
                    f"two methods for one message: {wire_name(mark.message)}: {other.place} and {entry.place}"
                )
            yield entry


def _check_signature(entry: Entry) -> None:
    expected_count = 1 if entry.role is HandlerRole.UPCAST else 3
    parameters = list(inspect.signature(entry.function).parameters.values())
    if len(parameters) != expected_count:
        form = "(old)" if entry.role is HandlerRole.UPCAST else "(self, ctx, message)"
        raise ConfigurationError(f"{entry.place}: has {len(parameters)} parameters, expected {form}")
    try:
        hints = typing.get_type_hints(entry.function)
    except NameError:
        return  # a name that only type checkers see
    taken = hints.get(parameters[-1].name, entry.message)
    if taken is not entry.message and taken is not Any:
        raise ConfigurationError(
            f"{entry.place}: takes {getattr(taken, '__name__', taken)}, and is marked for {entry.message.__name__}"
        )
    if entry.role not in (HandlerRole.COMMAND, HandlerRole.QUERY):
        return
    reply = reply_of(entry.message)
    given = hints.get("return", reply)
    if given != reply and given is not Any:
        raise ConfigurationError(
            f"{entry.place}: returns {getattr(given, '__name__', given)}, and {entry.message.__name__} is answered "
            f"with {getattr(reply, '__name__', reply)}"
        )


def reply_of(message: type) -> Any:
    """Return the type that a command or query is answered with.

    Raises:
        ConfigurationError: the class does not say.
    """
    for base in message.__mro__:
        for parent in getattr(base, "__orig_bases__", ()):
            if get_origin(parent) in (Command, Query):
                (reply,) = get_args(parent)
                if isinstance(reply, TypeVar):
                    continue
                if isinstance(reply, str | typing.ForwardRef):
                    return _resolve(message, reply)
                return type(None) if reply is None else reply
    raise ConfigurationError(f"{message.__qualname__}: expected what it is answered with: Command[Balance]")


def _resolve(message: type, reply: Any) -> Any:
    name = reply if isinstance(reply, str) else reply.__forward_arg__
    module = inspect.getmodule(message)
    found = getattr(module, name, None)
    if found is None:
        raise ConfigurationError(f"{message.__qualname__}: there is no {name} to answer it with")
    return found
