"""Three real processes with TLS: everything works with it, and nobody gets in who cannot show who it is."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.system.cluster_process import SERVICE, STEADY, TIMEOUT_S, SystemCluster, election_count
from tests.system.fork_server import ForkedGroup
from tests.tls import OTHER_CLUSTER, Issuer
from tests.waiting import ask_until, patient, wait_for, within
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.spark.streaming.stream_status import CommitAsker
from trimaran.benchmarks.rig.processes import ClusterProcesses, find_base_ports
from trimaran.cluster.cli.status import status
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.cluster.documents.query import query_status
from trimaran.cluster.settings.config import parse_members
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import SOCKETS, NetworkStack, Purpose
from trimaran.service_api.tls import TlsSettings, TlsStack
from trimaran.service_api.types import CONSENSUS_STREAM_ID, LOG_STREAM_ID
from trimaran.service_api.wire.link_frames import SetupFrame

pytestmark = pytest.mark.slow


class Certified:
    """An issuer, its certificates for three members, and a cluster that uses them."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.certificates = data_dir.parent / f"{data_dir.name}-certs"
        self.issuer = Issuer.create(self.certificates)
        for member_id in range(3):
            self.issuer.member(member_id)
        self.operator = TlsStack(self.issuer.of(CallerRole.OPERATOR, "ops"))

    def cluster(self, **how: Any) -> SystemCluster:  # Any: arguments of SystemCluster
        settings: Mapping[str, str] = how.pop("settings", {})
        tls = {
            "tls_authorities": str(self.certificates / "authorities.pem"),
            "tls_certificate": str(self.certificates / "member-{member_id}.pem"),
            "tls_key": str(self.certificates / "member-{member_id}.key"),
        }
        return SystemCluster(self.data_dir, settings={**tls, **settings}, network=self.operator, **how)


def endpoint_of(cluster: SystemCluster, member_id: int, name: str) -> Endpoint:
    member = parse_members(f"0=127.0.0.1:{cluster.processes.base_ports[member_id]}")[0]
    return Endpoint.parse(getattr(member, name))


async def ask_status(cluster: SystemCluster, member_id: int, network: NetworkStack) -> MemberStatus:
    return await query_status(str(endpoint_of(cluster, member_id, "consensus")), patient(TIMEOUT_S), network=network)


async def test_a_cluster_with_tls_serves_through_the_death_of_its_leader_and_the_return(data_dir: Path) -> None:
    """The member that comes back replays, catches up and joins the live log, all over TLS."""
    certified = Certified(data_dir)
    async with certified.cluster() as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)
        await cluster.kill_and_serve(requester, old.leader_member_id)
        await cluster.start(old.leader_member_id).wait_for_event("election.closed")
        await requester.wait_answered(requester.submitted_count + 300)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        found = await ask_status(cluster, old.leader_member_id, certified.operator)
        assert found.cluster_id == f"{certified.issuer.cluster_id:016x}"
        assert found.certificate is not None
        assert 19 < found.certificate.expires_in_s / 86_400 < 20
    cluster.check_answers(requester)


async def test_snapshots_are_shipped_and_archives_read_and_spark_asks_over_tls(data_dir: Path) -> None:
    certified = Certified(data_dir)
    observer = TlsStack(certified.issuer.of(CallerRole.OBSERVER, "spark"))
    settings = {**STEADY, "keep_all": "false", "keep_snapshots": "1", "keep_log_bytes": "0"}
    async with certified.cluster(settings=settings) as cluster, cluster.requester() as requester:
        leader = (await cluster.wait_for_leader()).leader_member_id
        lost = next(i for i in range(3) if i != leader)
        requester.submit_many(1_000)
        await requester.wait_answered()
        cluster.members[lost].kill()
        shutil.rmtree(cluster.directory_of(lost))
        requester.submit_many(1_000)
        await requester.wait_answered()
        consensus = str(endpoint_of(cluster, leader, "consensus"))
        steps = [
            step
            async for step in run_operation(
                consensus, Operation.SNAPSHOT, patient(TIMEOUT_S), network=certified.operator
            )
        ]
        assert steps[-1].step == "done"

        cluster.start(lost)
        await cluster.members[lost].wait_for_event("snapshot.installed")
        await cluster.members[lost].wait_for_event("election.closed")
        await cluster.wait_for_equal_states()

        async with ArchiveClient.connect(str(endpoint_of(cluster, leader, "archive")), network=observer) as archive:
            assert await archive.list_recordings()
        asker = CommitAsker(
            [endpoint_of(cluster, i, "consensus") for i in range(3)], timeout_s=patient(20), network=observer
        )
        claims = await asyncio.to_thread(asker.ask)
        assert claims[0].position == (await ask_status(cluster, leader, observer)).commit_position


async def test_nobody_speaks_as_a_member_who_has_not_shown_that_it_is_one(data_dir: Path, tmp_path: Path) -> None:
    """Each tries the link endpoints of a member while a client is served; nothing of the cluster is disturbed."""
    certified = Certified(data_dir)
    issuer = certified.issuer
    authorities = certified.operator.settings.authorities
    others = Issuer.create(tmp_path / "others")
    (tmp_path / "cluster").mkdir()
    other_cluster = Issuer(replace(issuer.authority, directory=tmp_path / "cluster"), OTHER_CLUSTER).member(1)
    impostors: tuple[Impostor, ...] = (
        Impostor("plain", 0, SOCKETS, "the other side does not speak TLS"),
        Impostor("client", 0, TlsStack(issuer.of(CallerRole.CLIENT, "app")), "client app"),
        Impostor("operator", 0, certified.operator, "operator ops"),
        Impostor("member 2 as 1", 0, TlsStack(issuer.member(2)), "member 2"),
        Impostor(
            "anonymous",
            0,
            TlsStack(TlsSettings(authorities=authorities), cluster_id=issuer.cluster_id),
            "no certificate",
        ),
        Impostor(
            "other cluster",
            0,
            TlsStack(replace(other_cluster, authorities=authorities, verify="name")),
            "another cluster: cluster_id=0000000000000001 expected=3f9a0c12d45e77b1",
        ),
        Impostor(  # of a member of its own, which logs the first failed handshake, and counts the others
            "other authority",
            1,
            TlsStack(replace(others.member(1), authorities=authorities)),
            "certificate of the other side is refused",
        ),
    )
    async with certified.cluster(settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(100)
        elections = election_count(cluster.running)
        for impostor in impostors:
            await impostor.expect_refused(cluster)
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.stop_load()
        assert election_count(cluster.running) == elections
    cluster.check_answers(requester)


@dataclass(slots=True)
class Impostor:
    """Claims to be member 1, and what the member that it tries says of it."""

    who: str
    target: int
    network: NetworkStack
    shown: str

    async def expect_refused(self, cluster: SystemCluster) -> None:
        member = cluster.members[self.target]
        for name, purpose, stream_id in (
            ("log", Purpose.LOG, LOG_STREAM_ID),
            ("catchup", Purpose.CATCHUP, LOG_STREAM_ID),
            ("consensus", Purpose.CONSENSUS, CONSENSUS_STREAM_ID),
        ):
            setup = SetupFrame(session_id=1, stream_id=stream_id, member_id=1).encode()
            answer = await _say(self.network, purpose, endpoint_of(cluster, self.target, name), setup)
            assert answer == b"", (self.who, name, answer)
        found = await wait_for(
            lambda: next((line for line in _refusals(member) if self.shown in line), None),
            timeout_s=TIMEOUT_S,
            what=lambda: f"a refusal of {self.who} that names {self.shown!r}: {_refusals(member)}",
        )
        assert "127.0.0.1" in found


def _refusals(member: Any) -> list[str]:  # Any: a Member
    names = ("connection.refused", "consensus_link.refused", "log_image.refused")
    return [json.dumps(event) for name in names for event in member.events(name)]


async def _say(network: NetworkStack, purpose: Purpose, endpoint: Endpoint, setup: bytes) -> bytes:
    """Return what is answered to a setup frame before the connection is over."""
    async with within(20):
        try:
            reader, writer = await network.dial_streams(purpose, endpoint)
        except OSError:
            return b""
        try:
            writer.write(setup)
            return await reader.read()
        except OSError:
            return b""
        finally:
            writer.transport.abort()


async def test_a_member_with_an_expired_certificate_does_not_start_and_names_the_file(data_dir: Path) -> None:
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        late_id = (leader_id + 1) % 3
        cluster.members[late_id].terminate()
        assert await cluster.members[late_id].wait_exit() == 0
        certified.issuer.member(late_id, begins_in=timedelta(days=-3), lifetime=timedelta(days=1))
        late = cluster.start(late_id)
        assert await late.wait_exit() == 2
        tail = late.process.log_tail()
        assert "has expired" in tail
        assert f"member-{late_id}.pem" in tail

        certified.issuer.member(late_id)
        await cluster.start(late_id).wait_for_event("election.closed")


async def test_certificates_are_changed_under_load_and_nothing_is_dropped(data_dir: Path) -> None:
    """Every member's, twice; then new connections show the new ones, and no election has been held."""
    certified = Certified(data_dir)
    async with certified.cluster(settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(200)
        elections = election_count(cluster.running)
        for round_number in (1, 2):
            for member_id, member in cluster.members.items():
                certified.issuer.member(member_id)
                await member.wait_for_event("tls.changed", count=round_number)
            await requester.wait_answered(requester.submitted_count + 200)
        (certified.certificates / "member-0.pem").write_text("broken")
        refused = await cluster.members[0].wait_for_event("tls.refused")
        assert "stays in use" in refused["reason"]
        await requester.wait_answered(requester.submitted_count + 200)
        async with cluster.requester() as second:
            second.submit_many(10)
            await second.wait_answered()
        await requester.stop_load()

        assert election_count(cluster.running) == elections
        assert requester.resent_count == 0
        certified.issuer.member(0)
        await cluster.members[0].wait_for_event("tls.changed", count=3)
    cluster.check_answers(requester)


async def test_metrics_are_scraped_over_tls(data_dir: Path) -> None:
    certified = Certified(data_dir)
    observer = TlsStack(certified.issuer.of(CallerRole.OBSERVER, "prometheus"))
    async with certified.cluster(settings={**STEADY, "metrics_endpoint": "127.0.0.1:0"}) as cluster:
        await cluster.wait_for_leader()
        listening = await cluster.members[0].wait_for_event("metrics.listening")
        reader, writer = await observer.dial_streams(Purpose.METRICS, Endpoint.parse(listening["endpoint"]))
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        page = (await reader.read()).decode()
        writer.transport.abort()

        days = {
            line.split()[0]: float(line.split()[1]) / 86_400
            for line in page.splitlines()
            if line.startswith("trimaran_certificate_expires_seconds")
        }
        assert 19 < days["trimaran_certificate_expires_seconds"] < 20


async def test_commands_ask_with_a_certificate(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certified = Certified(data_dir)
    files = certified.operator.settings
    async with certified.cluster() as cluster:
        await cluster.wait_for_leader()
        members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
        for name in ("authorities", "certificate", "key"):
            monkeypatch.setenv(f"TRIMARAN_TLS_{name.upper()}", getattr(files, name))

        def run() -> str:
            import typer

            app = typer.Typer()
            app.command()(status)
            return CliRunner().invoke(app, ["--members", members, "-o", "json"]).output

        async def find() -> dict[str, Any] | None:
            report = json.loads(await asyncio.to_thread(run))
            return report if report["has_quorum"] else None

        report = await ask_until(find, timeout_s=TIMEOUT_S, what="a quorum")
        assert report["cluster_id"] == f"{certified.issuer.cluster_id:016x}"


async def test_a_node_that_other_machines_reach_does_not_start_in_plain_text_unless_told(data_dir: Path) -> None:
    (base_port,) = find_base_ports(1)
    settings = {"members": f"0=0.0.0.0:{base_port}"}
    with ForkedGroup() as group:
        processes = ClusterProcesses(data_dir, SERVICE, member_count=1, settings=settings, group=group)
        data_dir.mkdir(parents=True)
        refused = processes.start_member(0)
        assert await asyncio.to_thread(refused.popen.wait, patient(TIMEOUT_S)) == 2
        assert "no TLS" in refused.log_tail()

        processes.settings = {**settings, "insecure_plaintext": "true"}
        told = processes.start_member(0)
        await wait_for(
            lambda: {"node.plaintext", "election.closed"} <= {*told.log_path.read_text().split('"')} or None,
            timeout_s=TIMEOUT_S,
            what=lambda: told.log_tail(),
        )
        told.check_running()
