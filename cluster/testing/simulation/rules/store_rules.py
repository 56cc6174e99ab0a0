"""The rules for the log in an object store: what an index names is there and is the committed log, and stays.

That is so for members' cold storage and for backups, which share the objects. Read from the store and from the members'
disks, as a power loss would leave them.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from .....archive.cold.record import ColdRecord
from .....archive.format.layout import COLD_RECORD_NAME
from .....archive.format.stored_names import NameKind
from .....archive.stored.index import INDEXES, StoredSegment, WriterIndex
from .....service_api import RemoteProtocolError
from .....service_api.documents.document import read_document
from ..cluster import DIRECTORY, Member
from ..world.expect import expect

COLD: Final = "cold"
"""Members put log into cold storage before they remove it. Drawn once a seed, of those that remove any."""

STORE_URL: Final = "sim://store"
"""The store of cold storage and of backups."""

_WHOLE: Final = "a segment that an index names is there, and is the committed log"
_RECORD_LIMIT_BYTES: Final = 1 << 20


class StoreRules:
    """Watches what one cluster has in the store. Every method may raise `RuleBroken`."""

    def __init__(self, committed: bytearray) -> None:
        self._committed = committed
        self._indexes: dict[str, WriterIndex] = {}
        """By their URL."""
        self._checked: dict[str, bytes] = {}
        """Objects that were found right, by URL."""

    def __repr__(self) -> str:
        return f"<StoreRules indexes={len(self._indexes)} segments={self.segment_count}>"

    @property
    def segment_count(self) -> int:
        """How many segments members' indexes name."""
        return len({base for index in self._indexes.values() if index.is_of_member for base in _bases(index)})

    def on_object(self, url: str, objects: dict[str, bytes]) -> None:
        """An object was written or removed: a reader of an index finds what it names."""
        place, _, name = url.removeprefix(f"{STORE_URL}/").partition("/")
        folder, _, file = name.partition("/")
        if folder == INDEXES and NameKind.INDEX.fits(file):
            index = read_document(WriterIndex, objects[url]) if url in objects else None
            before = self._indexes.pop(url, None)
            if before is not None and before.is_of_member:
                lost = _bases(before) - _bases(index)
                expect(not lost, "what is in cold storage stays there", url=url, lost=sorted(lost))
            for segment in [] if index is None else index.segments:
                self._expect_whole(f"{STORE_URL}/{place}", segment, objects)
            if index is not None:
                self._indexes[url] = index
            return
        for index in self._indexes.values():
            for segment in index.segments:
                if segment.name == name:
                    self._expect_whole(f"{STORE_URL}/{place}", segment, objects)

    def _expect_whole(self, place: str, segment: StoredSegment, objects: dict[str, bytes]) -> None:
        url = f"{place}/{segment.name}"
        data = objects.get(url)
        if data is not None and self._checked.get(url) is data:
            return
        base, start, end = segment.base_position, segment.start_position, segment.base_position + segment.length
        expect(
            data is not None and len(data) == segment.length and sha256(data).hexdigest() == segment.sha256,
            _WHOLE,
            url=url,
            length=None if data is None else len(data),
            expected=segment,
        )
        assert data is not None
        expect(data[start - base :] == self._committed[start:end], _WHOLE, url=url, committed=len(self._committed))
        self._checked[url] = data

    def expect_kept(self, member: Member, base_position: int, path: Path) -> None:
        """A member removes a segment below its log: it is in the store, and its directory says so, durably."""
        if not member.config.cold_storage_url or path.parent != DIRECTORY / "archive":
            return
        named = any(index.is_of_member and base_position in _bases(index) for index in self._indexes.values())
        data = member.machine.disk.durable_read(path.parent / COLD_RECORD_NAME, _RECORD_LIMIT_BYTES, 0)
        try:
            record = read_document(ColdRecord, data) if data else None
        except RemoteProtocolError:
            record = None
        recorded = record is not None and any(found.base_position == base_position for found in record.segments)
        expect(
            named and recorded,
            "a segment goes once it is in cold storage",
            member=member.member_id,
            base_position=base_position,
            is_in_store=named,
            is_in_record=recorded,
        )


def waiting_bytes(member: Member) -> int:
    """Return how much a member would remove, and has not put into cold storage yet."""
    standing = None if member.node is None else member.node.archive.cold_standing
    return 0 if standing is None else standing.pending_bytes


def _bases(index: WriterIndex | None) -> set[int]:
    return set() if index is None else {segment.base_position for segment in index.segments}
