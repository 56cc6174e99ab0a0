"""Many sessions of one process over one connection, whose leader is killed: in plain text, with TLS, with passwords."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from tests.system.append_list import ANSWER, Answer
from tests.system.cluster_process import TIMEOUT_S, SystemCluster, all_last_ran
from tests.system.test_tls import Certified, endpoint_of
from tests.waiting import patient, wait_until, within
from trimaran.client import ClientConfig, ClusterClient, ConnectRejectedError, PasswordCredentials, SharedConnection
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.cluster.documents.inspection import SessionsView, inspect_member
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.password_proof import ITERATIONS_MIN
from trimaran.service_api.tls import TlsSettings

pytestmark = pytest.mark.slow

SESSIONS = 1_000
FEW = 30
REQUESTS = 4


def config_of(cluster: SystemCluster, *, tls: TlsSettings | None = None) -> ClientConfig:
    return ClientConfig(
        endpoints=tuple(cluster.endpoints),
        connect_timeout_s=patient(60.0),
        new_leader_timeout_s=patient(120.0),
        tls=tls,
    )


async def principals(cluster: SystemCluster, member_id: int) -> dict[int, str]:
    """Who each session is, as a member says."""
    endpoint = str(endpoint_of(cluster, member_id, "consensus"))
    view = await inspect_member(endpoint, SessionsView, patient(TIMEOUT_S), network=cluster.processes.network)
    return {session.cluster_session_id: session.principal for session in view.sessions}


async def ask_through_the_death_of(cluster: SystemCluster, leader_id: int, clients: list[ClusterClient]) -> None:
    """Each session asks before and after its leader is killed, and is answered what its own requests did."""

    async def ask(client: ClusterClient, number: int) -> Answer:
        return Answer(*ANSWER.unpack(await client.request(b"request %d of %d" % (number, client.cluster_session_id))))

    answers: dict[int, list[Answer]] = {client.cluster_session_id: [] for client in clients}
    for number in range(2):
        for client, answer in zip(clients, await asyncio.gather(*(ask(one, number) for one in clients)), strict=True):
            answers[client.cluster_session_id].append(answer)
        if not number:
            cluster.members[leader_id].kill()
    await cluster.start(leader_id).wait_for_event("election.closed")
    await cluster.wait_for_equal_logs()
    ran = all_last_ran(cluster)
    assert {session_id: ran[session_id] for session_id in answers} == answers


async def test_requests_of_a_thousand_sessions_run_once_when_their_leader_is_killed(data_dir: Path) -> None:
    answers: dict[int, list[Answer]] = {}

    async def ask(client: ClusterClient) -> None:
        mine = answers[client.cluster_session_id] = []
        for number in range(REQUESTS):
            reply = await client.request(b"request %d" % number)
            mine.append(Answer(*ANSWER.unpack(reply)))

    async with SystemCluster(data_dir) as cluster:
        leader = await cluster.wait_for_leader()
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(60.0), new_leader_timeout_s=patient(120.0)
        )
        async with SharedConnection.connect(config=config) as shared:
            clients = await asyncio.gather(*(shared.open_session() for _ in range(SESSIONS)))
            asking = asyncio.gather(*(ask(client) for client in clients))
            await wait_until(
                lambda: sum(map(len, answers.values())) >= SESSIONS, timeout_s=60, what=lambda: f"answers: {shared!r}"
            )
            cluster.members[leader.leader_member_id].kill()
            async with within(120):
                await asking
            assert {client.is_closed for client in clients} == {False}
        await cluster.start(leader.leader_member_id).wait_for_event("election.closed")
        await cluster.wait_for_equal_logs()
    ran = all_last_ran(cluster)

    assert {session_id: ran[session_id] for session_id in answers} == answers
    assert len(answers) == SESSIONS


async def test_sessions_open_in_a_program_whose_tasks_start_eagerly(data_dir: Path) -> None:
    """The dial of each session after the first ended before it was noted, and the session waited for it."""
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("asyncio has no eager tasks here: use Python 3.12 or newer")
    loop = asyncio.get_running_loop()
    async with SystemCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        loop.set_task_factory(factory)
        try:
            async with within(60), SharedConnection.connect(config=config_of(cluster)) as shared:
                clients = await asyncio.gather(*(shared.open_session() for _ in range(3)))
                answers = [Answer(*ANSWER.unpack(await client.request(b"request"))) for client in clients]
        finally:
            loop.set_task_factory(None)

    assert [answer.place for answer in answers] == [1, 2, 3]


async def test_sessions_of_a_shared_connection_with_tls_are_who_its_certificate_says(data_dir: Path) -> None:
    certified = Certified(data_dir)
    async with certified.cluster() as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        tls = certified.issuer.of(CallerRole.CLIENT, "gateway")
        async with SharedConnection.connect(config=config_of(cluster, tls=tls)) as shared:
            clients = await asyncio.gather(*(shared.open_session() for _ in range(FEW)))
            found = await principals(cluster, leader_id)
            assert found == {client.cluster_session_id: "gateway" for client in clients}

            await ask_through_the_death_of(cluster, leader_id, clients)


async def test_sessions_of_a_shared_connection_have_a_password_each_and_a_wrong_one_harms_no_other(
    data_dir: Path, tmp_path: Path
) -> None:
    users = [f"user-{number}" for number in range(FEW)]
    file = SecretsFile.empty(secrets.token_bytes, iterations=ITERATIONS_MIN)
    for user in users:
        file.add(user, f"secret of {user}", secrets.token_bytes)
    file.save(tmp_path / "secrets")
    settings = {"authenticator": "password", "secrets_file": str(tmp_path / "secrets")}
    async with SystemCluster(data_dir, settings=settings) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        async with SharedConnection.connect(config=config_of(cluster)) as shared:

            async def log_in(user: str, secret: str) -> ClusterClient:
                return await shared.open_session(credentials=PasswordCredentials(user, secret))

            wrong = [asyncio.create_task(log_in(user, "wrong")) for user in users[:3]]
            clients = await asyncio.gather(*(log_in(user, f"secret of {user}") for user in users))
            for task in wrong:
                with pytest.raises(ConnectRejectedError, match="authentication rejected"):
                    await task
            found = await principals(cluster, leader_id)
            assert found == {client.cluster_session_id: user for client, user in zip(clients, users, strict=True)}

            await ask_through_the_death_of(cluster, leader_id, clients)
