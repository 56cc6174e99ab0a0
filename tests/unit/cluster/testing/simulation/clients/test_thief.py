"""A thief knows every session's id, term and digest: through the loss of a leader and a restart of all it gets none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random

import pytest

from tests.unit.cluster.testing.simulation.clients.thief import STOLEN, Loot, Thief
from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.client import ClusterClient
from trimaran.cluster.core.sessions.session_claims import SessionClaims
from trimaran.service_api.types import TermId


def add_thief(small: SmallCluster, successes: list[str]) -> Thief:
    """Let loose a thief that knows of sessions what the leader does."""

    def find_loot() -> Sequence[Loot]:
        leader = small.cluster.leader()
        if leader is None or leader.node is None:
            return ()
        module = leader.node.module
        term_id = TermId(module.ctx.leadership_term_id)
        return [Loot(key, term_id, session.token_digest) for key, session in module.sessions.sessions.items()]

    thief = Thief(
        small.cluster.network,
        small.cluster.ingress_endpoints,
        random=Random("1 auth"),
        find_loot=find_loot,
        on_success=lambda loot, how: successes.append(f"{loot.cluster_session_id} {how}"),
        pause_s=0.02,
    )
    small.cluster.add_client("thief", thief.run)
    return thief


def heist(seed: int, successes: list[str]) -> tuple[Thief, list[str]]:
    """Let a client go on and on while a thief tries; kill the leader, then restart everybody.

    What the thief got is put into `successes`; gives the thief, and what the client was answered.
    """
    answers: list[str] = []

    async def use() -> None:
        chance = Random(seed)
        config = small.client_config(
            connect_timeout_s=20.0,
            new_leader_timeout_s=20.0,
            keep_alive_interval_s=0.1,
            random=chance.random,
            make_secret=lambda: chance.randbytes(32),
        )
        async with ClusterClient.connect(config=config) as client:
            session_id = client.cluster_session_id
            replies = client.egress()
            while True:
                await client.offer(b"the holder's own")
                try:
                    async with asyncio.timeout(0.3):
                        answers.append(bytes((await anext(replies)).payload).decode())
                except TimeoutError:
                    assert not client.is_closed
                assert client.cluster_session_id == session_id
                await asyncio.sleep(0.02)

    with small_cluster(seed) as small:
        cluster = small.cluster
        small.start()
        cluster.add_client("holder", use)
        small.wait(lambda: len(answers) > 5)
        thief = add_thief(small, successes)
        cluster.run_for(SECOND)
        leader_id = small.leader.member_id
        cluster.kill(leader_id)
        small.wait(lambda: cluster.leader() is not None)
        cluster.start(leader_id)
        cluster.run_for(SECOND)
        for member_id in cluster.members:
            cluster.kill(member_id)
        for member_id in cluster.members:
            cluster.start(member_id)
        small.wait(lambda: cluster.leader() is not None)
        before = len(answers)
        small.wait(lambda: len(answers) > before + 5)
        assert cluster.clients["holder"].is_running
        delivered = small.referee.services.delivered.values()
        successes += ["its message" for what in delivered if STOLEN in what]
    return thief, answers


def test_a_thief_gets_no_session_and_its_holder_loses_nothing() -> None:
    """Through a change of leader and a restart of the whole cluster."""
    successes: list[str] = []

    thief, answers = heist(1, successes)

    assert successes == []
    assert set(answers) == {"the holder's own"}
    assert thief.refused_count > 20


def test_a_digest_that_is_not_compared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: whoever shows anything is believed."""

    def fits(self: SessionClaims, connection_id: int, expected: bytes | None) -> bool:
        return connection_id in self._digests

    monkeypatch.setattr(SessionClaims, "fits", fits)

    successes: list[str] = []
    with contextlib.suppress(AssertionError):  # of the holder, which is thrown out, and of what waits for it
        heist(1, successes)

    assert successes
