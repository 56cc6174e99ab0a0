"""How the members come to one id, in whole simulated clusters: fail-overs, restarts, wiped members, other clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, running_cluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, take
from trimaran.client import ClusterClient, ConnectRejectedError, ConnectTimeoutError
from trimaran.cluster.runtime.answering.status import describe_status
from trimaran.cluster.runtime.files.cluster_id_file import ClusterIdFile
from trimaran.cluster.runtime.files.cluster_identity import ClusterIdentity, derive_cluster_id, settle_cluster_id
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from trimaran.service_api.errors import ConfigurationError

GIVEN = ClusterId(0x3F9A0C12D45E77B1)


def ids(small: SmallCluster) -> set[int]:
    return {member.node.module.ctx.cluster_id for member in small.cluster.running() if member.node is not None}


def give(small: SmallCluster, member_id: int, cluster_id: ClusterId) -> None:
    member = small.member(member_id)
    member.config = member.config.model_copy(update={"cluster_id": cluster_id})


def wait_for_ids(small: SmallCluster) -> int:
    small.wait(lambda: len(ids(small)) == 1 and NULL_CLUSTER_ID not in ids(small))
    return next(iter(ids(small)))


def test_members_agree_on_one_id_and_keep_it_over_restarts_and_new_leaders() -> None:
    with running_cluster() as small:
        drawn = wait_for_ids(small)
        for member in [*small.cluster.running()]:
            small.cluster.kill(member.member_id)
        for member_id in small.cluster.members:
            small.cluster.start(member_id)
        at_start = {member.node.module.ctx.cluster_id for member in small.cluster.running() if member.node}
        small.wait(lambda: small.cluster.leader() is not None)
        small.cluster.kill(small.leader.member_id)
        small.wait(lambda: small.cluster.leader() is not None)
        small.cluster.run_for(3 * SECOND)

        assert at_start <= {drawn}
        assert ids(small) == {drawn}
        assert small.leader.node is not None
        assert describe_status(small.leader.node.parts.answers.vitals).cluster_id == format_cluster_id(drawn)


@pytest.mark.parametrize("seed", range(4))
def test_two_leaders_that_do_not_know_of_each_other_come_to_one_id(seed: int) -> None:
    """The first leader stores the id and dies before anybody knows it: the next one must not draw another.

    A planted bug, an id that each leader draws at random, fails here.
    """
    with small_cluster(seed) as small:
        small.start()
        first = small.leader
        assert first.node is not None
        first.node.parts.links.members.announce = lambda cluster_id: None  # type: ignore[method-assign]  # it dies before that
        small.wait(lambda: first.node is not None and first.node.module.ctx.cluster_id != NULL_CLUSTER_ID)
        drawn = first.node.module.ctx.cluster_id
        small.cluster.kill(first.member_id)
        assert ids(small) == {NULL_CLUSTER_ID}
        small.wait(lambda: small.cluster.leader() is not None)
        wait_for_ids(small)
        small.cluster.start(first.member_id)
        small.cluster.run_for(3 * SECOND)

        assert ids(small) == {drawn}
        assert small.is_at_rest()


def test_the_first_entry_stays_until_the_id_is_known_though_snapshots_let_the_log_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody derives the id for a while; then there must be something to derive it from."""
    settings = replace(QUICK, keep_all=False)
    with small_cluster(settings=settings, make_service=Keeper) as small, monkeypatch.context() as patched:
        patched.setattr(ClusterIdentity, "look", lambda self: None)
        small.start()
        small.send(400, length=400)
        for _ in range(3):
            take(small)
        small.cluster.run_for(2 * SECOND)
        nodes = [member.node for member in small.cluster.running() if member.node is not None]
        assert ids(small) == {NULL_CLUSTER_ID}
        assert {node.archive.descriptor(0).start_position for node in nodes} == {0}
        patched.undo()

        wait_for_ids(small)
        take(small)
        small.wait(lambda: all(node.archive.descriptor(0).start_position > 0 for node in nodes))


def test_a_follower_takes_the_id_as_soon_as_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who told it may be removed within the second, and its own log may not begin at 0."""
    with running_cluster() as small:
        drawn = wait_for_ids(small)
        monkeypatch.setattr("trimaran.cluster.node.node._LOOK_INTERVAL_S", 3_600)
        member = small.followers[0]
        small.cluster.kill(member.member_id)
        small.cluster.wipe(member.member_id)
        small.cluster.start(member.member_id)
        small.wait(lambda: member.node is not None and small.is_at_rest())

        small.wait(lambda: ids(small) == {drawn}, limit_ns=SECOND // 10)


def test_clusters_differ() -> None:
    drawn = set()
    for seed in range(3):
        with running_cluster(seed) as small:
            drawn.add(wait_for_ids(small))

    assert len(drawn) == 3


def test_the_setting_gives_the_id_from_the_first_start_and_one_member_is_enough() -> None:
    with small_cluster() as small:
        give(small, 1, GIVEN)
        small.start()
        small.cluster.run_for(3 * SECOND)

        assert ids(small) == {GIVEN}


def test_a_member_of_another_cluster_is_not_heard_and_named() -> None:
    with small_cluster() as small:
        give(small, 0, ClusterId(1))
        for member_id in (1, 2):
            give(small, member_id, GIVEN)
        small.start()
        small.cluster.run_for(3 * SECOND)

        assert small.leader.member_id in (1, 2)
        assert small.leader.node is not None
        (other,) = describe_status(small.leader.node.parts.answers.vitals).differing_members
        assert (other.member_id, other.detail) == (
            0,
            "another cluster: cluster_id=3f9a0c12d45e77b1 here, 0000000000000001 at member 0",
        )
        stranger = small.member(0).node
        assert stranger is not None
        assert stranger.module.ctx.append_position == 0


def test_a_directory_of_another_cluster_is_refused_at_start(tmp_path: Any) -> None:
    from trimaran.archive.disk.file_system import OsFileSystem

    file = ClusterIdFile.open(tmp_path, OsFileSystem())
    settle_cluster_id(file, configured=NULL_CLUSTER_ID, certified=NULL_CLUSTER_ID)
    none = file.cluster_id
    settle_cluster_id(file, configured=GIVEN, certified=NULL_CLUSTER_ID)
    settle_cluster_id(file, configured=NULL_CLUSTER_ID, certified=NULL_CLUSTER_ID)

    assert (none, ClusterIdFile.open(tmp_path, OsFileSystem()).cluster_id) == (NULL_CLUSTER_ID, GIVEN)
    with pytest.raises(ConfigurationError, match=r"cluster_id=3f9a0c12d45e77b1,.*setting.*0001"):
        settle_cluster_id(file, configured=ClusterId(1), certified=NULL_CLUSTER_ID)
    with pytest.raises(
        ConfigurationError,
        match=r"cluster_id=3f9a0c12d45e77b1,.*certificate.*0001;.*`trimaran certs init .*3f9a0c12d45e77b1`",
    ):
        settle_cluster_id(file, configured=GIVEN, certified=ClusterId(1))


@pytest.mark.parametrize(("demanded", "is_taken"), [(GIVEN, True), (ClusterId(1), False)])
def test_a_client_may_demand_a_cluster_and_another_one_refuses_by_name(demanded: ClusterId, is_taken: bool) -> None:
    outcomes: list[str] = []
    with small_cluster() as small:
        for member_id in small.cluster.members:
            give(small, member_id, GIVEN)
        small.start()

        async def connect() -> None:
            config = small.client_config(cluster_id=format_cluster_id(demanded))
            try:
                async with ClusterClient.connect(config=config):
                    outcomes.append("open")
            except ConnectRejectedError as error:
                outcomes.append(error.detail)

        small.cluster.add_client("demands", connect)
        small.wait(lambda: bool(outcomes))

    refused = "another cluster: cluster_id=3f9a0c12d45e77b1 expected=0000000000000001"
    assert outcomes == ["open" if is_taken else refused]


def test_a_client_that_demands_a_cluster_waits_until_the_cluster_knows_its_id() -> None:
    outcomes: list[str] = []
    with small_cluster() as small:
        small.start()
        for member in small.cluster.running():
            assert member.node is not None
            member.node.parts.files.identity.look = lambda: None  # type: ignore[method-assign]

        async def connect() -> None:
            try:
                config = small.client_config(cluster_id=format_cluster_id(GIVEN), connect_timeout_s=2.5)
                async with ClusterClient.connect(config=config):
                    outcomes.append("open")
            except ConnectTimeoutError:
                outcomes.append("timeout")

        small.cluster.add_client("demands", connect)
        small.wait(lambda: bool(outcomes))

    assert outcomes == ["timeout"]


def test_an_id_is_a_function_of_the_first_entry() -> None:
    assert derive_cluster_id(b"first") == derive_cluster_id(b"first") != derive_cluster_id(b"First")
    assert 0 < derive_cluster_id(b"") < 1 << 63
