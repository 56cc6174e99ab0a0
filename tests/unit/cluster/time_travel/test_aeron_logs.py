"""Logs that a real Aeron Cluster recorded, replayed to the ported application: its state is the samples' truth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tests.system.aeron_sample import AeronSampleService, FirstOfTwo, SecondOfTwo
from tests.system.test_import import COUNTS, STATE_LENGTH, counts_in_log, java_states
from tests.unit.archive.streams import extract_sample
from trimaran.cluster.time_travel import Change, MemberLog, OutputKind, ReplayedService, replay_service, what_if
from trimaran.service_api import ClusteredService

ONE, TWO = (AeronSampleService,), (FirstOfTwo, SecondOfTwo)


def counts_of(service: ClusteredService) -> dict[str, int]:
    assert isinstance(service, AeronSampleService)
    return {name: asdict(service.counts)[name] for name in COUNTS}


@pytest.mark.parametrize(
    ("scenario", "node", "services"),
    [
        pytest.param("single-node", 0, ONE, id="one member"),
        pytest.param("checksummed", 0, TWO, id="two services, nanoseconds"),
        pytest.param("torn", 0, ONE, id="killed, never stopped in order"),
        *[pytest.param("three-node-failover", node, ONE, id=f"member {node} of three") for node in range(3)],
    ],
)
@pytest.mark.parametrize("snapshot", ["newest", "none"])
def test_the_state_is_the_truth(
    tmp_path: Path, scenario: str, node: int, services: tuple[type[ClusteredService], ...], snapshot: str
) -> None:
    log = MemberLog.open(extract_sample(scenario, tmp_path) / f"node{node}")

    replayed = replay_service(log, services, bound="recorded", snapshot=snapshot)  # type: ignore[arg-type]  # a literal

    assert [counts_of(service) for service in replayed.services] == [counts_in_log(scenario)] * len(services)
    assert replayed.errors == []
    assert replayed.divergences == []
    assert log.is_by_aeron


@pytest.mark.parametrize(("scenario", "services"), [("single-node", ONE), ("checksummed", TWO)])
def test_the_state_is_what_the_java_service_wrote_at_the_same_place(
    tmp_path: Path, scenario: str, services: tuple[type[ClusteredService], ...]
) -> None:
    directory = extract_sample(scenario, tmp_path) / "node0"
    expected = java_states(directory)

    found = {}
    for position, service_id in expected:
        replayed = replay_service(directory, services, position=position, snapshot="none")
        found[position, service_id] = replayed.snapshot_messages(service_id)[0][:STATE_LENGTH]

    assert found == expected
    assert expected


@pytest.mark.parametrize("snapshot", ["newest", "none"])
@pytest.mark.parametrize(("service_id", "service"), [*enumerate(TWO)])
def test_one_of_several_services_is_replayed_alone(
    tmp_path: Path, service_id: int, service: type[ClusteredService], snapshot: str
) -> None:
    directory = extract_sample("checksummed", tmp_path) / "node0"

    def replay(services: object, **arguments: object) -> ReplayedService:
        return replay_service(directory, services, snapshot=snapshot, service_count=2, **arguments)  # type: ignore[arg-type]

    alone, both = replay(service, service_id=service_id), replay(TWO)

    assert counts_of(alone.service) == counts_of(both.services[service_id])
    assert alone.services.index(alone.service) == service_id
    assert alone.divergences == []
    assert sum(alone.output_counts.values()) <= sum(both.output_counts.values())


@pytest.mark.parametrize(
    ("scenario", "services", "offers"),
    [("single-node", ONE, 42), ("checksummed", TWO, 82), ("three-node-failover", ONE, 11)],
)
def test_the_ported_service_did_what_the_log_shows_of_the_java_one(
    tmp_path: Path, scenario: str, services: tuple[type[ClusteredService], ...], offers: int
) -> None:
    """Every message that the Java service offered, every timer that fired, every session that it closed."""
    result = what_if(extract_sample(scenario, tmp_path) / "node0", old=None, new=services, snapshot="none")

    assert result.sample == []
    assert result.is_same
    assert result.new_counts[OutputKind.OFFER] == offers == counts_in_log(scenario)["service_messages"]


def test_a_port_that_offers_other_texts_is_told_at_the_first_one(tmp_path: Path) -> None:
    class Shouting(AeronSampleService):
        def _offer(self, length: int) -> None:
            self.counts.offers += 1
            self.cluster.offer(b"X" * length)

    result = what_if(extract_sample("single-node", tmp_path) / "node0", old=None, new=Shouting, snapshot="none")

    assert result.first is not None
    assert result.first.old is not None
    assert result.first.old.payload.startswith(b"service0 offer0 ")
    assert result.changes[OutputKind.OFFER, Change.MISSING] > 0
