"""Removes from a store what nobody needs: old backups, the old past of others, and then objects that no index names.

A live member's only copy of a segment may be in the store, and so may a backup's, in one object. So a prune reads the
indexes of all writers before it removes a segment, and members' indexes are never removed. It leaves a note and then
looks for notes of writers, as `cluster_store` says. The note has to be in the listing in which it looks for others:
a store whose listings are late could hide an index from it, and is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...service_api.errors import ConfigurationError
from ..format.stored_names import NameKind, StoredName, take_name
from .cluster_store import ClusterStore, StoreBusyError, StoreError
from .index import INDEXES, NOTE_LIMIT_MS, PRUNING_PREFIX, SEGMENTS, Note, WriterIndex, index_name

_REMOVE_ATTEMPTS: Final = 5


@dataclass(slots=True)
class Pruned:
    """The outcome of a prune of one cluster's place: what it removed, and what stays."""

    url: str
    removed_backups: list[str]
    kept_backups: list[str]
    shortened_backups: list[str]
    """Those of the kept that have less of the past now."""
    removed_count: int = 0
    """How many objects went, the indexes among them."""
    kept_segment_count: int = 0


def prune(
    store: ClusterStore,
    *,
    keep_count: int | None,
    clock_ms: Callable[[], int],
    shorten: Callable[[WriterIndex], WriterIndex] = lambda index: index,
    is_dry_run: bool = False,
    wait: Callable[[], bool] = lambda: False,
    draw_id: Callable[[], str] = lambda: secrets.token_hex(8),
) -> Pruned:
    """Keep the newest backups of a cluster, or all, and remove what neither they nor any member needs.

    `shorten` gives the index that a backup that stays is to have; the same one where all of it stays. A dry run only
    says what a prune would do. Writers wait until a prune has ended. `wait` lets some time pass for those who write
    now, and returns whether to look again.

    Raises:
        StoreBusyError: another prune runs, or a writer.
        ConfigurationError: the store's listings are late, or an older Trimaran wrote what is there.
        StoreError: the store refused. What was removed was not needed; a later prune goes on.
        RemoteProtocolError: an index cannot be read: nothing is removed.
    """
    store.refuse_older_layout()
    begin_ms = clock_ms()
    work = _Prune(store, begin_ms, clock_ms, shorten, is_dry_run=is_dry_run)
    if is_dry_run:
        return work.run(keep_count)
    note = StoredName(f"{INDEXES}/{PRUNING_PREFIX}{draw_id()}.json")
    store.put(note, Note(written_ms=begin_ms).seal())
    try:
        _await_writers(store, note, clock_ms, wait)
        return work.run(keep_count)
    finally:
        _remove_note(store, note)


def _remove_note(store: ClusterStore, note: StoredName) -> None:
    """Remove the note of this prune: until it is gone or too old, all writers wait.

    Raises:
        StoreError: the store refused each time; says what is left for the operator to do.
    """
    for left in reversed(range(_REMOVE_ATTEMPTS)):
        try:
            store.remove(note)
        except StoreError as error:
            if not left:
                raise StoreError(
                    f"the prune has ended and its note stays, for which writers wait {NOTE_LIMIT_MS // 3_600_000} h: "
                    f"remove {store.url}/{note} ({error})"
                ) from error
        else:
            return


def _await_writers(
    store: ClusterStore, note: StoredName, clock_ms: Callable[[], int], wait: Callable[[], bool]
) -> None:
    """Return once nobody writes and no other prune runs."""
    while True:
        prunes = [*store.notes(NameKind.PRUNING, clock_ms())]
        if note not in prunes:
            raise ConfigurationError(f"{store.url} cannot be pruned: its listings are late, {note} is not in them yet")
        busy = [found for found in prunes if found != note] or [*store.notes(NameKind.WRITING, clock_ms())]
        if not busy:
            return
        if len(prunes) > 1 or not wait():
            raise StoreBusyError(
                f"{store.url} is in use: {', '.join(busy)}; try again later, and remove that object if the process "
                "that left it has ended"
            )


class _Prune:
    """One prune under way, while nobody writes; or a dry run."""

    def __init__(
        self,
        store: ClusterStore,
        begin_ms: int,
        clock_ms: Callable[[], int],
        shorten: Callable[[WriterIndex], WriterIndex],
        *,
        is_dry_run: bool,
    ) -> None:
        self._store: Final = store
        self._begin_ms, self._clock_ms = begin_ms, clock_ms
        self._shorten: Final = shorten
        self._is_dry_run: Final = is_dry_run
        self._removed_count = 0

    def run(self, keep_count: int | None) -> Pruned:
        """Remove the indexes of old backups and write shorter ones, and then remove objects."""
        indexes = self._store.read_indexes()
        dropped = [] if keep_count is None else _old_backups(indexes, keep_count)
        for index in dropped:
            self._remove(index_name(index.writer))
        kept = [index for index in indexes if index not in dropped]
        staying = [index if index.is_of_member else self._shorten(index) for index in kept]
        shortened = [index for index in staying if index not in kept]
        for index in shortened:
            self._write_index(index)
        segment_count = self._sweep(SEGMENTS, NameKind.SEGMENT, _needed_segments(staying))
        for folder in self._store.list_names(""):
            if NameKind.WRITER.fits(folder):
                writer = take_name(folder, NameKind.WRITER)
                own = [file for index in staying if index.writer == writer for file in index.files]
                self._sweep(writer, NameKind.PART, {each.name for file in own for each in file.objects})
        return Pruned(
            url=self._store.url,
            removed_backups=[index.writer for index in dropped],
            kept_backups=[index.writer for index in staying if not index.is_of_member],
            shortened_backups=[index.writer for index in shortened],
            removed_count=self._removed_count,
            kept_segment_count=segment_count,
        )

    def _sweep(self, folder: str, kind: NameKind, needed: set[StoredName]) -> int:
        """Remove the objects of a folder that are not needed; return how many stay."""
        listed = [take_name(name, kind) for name in self._store.list_names(folder) if kind.fits(name)]
        names = {StoredName(f"{folder}/{name}") for name in listed}
        for name in sorted(names - needed):
            self._remove(name)
        return len(names & needed)

    def _remove(self, name: StoredName) -> None:
        self._removed_count += 1
        if not self._is_dry_run:
            self._expect_time()
            self._store.remove(name)

    def _write_index(self, index: WriterIndex) -> None:
        if not self._is_dry_run:
            self._expect_time()
            self._store.write_index(index)

    def _expect_time(self) -> None:
        if self._clock_ms() - self._begin_ms >= NOTE_LIMIT_MS // 2:
            raise StoreBusyError(
                f"this prune of {self._store.url} takes too long: writers no longer wait; run it again"
            )


def _needed_segments(indexes: list[WriterIndex]) -> set[StoredName]:
    """Return the segments that members or backups need."""
    return {name for index in indexes for name in index.names}


def _old_backups(indexes: list[WriterIndex], keep_count: int) -> list[WriterIndex]:
    """Return all but the newest backups. One whose first copy has not ended stays if it was begun after those."""
    complete = sorted(
        ((index.backup.written_ms, index.started_ms, index) for index in indexes if index.backup is not None),
        key=lambda found: found[:2],
        reverse=True,
    )
    newest_ms = max((started_ms for _, started_ms, _ in complete), default=0)
    begun = [
        index
        for index in indexes
        if not index.is_of_member and index.backup is None and complete and index.started_ms < newest_ms
    ]
    return [index for _, _, index in complete[keep_count:]] + begun
