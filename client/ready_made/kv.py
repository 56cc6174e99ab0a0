"""Clients of the key-value store. Keys and values are bytes; text is taken as UTF-8.

async with KvClient.connect(["127.0.0.1:9000"]) as kv:
    await kv.put("jobs/1", b"waiting")
    async for entry in kv.scan("jobs/"): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Final, TypeVar

from ...service_api.ready_made.kv import (
    DeleteKey,
    DeleteKeys,
    EndWatch,
    KvChange,
    KvChanges,
    KvCompare,
    KvConflictError,
    KvEntry,
    KvOperation,
    ListKeys,
    PutKey,
    ReadKey,
    RunTransaction,
    TransactionAnswer,
    delete_key,
    key_range,
    kv_bytes,
    put_key,
    when_missing,
    when_revision,
    when_value,
)
from ...service_api.typed import Command
from ..typed import SyncTypedClient, TypedClient
from ..typed.exchange import EventReader
from .kv_watching import POLL_S, KvWatch, WatchHub, WatchProgress

R = TypeVar("R")
_PAGE: Final = 500
Text = str | bytes


class KvClient(TypedClient, service="kv"):
    """A key-value store. What a method raises beside what it names is what `TypedClient.call` does."""

    def __init__(self, cluster: Any) -> None:  # Any: as `TypedClient`
        super().__init__(cluster)
        self._hub = WatchHub()

    async def call(self, command: Command[R], *, timeout_s: float | None = None) -> R:
        """As `TypedClient.call`."""
        self._hub.take_ready(self.cluster)
        return await super().call(command, timeout_s=timeout_s)

    async def put(
        self, key: Text, value: Text, *, expected_revision: int | None = None, ttl_s: float | None = None
    ) -> int:
        """Write a key, and give the revision.

        With `expected_revision` only if the key has that `mod_revision`; 0: only if there is no such key. With `ttl_s`
        the key is deleted after so many seconds; without it an earlier TTL of the key ends.

        Raises:
            KvConflictError: the key has another revision; nothing was changed.
            KvError: an argument is wrong, or a limit is reached.
        """
        return await self.call(PutKey(kv_bytes(key), kv_bytes(value), expected_revision, ttl_s))

    async def get(self, key: Text, *, max_staleness_s: float | None = None) -> bytes | None:
        """Give a key's value, None if there is none. With `max_staleness_s` a follower may answer."""
        found = await self.entry(key, max_staleness_s=max_staleness_s)
        return None if found is None else found.value

    async def entry(self, key: Text, *, max_staleness_s: float | None = None) -> KvEntry | None:
        """Give a key with its value, revisions and TTL; otherwise as `get`."""
        return await self.ask(ReadKey(kv_bytes(key)), max_staleness_s=max_staleness_s)

    async def delete(self, key: Text, *, expected_revision: int | None = None) -> bool:
        """Delete a key; False if there is none. `expected_revision` is that of `put`."""
        return await self.call(DeleteKey(kv_bytes(key), expected_revision))

    async def delete_range(self, begin: Text, end: Text = b"") -> int:
        """Delete the keys from `begin` to before `end`; gives how many. `key_range` makes a range of a prefix.

        Raises:
            KvError: there are more than 1,000; nothing was changed.
        """
        return await self.call(DeleteKeys(kv_bytes(begin), kv_bytes(end)))

    async def cas(self, key: Text, expected: Text | None, value: Text) -> bool:
        """Write a key if it has the value `expected`; None: if there is no such key. False if it has another."""
        return (await self.call(_compare_and_set(key, expected, value))).is_success

    async def scan(
        self, prefix: Text = b"", *, begin: Text | None = None, end: Text = b"", max_staleness_s: float | None = None
    ) -> AsyncIterator[KvEntry]:
        """Iterate over a prefix, or from `begin` to before `end`, in the order of keys; each page is of one moment."""
        first: bytes | None
        first, last = _range_of(prefix, begin, end)
        while first is not None:
            page = await self.ask(ListKeys(first, last, _PAGE), max_staleness_s=max_staleness_s)
            for entry in page.entries:
                yield entry
            first = page.next_begin

    async def txn(
        self,
        compare: Sequence[KvCompare] = (),
        success: Sequence[KvOperation] = (),
        failure: Sequence[KvOperation] = (),
    ) -> TransactionAnswer:
        """Compare, then do `success` if all hold, otherwise `failure`: all of it, or nothing if it raises.

        Raises:
            KvError: an operation is wrong, or a limit is reached.
        """
        return await self.call(RunTransaction(list(compare), list(success), list(failure)))

    def transaction(self) -> KvTransaction:
        """Begin a transaction that reads, decides here, and writes at its end; see `KvTransaction`."""
        return KvTransaction(self)

    def watch(
        self,
        key: Text | None = None,
        *,
        prefix: Text = b"",
        begin: Text | None = None,
        end: Text = b"",
        from_revision: int | None = None,
    ) -> KvWatch:
        """Watch a key, a prefix, or from `begin` to before `end`; with neither, all keys.

        Gives each change once and in order: from `from_revision` on, or those after the watch has begun.
        """
        return KvWatch(self, self._hub, *_range_of(prefix, begin, end, key), from_revision)


class KvTransaction:
    """Reads, and writes that are done together when the block ends, if what was read is still so.

    async with kv.transaction() as txn:
        balance = int(await txn.get("balance") or 0)
        txn.put("balance", str(balance - 5))

    Raises:
        KvConflictError: at the end of the block: a key that was read has changed. Nothing was written; begin again.
    """

    def __init__(self, client: KvClient) -> None:
        self._client = client
        self._read: dict[bytes, KvEntry | None] = {}
        self._operations: list[KvOperation] = []
        self.revision = 0
        """Of the store after the commit."""

    def __repr__(self) -> str:
        return f"<KvTransaction read={len(self._read)} operations={len(self._operations)}>"

    async def __aenter__(self) -> KvTransaction:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        compare = [when_revision(key, _revision_of(entry)) for key, entry in self._read.items()]
        answer = await self._client.txn(compare, self._operations)
        if not answer.is_success:
            for key, entry in self._read.items():
                mod_revision = _revision_of(await self._client.entry(key))
                if mod_revision != _revision_of(entry):
                    raise KvConflictError(key, mod_revision)
            raise KvConflictError(next(iter(self._read)), 0)
        self.revision = answer.revision

    async def get(self, key: Text) -> bytes | None:
        """Read a key as it was before the transaction; None if there is none."""
        name = kv_bytes(key)
        if name not in self._read:
            self._read[name] = await self._client.entry(name)
        entry = self._read[name]
        return None if entry is None else entry.value

    def put(self, key: Text, value: Text, *, ttl_s: float | None = None) -> None:
        """Write a key at the end of the block."""
        self._operations.append(put_key(key, value, ttl_s=ttl_s))

    def delete(self, key: Text) -> None:
        """Delete a key at the end of the block."""
        self._operations.append(delete_key(key))


class SyncKvClient(SyncTypedClient, service="kv"):
    """As `KvClient`, for code without asyncio."""

    _next_watch_id = 1

    def put(self, key: Text, value: Text, *, expected_revision: int | None = None, ttl_s: float | None = None) -> int:
        """As `KvClient.put`."""
        return self.call(PutKey(kv_bytes(key), kv_bytes(value), expected_revision, ttl_s))

    def get(self, key: Text, *, max_staleness_s: float | None = None) -> bytes | None:
        """As `KvClient.get`."""
        found = self.entry(key, max_staleness_s=max_staleness_s)
        return None if found is None else found.value

    def entry(self, key: Text, *, max_staleness_s: float | None = None) -> KvEntry | None:
        """As `KvClient.entry`."""
        return self.ask(ReadKey(kv_bytes(key)), max_staleness_s=max_staleness_s)

    def delete(self, key: Text, *, expected_revision: int | None = None) -> bool:
        """As `KvClient.delete`."""
        return self.call(DeleteKey(kv_bytes(key), expected_revision))

    def delete_range(self, begin: Text, end: Text = b"") -> int:
        """As `KvClient.delete_range`."""
        return self.call(DeleteKeys(kv_bytes(begin), kv_bytes(end)))

    def cas(self, key: Text, expected: Text | None, value: Text) -> bool:
        """As `KvClient.cas`."""
        return self.call(_compare_and_set(key, expected, value)).is_success

    def scan(
        self, prefix: Text = b"", *, begin: Text | None = None, end: Text = b"", max_staleness_s: float | None = None
    ) -> Iterator[KvEntry]:
        """As `KvClient.scan`."""
        first: bytes | None
        first, last = _range_of(prefix, begin, end)
        while first is not None:
            page = self.ask(ListKeys(first, last, _PAGE), max_staleness_s=max_staleness_s)
            yield from page.entries
            first = page.next_begin

    def txn(
        self,
        compare: Sequence[KvCompare] = (),
        success: Sequence[KvOperation] = (),
        failure: Sequence[KvOperation] = (),
    ) -> TransactionAnswer:
        """As `KvClient.txn`."""
        return self.call(RunTransaction(list(compare), list(success), list(failure)))

    def watch(
        self,
        key: Text | None = None,
        *,
        prefix: Text = b"",
        begin: Text | None = None,
        end: Text = b"",
        from_revision: int | None = None,
    ) -> Iterator[KvChange]:
        """As `KvClient.watch`. The watch begins with the first change you wait for, and ends when you close this."""
        watch_id = self._next_watch_id
        self._next_watch_id += 1
        progress = WatchProgress(watch_id, *_range_of(prefix, begin, end, key), from_revision)
        reader = EventReader((KvChanges,))
        progress.on_begun(self.call(progress.begin_command()).revision)
        try:
            while True:
                while progress.is_behind:
                    yield from progress.take_page(self.ask(progress.missing_query()))
                for message in self.cluster.egress(POLL_S):
                    event = reader.read(message.payload)
                    if event is not None and watch_id in event.watches:
                        yield from progress.take_push(event)
                        if progress.is_behind:
                            break
                else:
                    progress.is_behind = True
        finally:
            if not self.cluster.is_closed:
                self.call(EndWatch(watch_id))


def _revision_of(entry: KvEntry | None) -> int:
    return 0 if entry is None else entry.mod_revision


def _range_of(prefix: Text, begin: Text | None, end: Text, key: Text | None = None) -> tuple[bytes, bytes]:
    if key is not None:
        return kv_bytes(key), kv_bytes(key) + b"\0"
    return key_range(prefix) if begin is None else (kv_bytes(begin), kv_bytes(end))


def _compare_and_set(key: Text, expected: Text | None, value: Text) -> RunTransaction:
    compare = when_missing(key) if expected is None else when_value(key, expected)
    return RunTransaction([compare], [put_key(key, value)], [])
