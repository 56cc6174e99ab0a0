"""An operator's command finds the leader while it changes, and from a machine where the leader is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.system.test_tls import Certified, endpoint_of
from tests.waiting import patient
from trimaran.archive.tool.output import EXIT_REFUSED, OutputFormat
from trimaran.cluster.cli.shared.operation import _carry_out, _Wanted
from trimaran.cluster.cli.shared.setting_flags import AskedCluster
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import NetworkStack, Purpose, SocketStack
from trimaran.service_api.tls import TlsSettings, TlsStack

pytestmark = pytest.mark.slow


class OnTheMachineOf(SocketStack):
    """Dials as the user of one member does on its machine, in plain text: the other control sockets are elsewhere."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self._here = endpoint

    def _dial_locally(self, purpose: Purpose, endpoint: Endpoint) -> Any:  # Any: a socket, or None
        return super()._dial_locally(purpose, endpoint) if endpoint == self._here else None


class OnTheMachineOfWithTls(TlsStack):
    """As `OnTheMachineOf` with TLS, and without a certificate."""

    def __init__(self, certified: Certified, endpoint: Endpoint) -> None:
        authorities = certified.operator.settings.authorities
        super().__init__(TlsSettings(authorities=authorities), cluster_id=certified.issuer.cluster_id)
        self._here = endpoint

    def _dial_locally(self, purpose: Purpose, endpoint: Endpoint) -> Any:  # Any: as above
        return super()._dial_locally(purpose, endpoint) if endpoint == self._here else None


async def order(cluster: SystemCluster, operation: Operation, network: NetworkStack) -> None:
    """Run an operator's command; it ends with an exception unless it has done what it is for."""
    endpoints = {member_id: str(endpoint_of(cluster, member_id, "consensus")) for member_id in range(3)}
    wanted = _Wanted(operation, *[None] * 8)
    asked = AskedCluster(endpoints, NULL_CLUSTER_ID, network)
    await _carry_out(wanted, asked, patient(TIMEOUT_S), OutputFormat.JSONL)


async def test_an_order_on_the_machine_of_a_follower_is_passed_on_to_the_leader(data_dir: Path) -> None:
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        follower = (leader + 1) % 3
        here = endpoint_of(cluster, follower, "consensus")

        await order(cluster, Operation.SUSPEND, OnTheMachineOfWithTls(certified, here))
        steps = [
            step
            async for step in run_operation(str(here), Operation.RESUME, patient(TIMEOUT_S), network=certified.operator)
        ]

        assert (steps[-1].step, steps[-1].member_id) == ("done", leader)
        asked, did = (cluster.members[each].events("audit.action_ended") for each in (follower, leader))
        assert [(line["action"], line["caller"], line["outcome"]) for line in asked] == [
            ("suspend", "local", "done"),
            ("resume", "ops", "done"),
        ]
        assert [(line["action"], line["role"], line["caller"]) for line in did] == [
            ("suspend", "member", str(follower)),
            ("resume", "member", str(follower)),
        ]
        assert has_facts(did[0]["passed_on_for"], "operator local")
        assert has_facts(did[1]["passed_on_for"], "operator ops")


async def test_an_order_while_the_leader_changes_is_done_by_the_next_one(data_dir: Path) -> None:
    """The command ended with `no leader`, or was refused on the machine of the leader that was."""
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        cluster.members[leader].kill()

        await order(cluster, Operation.SUSPEND, certified.operator)

        later = (await cluster.wait_for_leader(min_term_id=1)).leader_member_id
        (ended,) = cluster.members[later].events("audit.action_ended")
        assert (ended["action"], ended["outcome"]) == ("suspend", "done")
        await order(cluster, Operation.RESUME, certified.operator)
        cluster.start(leader)
        await cluster.wait_for_equal_states()


async def test_in_plain_text_nothing_is_passed_on(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any process that connects in plain text could say that it passes an order on."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        here = endpoint_of(cluster, (leader + 1) % 3, "consensus")

        with pytest.raises(typer.Exit) as ended:
            await order(cluster, Operation.SUSPEND, OnTheMachineOf(here))

        assert ended.value.exit_code == EXIT_REFUSED
        assert has_facts(capsys.readouterr().err, f"member {leader}, the leader", "stranger")
        assert [cluster.members[each].events("audit.action_ended") for each in (leader,)] == [[]]
