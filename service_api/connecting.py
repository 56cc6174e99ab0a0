"""A connect that is awaited, or entered with `async with`; and clients that `async with` closes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .errors import LocalProtocolError


class ClosedAtExit:
    """An object that `async with` closes at the end of its block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def aclose(self) -> None:
        """Close it. More calls do nothing."""


C = TypeVar("C", bound=ClosedAtExit)


class Connecting(Generic[C]):
    """A connect that is awaited, or entered with `async with`: once. It begins then, and not before.

    client = await ClusterClient.connect(endpoints)  # call `aclose` in the end
    async with ClusterClient.connect(endpoints) as client: ...
    """

    def __init__(self, connect: Callable[[], Awaitable[C]]) -> None:
        """Take the function that connects."""
        self._connect = connect
        self._client: C | None = None
        self._is_used = False

    def __repr__(self) -> str:
        return f"<Connecting client={self._client!r}>"

    def __await__(self) -> Generator[Any, None, C]:
        if self._is_used:
            raise LocalProtocolError("this connect was used before: call `connect` again")
        self._is_used = True
        return self._connect().__await__()

    async def __aenter__(self) -> C:
        self._client = await self
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.aclose()
