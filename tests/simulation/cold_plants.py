"""Planted bugs in what goes to cold storage, and in when it goes from the disk."""

from __future__ import annotations

from pathlib import Path

from trimaran.archive.store.cold_segments import ColdSegments
from trimaran.archive.stored.cluster_store import ClusterStore, StoreError
from trimaran.archive.stored.index import StoredSegment, WriterIndex
from trimaran.cluster.runtime.snapshots.cold_shipper import ColdShipper
from trimaran.cluster.testing.simulation.run import Options

from .plant import ORDERS, Plant, Planting

COLD_HUNT_OPTIONS = Options(
    safety_timeouts=16,
    requester_count=0,
    without=frozenset({"query", "relay", "backup", "standby", "groups"}) | ORDERS,
)
"""Long enough for a segment or two, and for a snapshot after them."""


def _remove_what_is_not_stored_yet(planting: Planting) -> None:
    """Retention is told that all is in cold storage that it would remove."""
    real = ColdShipper.want

    def want(self: ColdShipper, position: int) -> None:
        real(self, position)
        if position > self.shipped_position:
            planting.ran()
            self.shipped_position = position

    planting.replace(ColdShipper, "want", want)


def _name_segments_before_they_are_there(planting: Planting) -> None:
    """The index is written before the object that it names."""
    real_put, real_write = ClusterStore.put_segment, ClusterStore.write_index
    waiting: list[tuple[Path, StoredSegment]] = []

    def put_segment(self: ClusterStore, path: Path, segment: StoredSegment, *, is_named: bool) -> bool:
        waiting.append((path, segment))
        return True

    def write_index(self: ClusterStore, index: WriterIndex) -> None:
        planting.ran()
        real_write(self, index)
        while waiting:
            real_put(self, *waiting.pop(), is_named=False)

    planting.replace(ClusterStore, "put_segment", put_segment)
    planting.replace(ClusterStore, "write_index", write_index)


def _believe_that_a_segment_was_written(planting: Planting) -> None:
    """An upload that ends with an error is taken for one that was done, as far as nobody reads it back."""
    real = ClusterStore.put_segment

    def put_segment(self: ClusterStore, path: Path, segment: StoredSegment, *, is_named: bool) -> bool:
        try:
            return real(self, path, segment, is_named=is_named)
        except StoreError:
            planting.ran()
            return True

    planting.replace(ClusterStore, "put_segment", put_segment)


def _forget_the_record(planting: Planting) -> None:
    """A segment is removed without a note in the directory of where it went."""

    def save(self: ColdSegments) -> None:
        planting.ran()

    planting.replace(ColdSegments, "save", save)


PLANTS = (
    Plant(
        "cold-not-read-back",
        7,
        "a segment is in cold storage once it was read back whole",
        _believe_that_a_segment_was_written,
        scenario="shared-store",
    ),
    *(
        Plant(name, class_number, rule, break_it, options=COLD_HUNT_OPTIONS)
        for name, class_number, rule, break_it in (
            ("cold-removed-early", 36, "a segment goes once it is in cold storage", _remove_what_is_not_stored_yet),
            (
                "cold-named-early",
                36,
                "an index of cold storage is written after the segments that it names",
                _name_segments_before_they_are_there,
            ),
            ("cold-not-recorded", 36, "a segment goes once the directory knows where it went", _forget_the_record),
        )
    ),
)
