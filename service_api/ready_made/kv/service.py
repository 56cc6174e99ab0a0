"""A key-value store with revisions, transactions, TTLs and watches.

Each change has a revision of its own, also within a transaction, so one number says how far a watcher is. The changes
of a range are pushed to the sessions that watch it. A push may be lost when a leader dies, so each says which change
was pushed before it; a client that misses one reads the changes it lacks from the history, which is at least the newest
`history_limit` changes. So a client sees each change exactly once and in order.

A put is the command that counts, so each command pays for what it changes and no more. `_write` and `_delete` are the
only bodies that change a key: they leave what they did in the history, and nothing else is made of it unless a session
watches. The timer of a key is looked for only if its entry says that it has one; it stays where it is when the key gets
a later TTL, and when it fires it is set again. The history is shortened by
`HISTORY_BATCH` changes at a time, at the end of a command, which only the state decides: so members that come from a
snapshot, or replay the log, have the same history.

The order of the keys is derived: it is made when the state is loaded, and undone by the same journal as the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from typing import ClassVar, Final

from ...typed import Context, Event, TimerMessage, answers, derived, handles, on_timer, state
from ...types import CloseReason
from ..pages import ENTRY_BYTES, AnswerPage, check_fits, room_in_answer
from ..sharing import SharingService, client_of
from ..sorted_keys import SortedKeys
from .messages import (
    ANSWER_LIMIT_BYTES,
    KEY_LIMIT_BYTES,
    KV_PAGE_LIMIT,
    OPERATION_LIMIT,
    TRANSACTION_LIMIT_BYTES,
    VALUE_LIMIT_BYTES,
    ChangePage,
    CompactedError,
    Compared,
    DeleteKey,
    DeleteKeys,
    EndWatch,
    KvAction,
    KvChange,
    KvChanges,
    KvCompare,
    KvConflictError,
    KvEntry,
    KvError,
    KvOperation,
    KvPage,
    KvResult,
    ListKeys,
    PutKey,
    ReadChanges,
    ReadKey,
    Relation,
    RunTransaction,
    TransactionAnswer,
    WatchAnswer,
    WatchKeys,
)

_ONE_CHANGED: Final = KvResult(count=1)
_S_NS: Final = 1_000_000_000
_S_US: Final = 1_000_000
_US_NS: Final = 1_000
_TTL_MIN_S: Final = 0.001
_TTL_LIMIT_S: Final = 10 * 366 * 86_400.0
_WATCH_ID_LIMIT: Final = 1 << 31
_WATCH_BYTES: Final = 20
"""The room that a watch takes in an event, at most."""
HISTORY_BATCH: Final = 256
"""How many changes beyond its limit the history may have before it is shortened to it."""
_HISTORY_SPARE: Final = 16
"""When the history has too many bytes, this part of its limit is made free."""


class ExpireKey(TimerMessage):
    """The TTL of a key has passed."""

    key: bytes


class KvService(SharingService, name="kv"):
    """A key-value store. See docs/kv.md. Every member must have the same limits.

    Each client has a share of `ttl_limit` and `watch_limit`.
    """

    events: ClassVar[tuple[type[Event], ...]] = (KvChanges,)

    history_limit: ClassVar[int] = 10_000
    """How many changes a watch can go back, at least, where they are not longer than `history_limit_bytes`."""
    history_limit_bytes: ClassVar[int] = 64 << 20
    """Keys and values in the history, at most; the newest change is kept in any case."""
    store_limit_bytes: ClassVar[int] = 1 << 30
    """Keys and values in the store."""
    ttl_limit: ClassVar[int] = 100_000
    """Keys with a TTL."""
    watch_limit: ClassVar[int] = 1_000
    """Watches of all sessions: each change is compared with each."""

    revision: int = state()
    """Of the last change."""
    entries: dict[bytes, tuple[bytes, int, int, int, int]] = state()
    """By key: value, create and mod revision, version, and when it expires in ns of cluster time; 0: never."""
    entry_bytes: int = state()
    history: dict[int, tuple[bytes, bytes | None, int, int, bool]] = state()
    """By revision: key, value, create revision, version, whether its TTL deleted it. Without gaps."""
    history_bytes: int = state()
    expiry_timers: dict[bytes, tuple[int, int, bytes]] = state()
    """By key with a TTL: the timer, when it fires in ns of cluster time, and the client that set the TTL."""
    watches: dict[tuple[int, int], tuple[bytes, bytes, int]] = state()
    """By session and the client's number: begin and end of the range, and the last revision pushed."""

    _keys: SortedKeys = derived(lambda kv: SortedKeys(kv.entries))

    def on_closed(self, ctx: Context, reason: CloseReason) -> None:
        """A session's watches end with it."""
        session_id = ctx.session.id
        for watch in [watch for watch in self.watches if watch[0] == session_id]:
            self._end_watch(ctx, watch)

    # --- reads

    @answers(ReadKey)
    def read_key(self, ctx: Context, message: ReadKey) -> KvEntry | None:
        """Give one key."""
        return self._entry(message.key)

    @answers(ListKeys)
    def list_keys(self, ctx: Context, message: ListKeys) -> KvPage:
        """Give the entries of a range."""
        _check_range(message.begin, message.end)
        _check_page(message.limit)
        entries: list[KvEntry] = []
        page = AnswerPage(ctx, message.limit)
        for key in self._keys.between(message.begin, message.end):
            entry = self._entry(key)
            assert entry is not None
            if not page.takes(len(key) + len(entry.value)):
                return KvPage(entries, key, self.revision)
            entries.append(entry)
        return KvPage(entries, None, self.revision)

    @answers(ReadChanges)
    def read_changes(self, ctx: Context, message: ReadChanges) -> ChangePage:
        """Give the changes of a range after a revision."""
        _check_range(message.begin, message.end)
        _check_page(message.limit)
        if message.after_revision < self._oldest_revision - 1:
            raise CompactedError(self._oldest_revision, self.revision)
        changes: list[KvChange] = []
        page = AnswerPage(ctx, message.limit)
        for revision in range(message.after_revision + 1, self.revision + 1):
            kept = self.history[revision]
            if _is_within(kept[0], message.begin, message.end):
                if not page.takes(_size_of(kept[0], kept[1])):
                    return ChangePage(changes, revision - 1, self.revision)
                changes.append(KvChange(revision, *kept))
        return ChangePage(changes, max(self.revision, message.after_revision), self.revision)

    # --- changes

    @handles(PutKey)
    def put_one(self, ctx: Context, message: PutKey) -> int:
        """Write a key."""
        key = message.key
        if message.expected_revision is not None:
            self._check_revision(key, message.expected_revision)
        self._write(ctx, key, message.value, message.ttl_s)
        self._end_changes(ctx, self.revision - 1)
        return self.revision

    @handles(DeleteKey)
    def delete_one(self, ctx: Context, message: DeleteKey) -> bool:
        """Delete a key."""
        key = message.key
        _check_key(key)
        if message.expected_revision is not None:
            self._check_revision(key, message.expected_revision)
        if key not in self.entries:
            return False
        self._delete(ctx, key)
        self._end_changes(ctx, self.revision - 1)
        return True

    @handles(DeleteKeys)
    def delete_range(self, ctx: Context, message: DeleteKeys) -> int:
        """Delete the keys of a range."""
        before = self.revision
        count = self._delete_range(ctx, message.begin, message.end)
        self._end_changes(ctx, before)
        return count

    @handles(RunTransaction)
    def run_transaction(self, ctx: Context, message: RunTransaction) -> TransactionAnswer:
        """Compare, and do one of two lists of operations."""
        for name, some in (("compare", message.compare), ("success", message.success), ("failure", message.failure)):
            if len(some) > OPERATION_LIMIT:
                raise KvError(f"{name} has {len(some)} elements, expected at most {OPERATION_LIMIT}")
        is_success = all(map(self._holds, message.compare))
        results: list[KvResult] = []
        before, before_bytes, read_bytes = self.revision, self.history_bytes, 0
        limit_bytes = min(TRANSACTION_LIMIT_BYTES, room_in_answer(ctx))
        for operation in message.success if is_success else message.failure:
            result = self._operate(ctx, operation)
            results.append(result)
            entry = result.entry
            if entry is not None:
                read_bytes += _size_of(entry.key, entry.value) + ENTRY_BYTES
            size_bytes = self.history_bytes - before_bytes + read_bytes
            if size_bytes > limit_bytes:
                raise KvError(f"the transaction has {size_bytes} bytes, expected at most {limit_bytes}")
        self._end_changes(ctx, before)
        return TransactionAnswer(is_success, self.revision, results)

    @on_timer(ExpireKey)
    def expire_key(self, ctx: Context, message: ExpireKey) -> None:
        """Delete a key whose TTL has passed; one that has got a later TTL since is looked at again."""
        key = message.key
        if key not in self.expiry_timers:
            return
        expires_at_ns = self.entries[key][4]
        left_ns = expires_at_ns - ctx.time_ns
        if left_ns > 0:
            timer_id = ctx.schedule(message, after=timedelta(microseconds=-(-left_ns // _US_NS)))
            self.expiry_timers[key] = (timer_id, expires_at_ns, self.expiry_timers[key][2])
            return
        self._delete(ctx, key, is_expired=True)
        self._end_changes(ctx, self.revision - 1)

    # --- watches

    @handles(WatchKeys)
    def watch_keys(self, ctx: Context, message: WatchKeys) -> WatchAnswer:
        """Begin to push the changes of a range."""
        _check_range(message.begin, message.end)
        if not 0 <= message.watch_id < _WATCH_ID_LIMIT:
            raise KvError(f"watch_id={message.watch_id} expected 0 to {_WATCH_ID_LIMIT - 1}")
        watch = (ctx.session.id, message.watch_id)
        if watch not in self.watches:
            if len(self.watches) >= self.watch_limit:
                raise KvError(f"watches={len(self.watches)} expected less than {self.watch_limit}; end one first")
            self.take_share(client_of(ctx.session), "watch_limit", "end a watch first", KvError)
        self.watches[watch] = (message.begin, message.end, self.revision)
        return WatchAnswer(self.revision, self._oldest_revision)

    @handles(EndWatch)
    def end_watch(self, ctx: Context, message: EndWatch) -> bool:
        """End a watch."""
        watch = (ctx.session.id, message.watch_id)
        if watch not in self.watches:
            return False
        self._end_watch(ctx, watch)
        return True

    def _end_watch(self, ctx: Context, watch: tuple[int, int]) -> None:
        del self.watches[watch]
        self.count_share(client_of(ctx.session), "watch_limit", -1)

    def _end_changes(self, ctx: Context, before_revision: int) -> None:
        """End a command: send what it has changed since a revision to those who watch, and shorten the history."""
        if self.watches and self.revision > before_revision:
            self._push(ctx, range(before_revision + 1, self.revision + 1))
        if len(self.history) >= self.history_limit + HISTORY_BATCH or self.history_bytes > self.history_limit_bytes:
            self._shorten_history()

    def _push(self, ctx: Context, changed: range) -> None:
        """Send the changes of these revisions to the sessions that watch them.

        Each session is sent a change once, however many of its watches it is for: a put beside 250 watches of one
        session took 5.4 ms of each member with an event for each, and takes 0.6 ms. An event that
        several sessions are sent is written once.
        """
        history = self.history
        found_in: dict[tuple[bytes, bytes], tuple[int, ...]] = {}
        pushed: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}
        for (session_id, watch_id), (begin, end, last_revision) in self.watches.items():
            revisions = found_in.get((begin, end))
            if revisions is None:
                revisions = tuple(each for each in changed if _is_within(history[each][0], begin, end))
                found_in[begin, end] = revisions
            if revisions:
                pushed.setdefault((session_id, revisions), {})[watch_id] = last_revision
                self.watches[session_id, watch_id] = (begin, end, revisions[-1])
        events: dict[tuple[tuple[int, ...], tuple[tuple[int, int], ...]], list[int]] = {}
        for (session_id, revisions), watches in pushed.items():
            events.setdefault((revisions, tuple(watches.items())), []).append(session_id)
        room_bytes = room_in_answer(ctx)
        for (revisions, watched), session_ids in events.items():
            seen = [KvChange(revision, *history[revision]) for revision in revisions]
            for some_watches in _in_parts(watched, room_bytes // 4 // _WATCH_BYTES):
                for some in _in_events(seen, room_bytes - len(some_watches) * _WATCH_BYTES):
                    ctx.send(KvChanges(some_watches, some), *session_ids)
                    some_watches = dict.fromkeys(some_watches, some[-1].revision)

    # --- inside

    @property
    def _oldest_revision(self) -> int:
        return self.revision - len(self.history) + 1

    def _entry(self, key: bytes) -> KvEntry | None:
        found = self.entries.get(key)
        if found is None:
            return None
        value, create_revision, mod_revision, version, expires_at_ns = found
        expires_at_s = expires_at_ns / _S_NS if expires_at_ns else None
        return KvEntry(key, value, create_revision, mod_revision, version, expires_at_s)

    def _check_revision(self, key: bytes, expected_revision: int) -> None:
        found = self.entries.get(key)
        mod_revision = 0 if found is None else found[2]
        if mod_revision != expected_revision:
            raise KvConflictError(key, mod_revision)

    def _holds(self, compare: KvCompare) -> bool:
        _check_key(compare.key)
        found = self.entries.get(compare.key)
        if compare.what is Compared.VALUE:
            if found is None:
                return compare.relation is Relation.UNEQUAL
            return _relates(found[0], compare.relation, compare.value)
        _, create_revision, mod_revision, version, _ = found or (b"", 0, 0, 0, 0)
        number = {
            Compared.VERSION: version,
            Compared.CREATE_REVISION: create_revision,
            Compared.MOD_REVISION: mod_revision,
        }[compare.what]
        return _relates(number, compare.relation, compare.number)

    def _operate(self, ctx: Context, operation: KvOperation) -> KvResult:
        """Do one operation of a transaction; what it raises undoes the transaction."""
        action, key = operation.action, operation.key
        if action is KvAction.PUT:
            self._write(ctx, key, operation.value, operation.ttl_s)
            return _ONE_CHANGED
        if action is KvAction.DELETE_RANGE:
            return KvResult(count=self._delete_range(ctx, key, operation.end))
        _check_key(key)
        if action is KvAction.GET:
            return KvResult(self._entry(key))
        if key not in self.entries:
            return KvResult()
        self._delete(ctx, key)
        return _ONE_CHANGED

    def _write(self, ctx: Context, key: bytes, value: bytes, ttl_s: float | None) -> None:
        """Write a key: the one body of each put."""
        key_bytes, value_bytes = len(key), len(value)
        if not 1 <= key_bytes <= KEY_LIMIT_BYTES:
            _check_key(key)
        if value_bytes > VALUE_LIMIT_BYTES:
            raise KvError(f"value has {value_bytes} bytes, expected at most {VALUE_LIMIT_BYTES}")
        size_bytes = key_bytes + value_bytes
        check_fits(ctx, "an entry of this key and value", size_bytes, KvError)
        revision = self.revision + 1
        old = self.entries.get(key)
        if old is None:
            entry_bytes, create_revision, version, expires_at_ns = self.entry_bytes + size_bytes, revision, 1, 0
        else:
            entry_bytes = self.entry_bytes + value_bytes - len(old[0])
            create_revision, version, expires_at_ns = old[1], old[3] + 1, old[4]
        if entry_bytes > self.store_limit_bytes:
            raise KvError(f"the store would have {entry_bytes} bytes, expected at most {self.store_limit_bytes}")
        if ttl_s is not None or expires_at_ns:
            expires_at_ns = self._set_expiry(ctx, key, ttl_s)
        self.entries[key] = (value, create_revision, revision, version, expires_at_ns)
        if old is None:
            self._keys.add(key)
        self.entry_bytes = entry_bytes
        self.history[revision] = (key, value, create_revision, version, False)
        self.history_bytes += size_bytes
        self.revision = revision

    def _delete(self, ctx: Context, key: bytes, *, is_expired: bool = False) -> None:
        """Delete a key that there is: the one body of each deletion."""
        value, _, _, _, expires_at_ns = self.entries.pop(key)
        key_bytes = len(key)
        self.entry_bytes -= key_bytes + len(value)
        if expires_at_ns:
            self._end_expiry(ctx, key)
        self._keys.remove(key)
        self.revision = revision = self.revision + 1
        self.history[revision] = (key, None, 0, 0, is_expired)
        self.history_bytes += key_bytes

    def _delete_range(self, ctx: Context, begin: bytes, end: bytes) -> int:
        _check_range(begin, end)
        keys: list[bytes] = []
        for key in self._keys.between(begin, end):
            if len(keys) == KV_PAGE_LIMIT:
                raise KvError(f"the range has more than {KV_PAGE_LIMIT} keys; delete it in parts")
            keys.append(key)
        for key in keys:
            self._delete(ctx, key)
        return len(keys)

    def _shorten_history(self) -> None:
        """Forget the oldest changes, as many as a number of commands have made."""
        history, size_bytes, limit_bytes = self.history, self.history_bytes, self.history_limit_bytes
        if size_bytes > limit_bytes:
            limit_bytes -= limit_bytes // _HISTORY_SPARE
        newest_revision = self.revision
        first_kept = newest_revision + 1 - max(self.history_limit, 1)
        for revision in range(self._oldest_revision, newest_revision):
            if revision >= first_kept and size_bytes <= limit_bytes:
                break
            key, value, _, _, _ = history.pop(revision)
            size_bytes -= len(key) if value is None else len(key) + len(value)
        self.history_bytes = size_bytes

    def _set_expiry(self, ctx: Context, key: bytes, ttl_s: float | None) -> int:
        """Give a key another TTL, or none; gives when it expires in ns of cluster time, 0 without TTL."""
        if ttl_s is None:
            self._end_expiry(ctx, key)
            return 0
        if not _TTL_MIN_S <= ttl_s <= _TTL_LIMIT_S:
            raise KvError(f"ttl_s={ttl_s} expected {_TTL_MIN_S} to {_TTL_LIMIT_S:.0f}")
        ttl_us = round(ttl_s * _S_US)
        expires_at_ns = ctx.time_ns + ttl_us * _US_NS
        client = client_of(ctx.session)
        known = self.expiry_timers.get(key)
        if known is not None:
            _, fires_at_ns, owner = known
            if fires_at_ns <= expires_at_ns and owner == client:
                return expires_at_ns
            self._end_expiry(ctx, key)
        if len(self.expiry_timers) >= self.ttl_limit:
            raise KvError(f"keys with a TTL: {len(self.expiry_timers)}, expected less than {self.ttl_limit}")
        self.take_share(client, "ttl_limit", "delete a key that has a TTL, or wait until one expires", KvError)
        timer_id = ctx.schedule(ExpireKey(key), after=timedelta(microseconds=ttl_us))
        self.expiry_timers[key] = (timer_id, expires_at_ns, client)
        return expires_at_ns

    def _end_expiry(self, ctx: Context, key: bytes) -> None:
        """Forget the timer of a key that has one."""
        timer_id, _, client = self.expiry_timers.pop(key)
        self.count_share(client, "ttl_limit", -1)
        ctx.cancel(timer_id)


def _in_events(changes: list[KvChange], room_bytes: int) -> Iterator[list[KvChange]]:
    """Cut changes into events that fit; one that fits in none is left out, and its watchers ask for it."""
    some: list[KvChange] = []
    limit_bytes, size_bytes = min(ANSWER_LIMIT_BYTES, room_bytes), 0
    for change in changes:
        change_bytes = _size_of(change.key, change.value) + ENTRY_BYTES
        if some and size_bytes + change_bytes > limit_bytes:
            yield some
            some, size_bytes = [], 0
        if change_bytes <= room_bytes:
            some.append(change)
            size_bytes += change_bytes
    if some:
        yield some


def _in_parts(watches: tuple[tuple[int, int], ...], count: int) -> Iterator[dict[int, int]]:
    """Cut the watches of one session into as many as one event names."""
    items = iter(watches)
    while some := dict(islice(items, max(count, 1))):
        yield some


def _size_of(key: bytes, value: bytes | None) -> int:
    return len(key) + len(value or b"")


def _is_within(key: bytes, begin: bytes, end: bytes) -> bool:
    return begin <= key and (not end or key < end)


def _relates(left: bytes | int, relation: Relation, right: bytes | int) -> bool:
    if relation is Relation.EQUAL:
        return left == right
    if relation is Relation.UNEQUAL:
        return left != right
    return left < right if relation is Relation.LESS else left > right  # type: ignore[operator]


def _check_key(key: bytes) -> None:
    if not 1 <= len(key) <= KEY_LIMIT_BYTES:
        raise KvError(f"key has {len(key)} bytes, expected 1 to {KEY_LIMIT_BYTES}")


def _check_range(begin: bytes, end: bytes) -> None:
    # A range may begin just behind the longest key.
    for name, key in (("begin", begin), ("end", end)):
        if len(key) > KEY_LIMIT_BYTES + 1:
            raise KvError(f"{name} has {len(key)} bytes, expected at most {KEY_LIMIT_BYTES}")
    if end and begin >= end:
        raise KvError(f"begin={begin!r} expected before end={end!r}")


def _check_page(limit: int) -> None:
    if not 1 <= limit <= KV_PAGE_LIMIT:
        raise KvError(f"limit={limit} expected 1 to {KV_PAGE_LIMIT}")
