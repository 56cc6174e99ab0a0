"""What the key-value store is told and asked. Keys and values are bytes; a range is [begin, end), b"" without end."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ...typed import Command, Event, Query, Reply, ServiceError

KEY_LIMIT_BYTES: Final = 1_024
VALUE_LIMIT_BYTES: Final = 1 << 20
KV_PAGE_LIMIT: Final = 1_000
"""Entries or changes in one answer; also keys that one deletion of a range may remove."""
ANSWER_LIMIT_BYTES: Final = 1 << 20
"""Keys and values in one page or event; one entry may go beyond."""
OPERATION_LIMIT: Final = 128
"""Comparisons in a transaction, and operations in each branch."""
TRANSACTION_LIMIT_BYTES: Final = 4 << 20
"""Keys and values that a transaction writes and reads."""


class KvError(ServiceError):
    """An argument is wrong, or a limit is reached; the text names it, what it was and what was expected."""

    reason: str


class KvConflictError(ServiceError):
    """A key has not the revision that was expected; nothing was changed."""

    key: bytes
    mod_revision: int
    """Of the key as it is; 0 if there is none."""


class CompactedError(ServiceError):
    """Changes were asked for that the history does not have any more."""

    oldest_revision: int
    """The oldest change that can be had."""
    revision: int
    """Of the store."""


class KvEntry(Reply):
    """A key and its value."""

    key: bytes
    value: bytes
    create_revision: int
    """Of the change that created the key."""
    mod_revision: int
    """Of the change that wrote the value."""
    version: int
    """How often it was written since it was created, from 1."""
    expires_at_s: float | None = None
    """Cluster time in seconds since 1970 at which the key is deleted; None without TTL."""


class KvChange(Reply):
    """One change: its revision, and the key as it is after it."""

    revision: int
    key: bytes
    value: bytes | None
    """None if the key was deleted."""
    create_revision: int
    version: int
    """0 if the key was deleted."""
    is_expired: bool = False
    """Whether its TTL deleted the key."""


class PutKey(Command[int]):
    """Write a key; gives the revision. With `expected_revision` only if the key has it; 0: only if there is none.

    With `ttl_s` the key is deleted after so many seconds; without it an earlier TTL of the key ends.
    """

    key: bytes
    value: bytes
    expected_revision: int | None = None
    ttl_s: float | None = None


class DeleteKey(Command[bool]):
    """Delete a key; False if there is none."""

    key: bytes
    expected_revision: int | None = None


class DeleteKeys(Command[int]):
    """Delete the keys of a range, at most 1,000; gives how many there were."""

    begin: bytes
    end: bytes


class ReadKey(Query[KvEntry | None]):
    """Ask for one key."""

    key: bytes


class KvPage(Reply):
    """Entries in the order of their keys, of one moment."""

    entries: list[KvEntry]
    next_begin: bytes | None
    """Where the next page begins; None at the end."""
    revision: int
    """Of the store."""


class ListKeys(Query[KvPage]):
    """Ask for the entries of a range: at most `limit`, 1,000, and about 1 MiB."""

    begin: bytes = b""
    end: bytes = b""
    limit: int = 100


class Compared(StrEnum):
    """What a comparison looks at. Of a key that does not exist, numbers are 0 and the value is none."""

    VERSION = "version"
    CREATE_REVISION = "create_revision"
    MOD_REVISION = "mod_revision"
    VALUE = "value"


class Relation(StrEnum):
    """How it is compared. A value that does not exist is unequal to any, and neither smaller nor greater."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    GREATER = ">"


class KvCompare(Reply):
    """One comparison of a transaction; `when_value` and others make it."""

    key: bytes
    what: Compared
    relation: Relation
    number: int = 0
    value: bytes = b""


class KvAction(StrEnum):
    """What an operation of a transaction does."""

    PUT = "put"
    GET = "get"
    DELETE = "delete"
    DELETE_RANGE = "delete_range"


class KvOperation(Reply):
    """One operation of a transaction; `put_key` and others make it."""

    action: KvAction
    key: bytes
    """Of DELETE_RANGE the begin."""
    end: bytes = b""
    value: bytes = b""
    ttl_s: float | None = None


class KvResult(Reply):
    """What came of one operation."""

    entry: KvEntry | None = None
    """What GET found."""
    count: int = 0
    """How many keys were changed."""


class TransactionAnswer(Reply):
    """What came of a transaction."""

    is_success: bool
    """Whether all comparisons held, so that `success` was done and not `failure`."""
    revision: int
    """Of the store afterwards."""
    results: list[KvResult]
    """One for each operation that was done."""


class RunTransaction(Command[TransactionAnswer]):
    """Compare, then do `success` or `failure` in order: all of it or, if one operation is refused, nothing."""

    compare: list[KvCompare]
    success: list[KvOperation]
    failure: list[KvOperation]


class WatchAnswer(Reply):
    """A watch has begun."""

    revision: int
    """Of the store: each later change of the range is pushed."""
    oldest_revision: int
    """The oldest change that `ReadChanges` gives."""


class WatchKeys(Command[WatchAnswer]):
    """Have changes of a range pushed to this session, as `KvChanges`, until it ends."""

    watch_id: int
    """Chosen by the client; one that it has already is replaced."""
    begin: bytes
    end: bytes


class EndWatch(Command[bool]):
    """End a watch of this session; False if there is none."""

    watch_id: int


class KvChanges(Event):
    """Changes of ranges that are watched, in order: the same for some watches of a session."""

    watches: dict[int, int]
    """By watch: the last change that was pushed to it before; a client that has not seen it asks `ReadChanges`."""
    changes: list[KvChange]


class ChangePage(Reply):
    """Changes of a range, in order."""

    changes: list[KvChange]
    through_revision: int
    """All changes of the range up to this revision are known now."""
    revision: int
    """Of the store."""


class ReadChanges(Query[ChangePage]):
    """Ask for the changes of a range after a revision: at most `limit`, 1,000, and about 1 MiB."""

    begin: bytes
    end: bytes
    after_revision: int
    limit: int = KV_PAGE_LIMIT


def kv_bytes(text: str | bytes) -> bytes:
    """Give a key or value as bytes: text in UTF-8."""
    return text.encode() if isinstance(text, str) else bytes(text)


def key_range(prefix: str | bytes) -> tuple[bytes, bytes]:
    """Give the range of all keys that begin with a prefix."""
    begin = kv_bytes(prefix)
    trimmed = begin.rstrip(b"\xff")
    return begin, trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else b""


def when_value(key: str | bytes, value: str | bytes, relation: str = "=") -> KvCompare:
    """Compare a key's value, byte by byte."""
    return KvCompare(kv_bytes(key), Compared.VALUE, _relation(relation), value=kv_bytes(value))


def when_version(key: str | bytes, version: int, relation: str = "=") -> KvCompare:
    """Compare how often a key was written; 0 for one that does not exist."""
    return KvCompare(kv_bytes(key), Compared.VERSION, _relation(relation), version)


def when_revision(key: str | bytes, mod_revision: int, relation: str = "=") -> KvCompare:
    """Compare the revision of a key's last change; 0 for one that does not exist."""
    return KvCompare(kv_bytes(key), Compared.MOD_REVISION, _relation(relation), mod_revision)


def when_exists(key: str | bytes) -> KvCompare:
    """Compare whether a key exists."""
    return when_version(key, 0, ">")


def when_missing(key: str | bytes) -> KvCompare:
    """Compare whether a key does not exist."""
    return when_version(key, 0)


def put_key(key: str | bytes, value: str | bytes, *, ttl_s: float | None = None) -> KvOperation:
    """Write a key in a transaction."""
    return KvOperation(KvAction.PUT, kv_bytes(key), value=kv_bytes(value), ttl_s=ttl_s)


def get_key(key: str | bytes) -> KvOperation:
    """Read a key in a transaction."""
    return KvOperation(KvAction.GET, kv_bytes(key))


def delete_key(key: str | bytes) -> KvOperation:
    """Delete a key in a transaction."""
    return KvOperation(KvAction.DELETE, kv_bytes(key))


def delete_prefix(prefix: str | bytes) -> KvOperation:
    """Delete the keys of a prefix in a transaction, at most 1,000."""
    begin, end = key_range(prefix)
    return KvOperation(KvAction.DELETE_RANGE, begin, end)


def _relation(relation: str) -> Relation:
    try:
        return Relation(relation)
    except ValueError:
        raise KvError(f"relation={relation!r} expected one of {', '.join(Relation)}") from None
