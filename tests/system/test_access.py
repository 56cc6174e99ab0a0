"""Who may operate a cluster of real processes: its user on the machine, operators by certificate, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.system.forked_command import commands_on_path
from tests.system.test_operations import ordered
from tests.system.test_tls import Certified, endpoint_of
from tests.waiting import patient, wait_until, within
from trimaran.archive import ArchiveClient, ArchiveError
from trimaran.client import AdminRefusedError, ClientConfig, ClusterClient
from trimaran.cluster.cli.shared.setting_flags import load_network_from_flags
from trimaran.cluster.documents.operations import Operation, OperationRequest, run_operation
from trimaran.cluster.documents.query import Outcome, StatusQueryError, query_status
from trimaran.service_api import ClusterError, ConfigurationError
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.cluster_id import parse_cluster_id
from trimaran.service_api.documents.document import Refusal, read_document
from trimaran.service_api.net import local_socket
from trimaran.service_api.net.local_socket import CONTROL_SOCKET_NAME, connect_locally, runtime_directories
from trimaran.service_api.net.transport import SOCKETS, NetworkStack, Purpose, SocketStack
from trimaran.service_api.tls import TlsSettings, TlsStack
from trimaran.service_api.types import CONSENSUS_STREAM_ID, LOG_STREAM_ID, OPERATION_STREAM_ID, REFUSAL_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.stream import FrameParser

pytestmark = pytest.mark.slow

REMOTE: Final = SocketStack(uses_control_sockets=False)
"""Dials as a process on another machine does."""
NOBODY: Final = 65534


def alone(directory: Path, **settings: str) -> SystemCluster:
    return SystemCluster(directory, member_count=1, settings={**STEADY, **settings})


async def steps_of(cluster: SystemCluster, operation: Operation, network: NetworkStack) -> list[str]:
    consensus = str(endpoint_of(cluster, 0, "consensus"))
    return [str(step.step) async for step in run_operation(consensus, operation, patient(TIMEOUT_S), network=network)]


async def refusal_of(cluster: SystemCluster, operation: Operation, network: NetworkStack) -> str:
    """Ask for what is refused to the caller; gives what it is told."""
    with pytest.raises(StatusQueryError) as caught:
        await steps_of(cluster, operation, network)
    assert caught.value.outcome is Outcome.NOT_ALLOWED
    return str(caught.value)


def audit(cluster: SystemCluster, name: str) -> list[dict[str, Any]]:  # Any: JSON
    return cluster.members[0].events(f"audit.action_{name}")


@pytest.fixture
def secrets_file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets"
    command = [str(commands_on_path() / "trimaran"), "secrets", "add", str(path), "someone"]
    subprocess.run(command, input="a long enough password\n" * 2, text=True, check=True, capture_output=True)
    return path


async def test_a_stranger_cannot_stop_a_node_nor_operate_it(data_dir: Path, secrets_file: Path) -> None:
    """`--authenticator password --authorisation deny-all` did not keep anybody from it who reached the port."""
    settings = {"authenticator": "password", "secrets_file": str(secrets_file), "authorisation": "deny-all"}
    async with alone(data_dir, **settings) as cluster:
        await cluster.wait_for_leader()
        request = OperationRequest(operation=Operation.ABORT).model_dump_json().encode()

        reader, writer = await SOCKETS.dial_streams(Purpose.CONSENSUS, endpoint_of(cluster, 0, "consensus"))
        writer.write(SetupFrame(session_id=-1, stream_id=OPERATION_STREAM_ID).encode())
        writer.write(encode_frame(request, stream_id=OPERATION_STREAM_ID))
        async with within(TIMEOUT_S):
            (frame,) = FrameParser().feed(await reader.read())
        writer.close()
        assert frame.stream_id == REFUSAL_STREAM_ID
        refusal = read_document(Refusal, frame.payload)
        assert has_facts(refusal.refused, "abort", "operator or member", "stranger")
        for operation in Operation:
            assert has_facts(await refusal_of(cluster, operation, REMOTE), f"{operation}", "role operator")

        status = await query_status(str(endpoint_of(cluster, 0, "consensus")), patient(TIMEOUT_S), network=REMOTE)
        assert (status.role, status.pid) == ("LEADER", cluster.members[0].process.pid)
        refused = audit(cluster, "refused")
        assert {line["action"] for line in refused} == {str(operation) for operation in Operation}
        assert {(line["role"], line["address"], line["outcome"]) for line in refused} == {
            ("stranger", "127.0.0.1", "refused")
        }
        assert audit(cluster, "begun") == []


async def test_the_user_of_a_member_operates_it_without_settings_and_the_log_says_so(data_dir: Path) -> None:
    """Also where the directory's path is longer than that of a socket, and after a member that was killed."""
    directory = data_dir.joinpath(*["d" * 60] * 3)
    async with alone(directory) as cluster:
        await cluster.wait_for_leader()
        cluster.members[0].kill()
        assert (cluster.directory_of(0) / CONTROL_SOCKET_NAME).is_socket()
        assert len(str(cluster.directory_of(0))) > 108
        cluster.start(0)
        await cluster.wait_for_leader(min_term_id=1)

        report = await ordered(cluster, "suspend")
        await ordered(cluster, "resume")

        caller = {"role": "operator", "proof": "local socket", "address": "local", "caller": "local"}
        begun, ended = audit(cluster, "begun"), audit(cluster, "ended")
        assert [line["action"] for line in begun] == ["suspend", "resume"]
        assert [(line["action"], line["outcome"]) for line in ended] == [("suspend", "done"), ("resume", "done")]
        assert ended[0]["log_position"] == report["log_position"]
        assert all(caller.items() <= line.items() for line in begun + ended)
    assert not os.path.lexists(directory / "0" / CONTROL_SOCKET_NAME)


async def test_each_of_two_clusters_on_a_machine_is_operated_by_its_own_endpoints(data_dir: Path) -> None:
    async with alone(data_dir / "one") as one, alone(data_dir / "two") as two:
        await one.wait_for_leader()
        await two.wait_for_leader()

        await ordered(one, "suspend")

        states = [
            (await query_status(str(endpoint_of(cluster, 0, "consensus")), patient(TIMEOUT_S))).module_state
            for cluster in (one, two)
        ]
        assert states == ["SUSPENDED", "ACTIVE"]
        assert audit(two, "begun") == []
        await ordered(one, "resume")


async def test_member_that_lost_its_links_or_its_socket_can_be_operated_again(data_dir: Path) -> None:
    """A cleaner of old files removes them; another member that does not see the directory did, too."""
    async with alone(data_dir) as cluster:
        await cluster.wait_for_leader()
        consensus = endpoint_of(cluster, 0, "consensus")

        def is_found() -> bool:
            sock = connect_locally(consensus)
            if sock is not None:
                sock.close()
            return sock is not None

        assert is_found()
        for place in runtime_directories():
            for link in place.glob(f"*-{consensus}"):
                link.unlink()
        await wait_until(is_found, timeout_s=TIMEOUT_S, what="the link")
        (cluster.directory_of(0) / CONTROL_SOCKET_NAME).unlink()
        await wait_until(is_found, timeout_s=TIMEOUT_S, what="the socket")

        await ordered(cluster, "suspend")
        await ordered(cluster, "resume")
        assert len(cluster.members[0].events("control_socket.linked_again")) == 1
        assert len(cluster.members[0].events("control_socket.removed")) == 1


async def test_directory_of_a_member_leads_to_its_socket_where_no_link_does(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that sees the directory, and not the runtime directories of the member."""
    async with alone(data_dir) as cluster:
        await cluster.wait_for_leader()
        consensus = endpoint_of(cluster, 0, "consensus")
        settings = {"members": f"0={cluster.endpoints[0]}", "directory": str(cluster.directory_of(0))}
        monkeypatch.setattr(local_socket, "runtime_directories", list)

        named = load_network_from_flags(settings)
        assert await steps_of(cluster, Operation.SUSPEND, named) == ["appended", "committed", "done"]
        told = await refusal_of(cluster, Operation.RESUME, SOCKETS)
        assert has_facts(told, f"{consensus}", "--directory", "TCP")
        with pytest.raises(ConfigurationError, match="--directory="):
            load_network_from_flags({**settings, "directory": str(data_dir / "nowhere")})
        await steps_of(cluster, Operation.RESUME, named)


async def test_another_user_of_the_machine_does_not_operate_a_member(data_dir: Path) -> None:
    """Where the tests are not root they cannot become another user: there the caller is told apart by its port."""
    async with alone(data_dir) as cluster:
        await cluster.wait_for_leader()
        code = (
            "import asyncio, sys; from trimaran.cluster.documents import operations as o\n"
            "async def ask():\n"
            "    return [str(s.step) async for s in o.run_operation(sys.argv[1], o.Operation.ABORT, 30.0)]\n"
            "import os\n"
            "if os.geteuid() == 0:\n"
            f"    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
            "else:\n"
            "    import trimaran.service_api.net.transport as t; t.connect_locally = lambda endpoint, directory: None\n"
            "print(asyncio.run(ask()))\n"
        )
        command = [sys.executable, "-c", code, str(endpoint_of(cluster, 0, "consensus"))]
        found = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=patient(TIMEOUT_S)
        )

        assert found.returncode != 0
        assert has_facts(found.stderr, "abort", "operator or member", "stranger")
        assert has_facts(found.stderr, "TCP", "control socket")
        cluster.members[0].process.check_running()


async def test_with_tls_operators_operate_and_clients_and_observers_do_not(data_dir: Path) -> None:
    certified = Certified(data_dir)
    issuer = certified.issuer
    refused = {
        "client app (by certificate)": TlsStack(issuer.of(CallerRole.CLIENT, "app")),
        "observer eye (by certificate)": TlsStack(issuer.of(CallerRole.OBSERVER, "eye")),
    }
    async with certified.cluster(member_count=1, settings=STEADY) as cluster:
        await cluster.wait_for_leader()
        for who, network in refused.items():
            for operation in Operation:
                assert f"is {who}" in await refusal_of(cluster, operation, network)

        assert (await steps_of(cluster, Operation.SUSPEND, certified.operator))[-1] == "done"
        without_certificate = TlsStack(
            TlsSettings(authorities=certified.operator.settings.authorities), cluster_id=issuer.cluster_id
        )
        assert (await steps_of(cluster, Operation.RESUME, without_certificate))[-1] == "done"

        callers = [(line["action"], line["caller"], line["proof"]) for line in audit(cluster, "ended")]
        assert callers == [("suspend", "ops", "certificate"), ("resume", "local", "local socket")]


async def test_a_spiffe_path_that_a_workload_chose_is_no_operator(data_dir: Path) -> None:
    """Docs/security.md said that any path before `/trimaran/` would do."""
    certified = Certified(data_dir)
    shown = certified.issuer.of_spiffe(CallerRole.OPERATOR, "eve", prefix="spiffe://prod.example/ns/guest")
    eve = TlsStack(replace(shown, verify="name"), uses_control_sockets=False)
    pinned = {"tls_spiffe_prefix": "spiffe://prod.example/ns/trimaran"}
    async with certified.cluster(member_count=1, settings={**STEADY, **pinned}) as cluster:
        await cluster.wait_for_leader()

        assert has_facts(await refusal_of(cluster, Operation.ABORT, eve), "operator or member", "stranger")

        assert [line["action"] for line in audit(cluster, "refused")] == ["abort"]


async def test_a_client_of_an_operators_certificate_has_snapshots_taken_and_others_do_not(data_dir: Path) -> None:
    """Under `authorisation=default`, which looked at the principal alone: nobody could."""
    certified = Certified(data_dir)
    issuer = certified.issuer
    callers = {
        "ops": certified.operator.settings,
        "app": issuer.of(CallerRole.CLIENT, "app"),
        "eye": issuer.of(CallerRole.OBSERVER, "eye"),
    }
    async with certified.cluster(member_count=1, settings=STEADY) as cluster:
        await cluster.wait_for_leader()
        outcomes: dict[str, str] = {}
        for name, tls in callers.items():
            config = ClientConfig(endpoints=(str(endpoint_of(cluster, 0, "ingress")),), tls=tls)
            async with ClusterClient.connect(config=config) as client:
                try:
                    outcomes[name] = f"done at {await client.take_snapshot(timeout_s=patient(TIMEOUT_S))}"
                except AdminRefusedError as error:
                    outcomes[name] = str(error)

        begun, ended, refused = (audit(cluster, name) for name in ("begun", "ended", "refused"))
        assert outcomes["ops"] == f"done at {ended[0]['log_position']}"
        assert has_facts(outcomes["app"], "snapshot", "operator or member", "client app")
        assert has_facts(outcomes["eye"], "snapshot", "operator or member", "observer eye")
        assert [(line["caller"], line["action"], line["endpoint"]) for line in begun] == [
            ("ops", "snapshot", "ingress")
        ]
        assert [(line["caller"], line["outcome"]) for line in ended] == [("ops", "done")]
        assert [(line["caller"], line["role"], line["address"]) for line in refused] == [
            ("app", "client", "127.0.0.1"),
            ("eye", "observer", "127.0.0.1"),
        ]


async def test_refused_member_links_and_archive_changes_are_in_the_audit_trail(data_dir: Path) -> None:
    """Who tried to speak as a member, or to purge a member's log, left a line of the connection alone."""
    certified = Certified(data_dir)
    client = TlsStack(certified.issuer.of(CallerRole.CLIENT, "app"))
    async with certified.cluster(member_count=1, settings=STEADY) as cluster:
        await cluster.wait_for_leader()
        for purpose, stream_id, endpoint in (
            (Purpose.CONSENSUS, CONSENSUS_STREAM_ID, "consensus"),
            (Purpose.LOG, LOG_STREAM_ID, "log"),
        ):
            reader, writer = await client.dial_streams(purpose, endpoint_of(cluster, 0, endpoint))
            writer.write(SetupFrame(session_id=-1, stream_id=stream_id, member_id=1).encode())
            async with within(TIMEOUT_S):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
        archive = str(endpoint_of(cluster, 0, "archive"))
        async with ArchiveClient.connect(archive, tls=certified.operator.settings) as operator:
            with pytest.raises(ArchiveError):
                await operator.purge_recording(0)

        told = [(line["action"], line["caller"], line["endpoint"]) for line in audit(cluster, "refused")]
        assert told[0] == ("member link", "app", "consensus")
        assert told[-1] == ("archive writing", "ops", "archive")
        assert {line["address"] for line in audit(cluster, "refused")} == {"127.0.0.1"}


async def test_every_port_refuses_by_name_who_means_another_cluster_also_in_plain_text(data_dir: Path) -> None:
    """Docs/security.md: a member of another cluster says which one it is."""
    own = "3f9a0c12d45e77b1"
    async with alone(data_dir, cluster_id=own) as cluster:
        await cluster.wait_for_leader()
        consensus, ingress, archive = (
            str(endpoint_of(cluster, 0, name)) for name in ("consensus", "ingress", "archive")
        )
        other = f"{int(own, 16) ^ 1:016x}"
        said = f"cluster_id={own} expected={other}"

        async def ask(cluster_id: str) -> None:
            await query_status(consensus, patient(TIMEOUT_S), cluster_id=parse_cluster_id(cluster_id), network=REMOTE)

        async def connect(cluster_id: str) -> None:
            config = ClientConfig(endpoints=(ingress,), cluster_id=cluster_id)
            async with ClusterClient.connect(config=config):
                pass

        async def read(cluster_id: str) -> None:
            async with ArchiveClient.connect(archive, cluster_id=cluster_id) as client:
                await client.list_recordings()

        for reach in (ask, connect, read):
            await reach(own)
            with pytest.raises(ClusterError, match=said):
                await reach(other)

        refused = [(line["endpoint"], line["kind"]) for line in cluster.members[0].events("connection.refused")]
        assert refused == [("consensus", "other_cluster"), ("ingress", "other_cluster")]
