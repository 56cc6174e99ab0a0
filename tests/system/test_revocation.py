"""A right that is taken away ends within seconds with real members: sessions, connections, the worth of a token."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.system.test_client_sessions import _wait_closed_everywhere
from tests.system.test_tls import Certified, endpoint_of
from tests.tls import Issuer
from tests.waiting import patient, wait_until, within
from trimaran.archive.net.client import ArchiveClient
from trimaran.client import ClientConfig, ClusterClient, ConnectRejectedError, PasswordCredentials
from trimaran.cluster.auth.secrets_file import SecretsFile
from trimaran.service_api import ClusterError, SessionClosedError
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.password_proof import ITERATIONS_MIN
from trimaran.service_api.tls import TlsSettings, TlsStack

pytestmark = pytest.mark.slow

SECRET = "geheim"
random_bytes = Random(44).randbytes


def as_principal(name: str) -> PasswordCredentials:
    return PasswordCredentials(name, SECRET)


async def connect(cluster: SystemCluster, **settings: object) -> ClusterClient:
    limits = {"connect_timeout_s": patient(60.0), "new_leader_timeout_s": patient(60.0)} | settings
    return await ClusterClient.connect(cluster.endpoints, **limits)  # type: ignore[arg-type]


async def call(client: ClusterClient) -> None:
    async with within(TIMEOUT_S):
        await client.request(b"x", timeout_s=patient(TIMEOUT_S))


async def wait_ended(client: ClusterClient) -> str:
    """Wait until the cluster has ended a client's session; return what a call says then."""
    await wait_until(lambda: client.is_closed, timeout_s=TIMEOUT_S, what="the session to end")
    with pytest.raises(SessionClosedError) as caught:
        await client.request(b"x")
    return str(caught.value)


def right_ended(cluster: SystemCluster, caller: str, members: Sequence[int]) -> list[dict[str, object]]:
    lines = [line for member_id in members for line in cluster.members[member_id].events("audit.right_ended")]
    return [line for line in lines if line["caller"] == caller]


async def test_a_principal_that_was_removed_is_out_and_its_token_brings_it_back_nowhere(
    data_dir: Path, tmp_path: Path
) -> None:
    """Removed while it runs, with its secret replaced, and while all members are down: others notice nothing."""
    path, file = tmp_path / "secrets", SecretsFile.empty(random_bytes, iterations=ITERATIONS_MIN)
    for name in ("stays", "removed", "replaced", "away"):
        file.add(name, SECRET, random_bytes)
    file.save(path)
    settings = {**STEADY, "authenticator": "password", "secrets_file": str(path)}
    async with SystemCluster(data_dir, settings=settings) as cluster, AsyncExitStack() as stack:
        leader = (await cluster.wait_for_leader()).leader_member_id
        clients = {name: await connect(cluster, credentials=as_principal(name.decode())) for name in file.verifiers}
        for client in clients.values():
            stack.push_async_callback(client.aclose)
            await call(client)
        stays, removed, replaced, away = clients.values()
        ids = [client.cluster_session_id for client in clients.values()]

        path.write_text(file.text()[:-40])
        await cluster.members[leader].wait_for_event("secrets.refused")
        await call(removed)
        del file.verifiers[b"removed"]
        file.add("replaced", SECRET, random_bytes)
        file.save(path)
        assert has_facts(await wait_ended(removed), "principal='removed'")
        assert has_facts(await wait_ended(replaced), "principal='replaced'")
        await _wait_closed_everywhere(cluster, ids[1], "TIMEOUT")
        (line,) = right_ended(cluster, "removed", [leader])
        assert has_facts(str(line), f"'session_ids': [{ids[1]}]", "principal='removed'")

        for member_id in range(3):
            cluster.members[member_id].kill()
        del file.verifiers[b"away"]
        file.save(path)
        for member_id in range(3):
            cluster.start(member_id)
        await cluster.wait_for_leader(min_term_id=1)
        assert has_facts(await wait_ended(away), "principal='away'")
        await _wait_closed_everywhere(cluster, ids[3], "TIMEOUT")
        await call(stays)
        assert (stays.cluster_session_id, stays.is_closed) == (ids[0], False)
        with pytest.raises(ConnectRejectedError) as caught:
            await connect(cluster, credentials=as_principal("away"))
        assert caught.value.code == "AUTHENTICATION_REJECTED"


def copy_files(source: TlsSettings, target: TlsSettings) -> None:
    for name in ("key", "certificate"):
        Path(getattr(target, name)).write_bytes(Path(getattr(source, name)).read_bytes())


async def test_who_has_no_certificate_of_the_new_authority_is_out_and_others_keep_their_sessions(
    data_dir: Path, tmp_path: Path
) -> None:
    """On every member and port, also after the death of the leader, whose session token once let it in again."""
    certified = Certified(data_dir)
    old, new = certified.issuer, Issuer.create(tmp_path / "new")
    authorities = Path(certified.operator.settings.authorities)
    async with certified.cluster(settings=STEADY) as cluster, AsyncExitStack() as stack:
        leader = (await cluster.wait_for_leader()).leader_member_id
        follower = (leader + 1) % 3
        renewed_files = old.of(CallerRole.CLIENT, "renewed")
        renewed = await connect(cluster, tls=renewed_files)
        gone = await connect(cluster, tls=old.of(CallerRole.CLIENT, "gone"), new_leader_timeout_s=2.0)
        for client in (renewed, gone):
            stack.push_async_callback(client.aclose)
            await call(client)
        renewed_id = renewed.cluster_session_id
        observer = TlsStack(old.of(CallerRole.OBSERVER, "eye"))
        archive = await stack.enter_async_context(
            ArchiveClient.connect(str(endpoint_of(cluster, follower, "archive")), network=observer)
        )
        assert await archive.list_recordings()

        both = authorities.read_text() + Path(new.member(0).authorities).read_text()
        authorities.write_text(both)
        for member_id in range(3):
            await cluster.members[member_id].wait_for_event("tls.changed")
            copy_files(new.member(member_id), old.member(member_id))
        copy_files(new.of(CallerRole.CLIENT, "renewed"), renewed_files)
        await call(gone)
        authorities.write_text(Path(new.member(0).authorities).read_text())

        for member_id in range(3):
            await cluster.members[member_id].wait_for_event("audit.right_ended", caller="gone")
        with pytest.raises(ClusterError):
            await archive.list_recordings()
        await call(renewed)
        assert has_facts(await wait_ended(gone), "no leader", "signed its certificate")
        cluster.members[leader].kill()
        await cluster.wait_for_leader(min_term_id=1)
        await call(renewed)
        assert renewed.cluster_session_id == renewed_id
        assert right_ended(cluster, "eye", [follower])


class CountedPassword(PasswordCredentials):
    """Password credentials that count how often a member has asked for the proof."""

    def __init__(self, principal: str) -> None:
        super().__init__(principal, SECRET)
        self.proof_count = 0

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        self.proof_count += 1
        return super().on_challenge(encoded_challenge)


async def test_a_stolen_token_takes_no_session_over_and_its_owner_goes_on_under_the_next_leader(
    data_dir: Path, tmp_path: Path
) -> None:
    """The thief is another principal with all that the owner's process knows of its session, but not its secret."""
    path, file = tmp_path / "secrets", SecretsFile.empty(random_bytes, iterations=ITERATIONS_MIN)
    for name in ("owner", "thief"):
        file.add(name, SECRET, random_bytes)
    file.save(path)
    token = random_bytes(32)
    settings = {**STEADY, "authenticator": "password", "secrets_file": str(path)}
    async with SystemCluster(data_dir, settings=settings) as cluster, AsyncExitStack() as stack:
        leader = (await cluster.wait_for_leader()).leader_member_id
        passwords = [CountedPassword("owner"), CountedPassword("thief")]
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints),
            connect_timeout_s=patient(60.0),
            new_leader_timeout_s=patient(60.0),
            make_secret=lambda: token,
        )
        owner, thief = [await ClusterClient.connect(config=replace(config, credentials=each)) for each in passwords]
        for client in (owner, thief):
            stack.push_async_callback(client.aclose)
            await call(client)
        session_id = owner.cluster_session_id
        loot, used = owner._conductor.protocol, thief._conductor.protocol
        used.session.cluster_session_id = loot.session.cluster_session_id
        used._correlation_ids = loot._correlation_ids
        await wait_until(lambda: passwords[0].proof_count > 2, timeout_s=TIMEOUT_S, what="the followers to ask")

        cluster.members[leader].kill()
        new = await cluster.wait_for_leader(min_term_id=1)
        await call(owner)
        assert has_facts(await wait_ended(thief), "wrong session token", f"cluster_session_id={session_id}")
        await cluster.members[new.leader_member_id].wait_for_event("session.token_refused")
        await call(owner)
        asked_count = passwords[0].proof_count
        cluster.start(leader)
        await wait_until(lambda: passwords[0].proof_count > asked_count, timeout_s=TIMEOUT_S, what="the member to ask")
        cluster.members[new.leader_member_id].kill()
        await cluster.wait_for_leader(min_term_id=new.leadership_term_id + 1)
        await call(owner)
        assert (owner.cluster_session_id, owner.is_closed) == (session_id, False)
