"""The guarded paths of a snapshot: a chunk of them is a piece of the right length, and goes all the way."""

from __future__ import annotations

import pytest

from trimaran.benchmarks.guard.paths import make_paths
from trimaran.benchmarks.guard.snapshot_paths import make_piece_maker, make_snapshot_paths
from trimaran.benchmarks.guard.stand_ins import CHUNK_MESSAGES
from trimaran.benchmarks.services.orders import Order
from trimaran.service_api.snapshots import read_pieces


async def test_a_piece_holds_as_many_orders_as_a_chunk_has_messages_or_one_less() -> None:
    make_piece = make_piece_maker()

    class Image:
        async def __aiter__(self):  # type: ignore[no-untyped-def]  # as in `SnapshotImage`
            for _ in range(3):
                yield make_piece()

    counts = [len(orders) async for _, orders in read_pieces(Image(), {"orders": tuple[int, Order]})]

    assert set(counts) <= {CHUNK_MESSAGES - 1, CHUNK_MESSAGES}


@pytest.mark.parametrize("name", make_snapshot_paths())
def test_a_path_takes_chunk_after_chunk(name: str) -> None:
    run = make_paths(32)[name]()

    for _ in range(30):  # more than the writer holds before it hands them on
        run()
