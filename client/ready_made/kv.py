"""Clients of the key-value store. Keys and values are bytes; text is taken as UTF-8.

async with KvClient.connect(["127.0.0.1:9000"]) as kv:
    await kv.put("jobs/1", b"waiting")
    async for entry in kv.scan("jobs/"): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from ...service_api.ready_made.kv import (
    DeleteKey,
    DeleteKeys,
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
from ..typed import TypedClient
from .kv_watching import KvWatch, WatchHub
from .pages import Pages

R = TypeVar("R")
_PAGE: Final = 500
Text = str | bytes


class KvClient(TypedClient, service="kv"):
    """A key-value store. What a method raises beside what it names is what `TypedClient.call` does."""

    def __init__(self, cluster: Any) -> None:  # Any: as `TypedClient`
        super().__init__(cluster)
        self._hub = WatchHub()

    def _before_call(self) -> None:
        self._hub.take_ready(self.cluster)

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

    async def put_many(self, values: Mapping[Text, Text], *, ttl_s: float | None = None) -> list[int]:
        """Write keys in one call, in their order, each as `put` does; gives the revisions.

        Others see each by itself, and one that fails stops no other: use `txn` for all or nothing.

        Raises:
            KvError: an argument is wrong, or a limit is reached; the first one by position.
        """
        return await self.call_many(
            [PutKey(kv_bytes(key), kv_bytes(value), None, ttl_s) for key, value in values.items()]
        )

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

    def scan(
        self, prefix: Text = b"", *, begin: Text | None = None, end: Text = b"", max_staleness_s: float | None = None
    ) -> AsyncIterator[KvEntry]:
        """Iterate over a prefix, or from `begin` to before `end`, in the order of keys; each page is of one moment."""
        first, last = _range_of(prefix, begin, end)

        async def read(place: bytes) -> tuple[list[KvEntry], bytes | None]:
            page = await self.ask(ListKeys(place, last, _PAGE), max_staleness_s=max_staleness_s)
            return page.entries, page.next_begin

        return Pages(read, first)

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

    revision: int
    """The revision of the store after the commit."""

    def __init__(self, client: KvClient) -> None:
        self._client = client
        self._read: dict[bytes, KvEntry | None] = {}
        self._operations: list[KvOperation] = []
        self.revision = 0

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


def _revision_of(entry: KvEntry | None) -> int:
    return 0 if entry is None else entry.mod_revision


def _range_of(prefix: Text, begin: Text | None, end: Text, key: Text | None = None) -> tuple[bytes, bytes]:
    if key is not None:
        return kv_bytes(key), kv_bytes(key) + b"\0"
    return key_range(prefix) if begin is None else (kv_bytes(begin), kv_bytes(end))


def _compare_and_set(key: Text, expected: Text | None, value: Text) -> RunTransaction:
    compare = when_missing(key) if expected is None else when_value(key, expected)
    return RunTransaction([compare], [put_key(key, value)], [])
