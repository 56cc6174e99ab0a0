"""What must hold of cold storage: what manifests name is there and is the committed log, and nothing goes before that.

Read from the store and from the members' disks, as a power loss would leave them.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from .....archive.cold.manifest import ColdManifest, ColdRecord, ColdSegment
from .....archive.format.layout import COLD_RECORD_NAME
from .....service_api import RemoteProtocolError
from .....service_api.documents.document import read_document
from ..cluster import DIRECTORY, Member
from ..world.expect import expect

COLD: Final = "cold"
"""Members put log into cold storage before they remove it. Drawn once a seed, of those that remove any."""

COLD_URL: Final = "sim://cold"
_WHOLE: Final = "a segment that a manifest of cold storage names is there, and is the committed log"
_RECORD_LIMIT_BYTES: Final = 1 << 20


class ColdRules:
    """Watches the cold storage of one cluster. Every method may raise `RuleBroken`."""

    def __init__(self, committed: bytearray) -> None:
        self._committed = committed
        self._manifests: dict[str, ColdManifest] = {}
        """By the URL of the manifest."""
        self._checked: dict[str, bytes] = {}
        """Objects that were found right, by URL."""

    def __repr__(self) -> str:
        return f"<ColdRules manifests={len(self._manifests)} segments={self.segment_count}>"

    @property
    def segment_count(self) -> int:
        """How many segments manifests name."""
        return len({segment.base_position for each in self._manifests.values() for segment in each.segments})

    def on_object(self, url: str, objects: dict[str, bytes]) -> None:
        """An object was written or removed: a reader of a manifest finds what it names."""
        if not url.startswith(f"{COLD_URL}/"):
            return
        place, _, name = url.removeprefix(f"{COLD_URL}/").partition("/")
        if name.startswith("manifests/"):
            manifest, before = read_document(ColdManifest, objects[url]), self._manifests.get(url)
            lost = _bases(before) - _bases(manifest)
            expect(not lost, "what is in cold storage stays there", url=url, lost=sorted(lost))
            self._manifests[url] = manifest
            for segment in manifest.segments:
                self._expect_whole(f"{COLD_URL}/{place}", segment, objects)
            return
        for manifest in self._manifests.values():
            for segment in manifest.segments:
                if segment.name == name:
                    self._expect_whole(f"{COLD_URL}/{place}", segment, objects)

    def _expect_whole(self, place: str, segment: ColdSegment, objects: dict[str, bytes]) -> None:
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
        named = any(base_position in _bases(manifest) for manifest in self._manifests.values())
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


def _bases(manifest: ColdManifest | None) -> set[int]:
    return set() if manifest is None else {segment.base_position for segment in manifest.segments}
