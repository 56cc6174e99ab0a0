"""The feature level as services see it: at each entry the one that is in force there."""

from __future__ import annotations

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from trimaran.service_api import ConfigurationError
from trimaran.service_api.wire.log.messages import CLUSTER_ACTION_FLAGS_FEATURE_LEVEL, FeatureLevelRaise


def append_raise(rig: Rig, level: int) -> int:
    return rig.publisher.append_positioned(
        FeatureLevelRaise(
            leadership_term_id=TERM,
            log_position=0,
            timestamp=100,
            action=None,
            flags=CLUSTER_ACTION_FLAGS_FEATURE_LEVEL,
            feature_level=level,
        )
    )


async def rig_that_notes_levels() -> tuple[Rig, list[tuple[bytes, int]]]:
    rig, noted = Rig(), list[tuple[bytes, int]]()
    await rig.agent.start()
    cluster = rig.service.cluster
    assert cluster is not None
    rig.service.on_message = lambda session, payload: noted.append((payload, cluster.feature_level))
    rig.open(SESSION)
    return rig, noted


@pytest.mark.parametrize("run", [1, 40], ids=["one by one", "in runs"])
async def test_entries_before_the_raise_run_at_the_level_that_was_in_force(run: int) -> None:
    rig, noted = await rig_that_notes_levels()
    rig.requests.feature_level = 2
    for _ in range(run):
        rig.message(b"old")
    append_raise(rig, 1)
    for _ in range(run):
        rig.message(b"new")
    append_raise(rig, 2)
    end = rig.message(b"end")

    rig.adapter.advance_limit(end)
    while rig.adapter.poll(1 << 20):
        pass

    assert noted == [*[(b"old", 0)] * run, *[(b"new", 1)] * run, (b"end", 2)]


async def test_a_member_that_does_not_know_the_level_stands_before_the_entry() -> None:
    rig, noted = await rig_that_notes_levels()
    before = rig.message(b"old")
    append_raise(rig, 1)
    end = rig.message(b"new")

    rig.adapter.advance_limit(end)
    with pytest.raises(ConfigurationError, match=r"feature_level=1.*force"):
        rig.adapter.poll(1 << 20)

    assert (rig.adapter.position, noted) == (before, [(b"old", 0)])
