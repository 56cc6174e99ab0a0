"""A node with two services, which talk through the log: both are replayed, or one of them alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.seats import BoxOffice, Ledger
from tests.unit.cluster.time_travel.recorded import DEADLINE_S, member
from tests.waiting import patient, within
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.time_travel import Output, OutputKind, replay_service, verify_snapshots, what_if
from trimaran.service_api import ClusteredService, ConfigurationError

BOTH = "examples.seats:BoxOffice,examples.seats:Ledger"


@dataclass
class Sold:
    """A directory, and the services as they were at the end."""

    directory: Path
    office: BoxOffice
    ledger: Ledger


def state_of(service: ClusteredService) -> dict[str, object]:
    return {name: value for name, value in vars(service).items() if name != "cluster"}


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Sold:
    office, ledger = BoxOffice(), Ledger()
    directory = tmp_path_factory.mktemp("seats") / "node-0"

    async def run() -> None:
        async with within(DEADLINE_S), member(directory, office, ledger) as (node, endpoint):
            config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
            async with await ClusterClient.connect([], config=config) as client:
                for seat in range(20):
                    await client.request(b"hold %d" % seat)
                    if seat % 2:
                        await client.request(b"pay %d 10" % seat)
                    if seat == 9:
                        await node.take_snapshot()
            await node.take_snapshot()

    asyncio.run(run())
    return Sold(directory, office, ledger)


@pytest.mark.parametrize("snapshot", ["newest", "none"])
def test_both_come_to_the_states_that_they_had(sold: Sold, snapshot: str) -> None:
    replayed = replay_service(sold.directory, BOTH, snapshot=snapshot)  # type: ignore[arg-type]  # a literal

    assert [state_of(service) for service in replayed.services] == [state_of(sold.office), state_of(sold.ledger)]
    assert sold.ledger.takings == 100
    assert [correlation_id for correlation_id, _ in replayed.timers] == sorted(sold.office.held)
    assert replayed.divergences == []


@pytest.mark.parametrize(("service_id", "service"), [(0, BoxOffice), (1, Ledger)])
def test_one_of_them_comes_to_its_state_alone(sold: Sold, service_id: int, service: type[ClusteredService]) -> None:
    outputs: list[Output] = []

    replayed = replay_service(sold.directory, service, service_id=service_id, snapshot="none", sink=outputs.append)

    expected = sold.ledger if service_id else sold.office
    assert state_of(replayed.service) == state_of(expected)
    kinds = {output.kind for output in outputs}
    assert kinds == (set() if service_id else {OutputKind.REPLY, OutputKind.OFFER, *TIMERS})


TIMERS = (OutputKind.TIMER_SCHEDULED, OutputKind.TIMER_CANCELLED)


def test_both_write_what_was_recorded(sold: Sold) -> None:
    both = verify_snapshots(sold.directory, BOTH)
    alone = verify_snapshots(sold.directory, Ledger, service_id=1)

    assert [verdict.problem for verdict in (*both, *alone)] == [None] * 4
    assert [verdict.to_position for verdict in both] == [verdict.to_position for verdict in alone]


def test_both_are_compared_with_other_code_and_with_the_log(sold: Sold) -> None:
    class Cheaper(BoxOffice):
        def on_request(self, session: object, timestamp: int, payload: memoryview) -> bytes:
            if bytes(payload) == b"pay 3 10":
                payload = memoryview(b"pay 3 5")
            return super().on_request(session, timestamp, payload)  # type: ignore[arg-type]  # as it came

    changed = what_if(sold.directory, old=[BoxOffice, Ledger], new=[Cheaper, Ledger])
    shown = what_if(sold.directory, old=None, new=[Cheaper, Ledger])

    assert {kind for kind, _ in changed.changes} == {OutputKind.OFFER}
    assert changed.difference_count == 1
    assert changed.first is not None
    assert changed.first.new is not None
    assert changed.first.new.payload == b"sold 3 5"
    assert shown.first is not None
    assert shown.first.old is not None
    assert shown.first.old.payload == b"sold 3 10"
    assert what_if(sold.directory, old=None, new=BOTH).is_same


def test_more_services_than_there_is_room_for_are_refused(sold: Sold) -> None:
    with pytest.raises(ConfigurationError, match="services=3"):
        replay_service(sold.directory, [BoxOffice, Ledger, Ledger], service_count=2)
