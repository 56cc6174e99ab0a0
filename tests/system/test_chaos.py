"""The campaign of real faults: two minutes of it, and planted bugs that it must find.

What is asserted holds whatever the machine's speed: a round waits for the cluster with generous limits, and a fault
that finds no turn is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.places import ROOT
from tests.system.fork_server import ForkedGroup
from trimaran.benchmarks.chaos.campaign import GROUP_COUNT, CampaignResult, run_campaign
from trimaran.benchmarks.chaos.hostile import HostileKind
from trimaran.benchmarks.chaos.modes import ChaosMode
from trimaran.benchmarks.chaos.parameters import ChaosParameters
from trimaran.benchmarks.chaos.probe import Plant
from trimaran.benchmarks.chaos.schedule import ROSTER_CHANGES, ChaosFault
from trimaran.benchmarks.chaos.timeline import build_chaos_page
from trimaran.benchmarks.rig.processes import ProcessGroup

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _members_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessGroup, "spawn", ForkedGroup.spawn)


def _run(data_dir: Path, **options: object) -> CampaignResult:
    faults = (ChaosMode.FAULTS,)
    settings = {"seed": 20, "only_round": 0, "members": (3,), "rate": 100.0, "modes": faults, **options}
    return run_campaign(ChaosParameters(**settings), directory=data_dir, keep=True)  # type: ignore[arg-type]


def test_a_cluster_survives_every_kind_of_fault(data_dir: Path) -> None:
    result = _run(data_dir, round_seconds=30.0)

    (found,) = result.rounds
    assert found.violations == []
    assert found.undecided_count == 0
    assert found.checked_count > 200
    assert sum(record.begun_ns is not None for record in found.faults) >= 5
    page = build_chaos_page(result)
    assert "no violation" in page
    assert "<script" not in page


@pytest.mark.damages_directories
@pytest.mark.parametrize(
    ("plant", "told"),
    [
        pytest.param(Plant.LOSE_WRITE, "in log order the answer is", marks=pytest.mark.campaign),
        pytest.param(Plant.RUN_TWICE, "in log order the answer is", marks=pytest.mark.campaign),
        pytest.param(Plant.STALE_READ, "in log order the answer is", marks=pytest.mark.campaign),
        (Plant.DIVERGE, "services differ at log_position="),
    ],
)
def test_a_planted_bug_is_found(data_dir: Path, plant: Plant, told: str) -> None:
    result = _run(data_dir, round_seconds=5.0, kinds=(ChaosFault.RESET,), plant=plant)

    assert any(told in violation for violation in result.rounds[0].violations)
    assert f"--plant {plant}" in result.parameters.command(0)


@pytest.mark.damages_directories
def test_acknowledging_what_is_not_synced_is_found_by_a_power_loss(data_dir: Path) -> None:
    result = _run(data_dir, round_seconds=8.0, kinds=(ChaosFault.POWER_LOSS_ALL,), plant=Plant.NO_SYNC)

    assert result.violation_count > 0


def test_hostile_clients_take_nothing_from_honest_ones(data_dir: Path) -> None:
    result = _run(data_dir, round_seconds=10.0, modes=(ChaosMode.HOSTILE,), kinds=(ChaosFault.SNAPSHOT,))

    (found,) = result.rounds
    assert found.violations == []
    assert set(found.hostile) == set(HostileKind)


@pytest.mark.campaign
def test_a_careless_service_stops_the_member_that_fails_alone_and_no_other(data_dir: Path) -> None:
    result = _run(data_dir, round_seconds=14.0, modes=(ChaosMode.CARELESS,), kinds=(ChaosFault.SNAPSHOT,))

    (found,) = result.rounds
    assert found.violations == []
    assert any("stopped with" in record.note for record in found.faults)


@pytest.mark.parametrize(
    ("mode", "kinds", "done"),
    [
        (ChaosMode.MEMBERSHIP, (ChaosFault.KILL,), ROSTER_CHANGES),
        pytest.param(ChaosMode.TLS, (ChaosFault.ROTATE,), (ChaosFault.ROTATE,), marks=pytest.mark.campaign),
        pytest.param(ChaosMode.COLD, (ChaosFault.WIPE,), (ChaosFault.WIPE,), marks=pytest.mark.campaign),
        pytest.param(ChaosMode.GROUPS, (ChaosFault.KILL,), (ChaosFault.KILL,), marks=pytest.mark.campaign),
    ],
)
def test_a_cluster_survives_what_a_mode_is_about(
    data_dir: Path, mode: ChaosMode, kinds: tuple[ChaosFault, ...], done: tuple[ChaosFault, ...]
) -> None:
    result = _run(data_dir, round_seconds=10.0, modes=(mode,), kinds=kinds)

    assert [found.violations for found in result.rounds] == [[]] * (GROUP_COUNT if mode is ChaosMode.GROUPS else 1)
    assert {*done} & {record.plan.kind for found in result.rounds for record in found.faults if record.begun_ns}


@pytest.mark.campaign
def test_a_users_service_is_checked_without_knowing_it(data_dir: Path) -> None:
    result = _run(
        data_dir,
        round_seconds=6.0,
        kinds=(ChaosFault.KILL, ChaosFault.RESET),
        service="access_quota:AccessQuota",
        service_dir=ROOT / "examples",
    )

    assert result.rounds[0].violations == []
    assert result.rounds[0].delivery_count > 20
