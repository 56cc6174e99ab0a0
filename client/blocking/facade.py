"""Blocking classes, made from the asyncio ones: for scripts, notebooks and threads.

The problem: each asyncio client had a second class for code without asyncio, written by hand, and the two drifted
apart. The idea: a call runs on an event loop in a thread of its own (`LoopThread`), and the caller's thread waits for
it. `class SyncQueueJob(Blocking, of=QueueJob)` gives a class what the asyncio class has:

    asyncio                              blocking
    -------                              --------
    await x.f(...)                       x.f(..., timeout_s=5): the limit that `asyncio.timeout` is there
    async for y in x.g(...)              for y in x.g(..., timeout_s=5): the limit of each wait
    async with x.h(...) as y             with x.h(...) as y
    an object of a class with a twin     its twin, also in lists
    aclose                               close

A member that the blocking class or its bases have already is left alone. Type checkers cannot see what is made at run
time: modules with such classes have stubs, which `python -m tests.blocking_stubs` writes and a test holds equal.

An object here holds the thread, and the thread knows of none of them. So a client that nobody holds any more is
collected, and ends the thread.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from types import TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from ...service_api.errors import ClusterError, ClusterTimeoutError
from ..config import ClientConfig
from ..loop_thread import LoopThread

T = TypeVar("T")

BATCH_LIMIT: Final = 1024
"""Items taken from the loop at once."""

_END_MARGIN_S: Final = 5.0
"""How much longer than its own `close_timeout_s` a close may take before the thread is left behind."""

_CLOSE_TIMEOUT_S: Final[float] = inspect.signature(ClientConfig).parameters["close_timeout_s"].default

TWINS: Final[dict[type, type[Blocking]]] = {}
_twin_names: Final = {"AsyncIterator": "Iterator", "asyncio.Event": "BlockingEvent"}
"""Names in annotations, and what stands for them here."""


class LoopOwner:
    """Keeps the thread of a client: until `close`, until nobody holds this any more, or until the interpreter exits."""

    def __init__(self, close_timeout_s: float) -> None:
        """Start the thread; closing the client takes `close_timeout_s` at most."""
        self._opened = _Opened()
        self.thread = LoopThread(on_end=self._opened.close, end_timeout_s=close_timeout_s + _END_MARGIN_S)
        self._finalizer = weakref.finalize(self, self.thread.end)
        self.thread.start()

    def __repr__(self) -> str:
        return f"<LoopOwner {self.thread!r}>"

    def open(self, open_client: Callable[[], Awaitable[T]]) -> T:
        """Have the thread open the client that it closes at its end."""
        return self.thread.call(lambda: self._opened.open(open_client))

    def close(self) -> None:
        """Close the client and end the thread. More calls do nothing, nor does one in a fork.

        Raises:
            LocalProtocolError: the client's own thread called.
        """
        if not self.thread.is_forked:
            self.thread.check_caller()
            self.thread.end()
        self._finalizer.detach()


class _Opened:
    """The client that the thread closes at its end. It does not know the owner, which can be collected."""

    def __init__(self) -> None:
        self._client: Any = None  # Any: whichever has `aclose`
        self._is_closed = False

    async def open(self, open_client: Callable[[], Awaitable[T]]) -> T:
        """Open the client; one whose thread ends meanwhile is closed at once."""
        self._client = client = await open_client()
        if self._is_closed:
            await self._client.aclose()
        return client

    async def close(self) -> None:
        """Close the client, if there is one."""
        self._is_closed = True
        if self._client is not None:
            await self._client.aclose()


class Blocking:
    """An object of an asyncio class, for threads that do not run its loop."""

    _of: ClassVar[type]
    _target: Any  # Any: an object of `_of`
    _owner: LoopOwner

    def __init_subclass__(cls, *, of: type | None = None, without: Collection[str] = (), **kwargs: Any) -> None:
        """Make blocking members of the public ones of an asyncio class, but for some."""
        super().__init_subclass__(**kwargs)
        if of is None:
            return
        cls._of = of
        TWINS[of] = cls
        _twin_names[of.__name__] = cls.__name__
        for name, member in _members(of):
            if name not in without and not hasattr(cls, name):
                setattr(cls, name, member)

    @classmethod
    def _around(cls, target: Any, owner: LoopOwner) -> Self:  # Any: an object of `_of`
        """Make the twin of an object that lives on an owner's loop."""
        made = cls.__new__(cls)
        made._take(target, owner)
        return made

    def _take(self, target: Any, owner: LoopOwner) -> None:
        self._target = target
        self._owner = owner
        self._kept: dict[int, Blocking] = {}
        """The twins of attributes, by the ids of what they are twins of: a twin may have state."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._target!r}>"

    def _run(self, call: Callable[[], Any], timeout_s: float | None = None) -> Any:  # Any: what the call gives
        """Call a function on the loop, await what it gives if that can be awaited, and give the twin of the result.

        Raises:
            ClusterTimeoutError: it took longer than `timeout_s`.
            SessionClosedError: the client is closed.
            LocalProtocolError: this is a fork, or the client's own thread.
        """
        return self._twin_of(self._owner.thread.call(lambda: _perform(call, timeout_s)))

    def _twin_of(self, value: Any) -> Any:  # Any: of any type
        if isinstance(value, list):
            return [self._twin_of(each) for each in value] if value and type(value[0]) in TWINS else value
        kind = TWINS.get(type(value))
        if kind is None and hasattr(type(value), "__aenter__"):
            kind = _Context
        return value if kind is None else kind._around(value, self._owner)

    def _read(self, name: str) -> Any:  # Any: of any type
        """Give an attribute of the asyncio object, or its twin, the same one each time."""
        value = getattr(self._target, name)
        kept = self._kept.get(id(value))
        if kept is not None:
            return kept
        twin = self._twin_of(value)
        return twin if twin is value else self._kept.setdefault(id(value), twin)


class BlockingIterator(Blocking, Generic[T]):
    """An asynchronous iterator, for `for`. It belongs to one thread at a time."""

    _timeout_s: float | None = None

    def _take(self, target: Any, owner: LoopOwner) -> None:
        super()._take(target, owner)
        self._ready: deque[T] = deque()
        """Handed over, and not taken by the caller: a caller that is interrupted loses none."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if not self._ready:
            try:
                self._run(self._fetch, self._timeout_s)
            except StopAsyncIteration:
                raise StopIteration from None
        item: T = self._twin_of(self._ready.popleft())
        return item

    def close(self) -> None:
        """Iterate no more."""
        if not (self._owner.thread.is_forked or self._owner.thread.is_ending):
            self._run(self._target.aclose)

    async def _fetch(self) -> None:
        self._ready.append(await anext(self._target))
        take_ready = getattr(self._target, "take_ready", None)
        if take_ready is not None:
            self._ready.extend(take_ready(BATCH_LIMIT - 1))


class BlockingScope(Blocking):
    """An asynchronous context, for `with`. Where the client is closed inside it, the end of the block does nothing."""

    _must_exit: ClassVar = False
    """True if the end of the block fails instead."""

    def __enter__(self) -> Self:
        self._run(self._target.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._owner.thread.is_ending and (kind is not None or not self._must_exit):
            return None
        is_handled: bool | None = self._run(lambda: self._target.__aexit__(kind, error, trace))
        return is_handled


class _Context(BlockingScope):
    """A context of `contextlib.asynccontextmanager`, which gives another object."""

    def __enter__(self) -> Any:  # Any: what the context gives
        return self._run(self._target.__aenter__)


class BlockingEvent(Blocking):
    """An `asyncio.Event` of the client's loop, with the calls of `threading.Event`."""

    def is_set(self) -> bool:
        """Tell whether it has happened."""
        return bool(self._target.is_set())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has happened; False if it has not within `timeout_s`."""
        try:
            return bool(self._run(self._target.wait, timeout_s))
        except ClusterTimeoutError:
            return False


TWINS[asyncio.Event] = BlockingEvent


class BlockingClient(Blocking):
    """A client with a thread of its own, or one that another client gave, on the thread of that one.

    `connect` takes the arguments of the asyncio class's, and opens the client. It works in a notebook, too, where a
    loop runs in the main thread already. `with` is not needed: `close` it, or forget it, or end the interpreter, and it
    is closed. Any thread may use it, several at once. A fork of the process cannot use it, and its `close` does nothing
    there.
    """

    _is_first = False
    """True if the thread is its own."""

    def __init_subclass__(cls, *, of: type | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(of=of, **kwargs)
        if of is not None:
            cls.connect = classmethod(_connect_of(of))  # type: ignore[attr-defined]

    def _open(self, open_client: Callable[[], Awaitable[Any]], close_timeout_s: float) -> None:
        """Start the thread, and have it open the asyncio client."""
        owner = LoopOwner(close_timeout_s)
        try:
            target = owner.open(open_client)
        except ClusterError as error:
            owner.close()
            # Where in the library it was raised, on another thread and loop, tells the caller nothing.
            raise error.with_traceback(None) from None
        except BaseException:
            owner.close()
            raise
        self._is_first = True
        self._take(target, owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client, and end the thread if it is its own. More calls do nothing.

        It takes as long as the `aclose` of the asyncio client. Calls that wait in other threads end: with
        SessionClosedError, an iteration over what the service sends as if there were nothing more.

        Raises:
            LocalProtocolError: the client's own thread called.
        """
        if self._is_first:
            self._owner.close()
        elif not (self._owner.thread.is_forked or self._owner.thread.is_ending):
            self._run(self._target.aclose)


async def _perform(call: Callable[[], Any], timeout_s: float | None) -> Any:  # Any: what the call gives
    try:
        async with asyncio.timeout(timeout_s) as limit:
            result = call()
            return await result if inspect.isawaitable(result) else result
    except TimeoutError:
        if limit.expired():
            raise ClusterTimeoutError(f"not done in time: timeout_s={timeout_s}") from None
        raise


def _members(of: type) -> Iterator[tuple[str, Any]]:  # Any: a function or property
    """Make the blocking member of each public name of an asyncio class."""
    found: dict[str, Any] = {}
    for each in reversed(of.__mro__):
        found |= dict.fromkeys(inspect.get_annotations(each))
        found |= vars(each)
    for name, member in found.items():
        if name.startswith("_") or name in ("aclose", "take_ready"):
            continue
        if inspect.isfunction(member):
            yield name, _method(of, name, member)
        elif member is None or isinstance(member, property):
            yield name, _property(of, name, member)


def _property(of: type, name: str, member: property | None) -> property:
    def read(self: Blocking) -> Any:  # Any: of any type
        return self._read(name)

    if member is None:
        annotation = next(found[name] for each in of.__mro__ if name in (found := inspect.get_annotations(each)))
        text = f"As `{of.__name__}.{name}`."
    else:
        annotation = inspect.signature(member.fget or read).return_annotation
        text = member.__doc__ or ""
    read.__annotations__ = {"return": _blocking_type(annotation)}
    return property(read, doc=text)


def _method(of: type, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that blocks. One that has no `timeout_s` is given one."""
    signature = inspect.signature(function)
    made_by = getattr(function, "__wrapped__", None)
    is_scope = made_by is not None and inspect.isasyncgenfunction(made_by)
    is_iterator = not is_scope and str(signature.return_annotation).startswith("AsyncIterator")
    is_limited = "timeout_s" not in signature.parameters and (is_iterator or inspect.iscoroutinefunction(function))

    def method(self: Blocking, *arguments: Any, **settings: Any) -> Any:
        limit_s: float | None = settings.pop("timeout_s", None) if is_limited else None

        def call() -> Any:
            return getattr(self._target, name)(*arguments, **settings)

        if not is_iterator:
            return self._run(call, limit_s)
        items: BlockingIterator[Any] = BlockingIterator._around(call(), self._owner)
        items._timeout_s = limit_s
        return items

    parameters = [*signature.parameters.values()]
    if is_limited:
        parameters.append(
            inspect.Parameter("timeout_s", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="float | None")
        )
    returned = str(signature.return_annotation)
    if is_scope:
        returned = returned.replace("AsyncIterator", "AbstractContextManager")
    limit = " Raises ClusterTimeoutError after `timeout_s`." if is_limited else ""
    method.__name__ = name
    method.__qualname__ = f"{_twin_names[of.__name__]}.{name}"
    method.__doc__ = f"{_summary(function)}\n\nSee `{of.__name__}.{name}`.{limit}"
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=_blocking_type(returned)
    )
    return method


def _connect_of(of: Any) -> Callable[..., Any]:  # Any: has a `connect`
    """Make the `connect` of a blocking client, which takes the arguments of the asyncio one and waits for it."""

    def connect(cls: type[BlockingClient], *arguments: Any, **settings: Any) -> BlockingClient:
        config = settings.get("config")
        close_timeout_s = settings.get("close_timeout_s", _CLOSE_TIMEOUT_S)
        made = cls.__new__(cls)
        kind: Any = cls._of  # Any: that of a subclass may be another than `of`
        made._open(
            lambda: kind.connect(*arguments, **settings), close_timeout_s if config is None else config.close_timeout_s
        )
        return made

    connect.__doc__ = (
        f"Open the client. Arguments and errors are those of `{of.__name__}.connect`.\n\n"
        "Functions that you pass are called in the client's own thread."
    )
    own = inspect.Parameter("cls", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    connect.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [own, *inspect.signature(of.connect).parameters.values()], return_annotation="Self"
    )
    return connect


def _blocking_type(annotation: Any) -> str:  # Any: as `inspect` gives it
    """Write an annotation with the blocking classes in the place of the asyncio ones."""
    awaited = re.sub(r"^Connecting\[(.*)\]$", r"\1", str(annotation))
    return re.sub(r"[\w.]+", lambda found: _twin_names.get(found[0], found[0]), awaited)


def _summary(function: Callable[..., Any]) -> str:
    """Give the first paragraph of a docstring."""
    return (inspect.getdoc(function) or "").partition("\n\n")[0]
