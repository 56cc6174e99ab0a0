"""A bit flipped in each kind of file of a running cluster: what is mended, what is set aside, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.flipped_bits import FLIPS, flip_each, format_table
from tests.waiting import within

pytestmark = [pytest.mark.slow, pytest.mark.damages_directories]


async def test_a_flipped_bit_in_each_kind_of_file_costs_nothing(data_dir: Path) -> None:
    cluster = SystemCluster(data_dir)
    with cluster.processes.group:
        async with within(180):
            cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
            await cluster._start_first()

            outcomes = await flip_each(cluster)

            assert [outcome.what for outcome in outcomes if not outcome.is_whole] == []
            assert format_table(outcomes).count("\n") == len(FLIPS) + 1
            assert [outcome.happened.partition(" ")[0] for outcome in outcomes] == [
                *["mended"] * 5,
                *["set"] * 2,
                "put",
                "set",
            ]
