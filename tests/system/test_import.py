"""Trimaran nodes start on what a real Aeron Cluster left: imported, replayed through a Python service, continued.

The service is the samples' application, ported (`aeron_sample`). What its state must be after the replay is counted
from the samples' truth, which real Aeron programs wrote; where the samples have a snapshot of the Java service, the
state must be the one in there.
"""

from __future__ import annotations

import gzip
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.places import AERON
from tests.system.cluster_process import TIMEOUT_S, Member, SystemCluster
from tests.system.commands import run_trimaran
from tests.system.directory_checker import DirectoryReport, RecordingView, check_directory
from tests.system.test_snapshots import take
from tests.unit.archive.streams import extract_sample
from tests.waiting import patient, wait_for
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile

pytestmark = pytest.mark.slow

ONE = "tests.system.aeron_sample:AeronSampleService"
TWO = "tests.system.aeron_sample:FirstOfTwo,tests.system.aeron_sample:SecondOfTwo"
COUNTS = ("messages", "payload_bytes", "timers", "opened", "closed", "service_messages")
STATE_LENGTH = 64
"""Of the Java service's state, without the number at its end that this port does not compute."""


def truth_of(scenario: str, node: int = 0) -> Any:  # Any: JSON
    return json.loads(gzip.decompress((AERON / f"truth-{scenario}-node{node}.json.gz").read_bytes()))


async def run_import(*arguments: str) -> list[Any]:  # Any: JSON
    """Run the command as a user would; gives what it printed."""
    printed = await run_trimaran("archive", "import", *arguments, "-o", "json")
    assert printed.exit_status == 0, printed.errors
    found: list[Any] = json.loads(printed.output)
    return found


def counts_in_log(scenario: str) -> dict[str, int]:
    """Count what the log of a sample holds, by its truth."""
    (log,) = [recording for recording in truth_of(scenario)["recordings"] if recording["kind"] == "log"]
    named = [
        (message["name"], message.get("fields", {}), message.get("payload_length", 0)) for message in log["messages"]
    ]
    sent = [(fields["clusterSessionId"], length) for name, fields, length in named if name == "SessionMessageHeader"]
    names = [name for name, _, _ in named]
    return {
        "messages": len(sent),
        "payload_bytes": sum(length for _, length in sent),
        "timers": names.count("TimerEvent"),
        "opened": names.count("SessionOpenEvent"),
        "closed": names.count("SessionCloseEvent"),
        "service_messages": sum(session_id < 0 for session_id, _ in sent),
    }


def java_states(directory: Path) -> dict[tuple[int, int], bytes]:
    """Read the states that services wrote into snapshots, by log position and service."""
    return states_in(check_directory(directory, by_aeron=True))


def states_in(report: DirectoryReport) -> dict[tuple[int, int], bytes]:
    states = {}
    for recording in report.recordings:
        if recording.stream_id == 106:
            messages = [message.encoded for message in recording.messages()]
            (log_position,) = struct.unpack_from("<q", messages[0], 16)
            end = next(i for i, message in enumerate(messages) if i and message[2:4] == messages[0][2:4])
            (entry,) = [e for e in report.snapshots if e.recording_id == recording.recording_id]
            states[log_position, entry.service_id] = messages[end + 1][:STATE_LENGTH]
    return states


def without_session_ids(log: RecordingView, end: int | None = None) -> bytes:
    """The bytes of a log, zeros where a checksum may stand in the place of a session id."""
    data = bytearray(log.data[:end])
    for frame in log.frames:
        if frame.position < log.start_position + len(data):
            data[frame.position - log.start_position + 12 : frame.position - log.start_position + 16] = bytes(4)
    return bytes(data)


async def wait_for_own_term(member: Member, last_term_id: int, *, service_count: int = 1) -> list[Any]:
    """Wait until the first term of the new cluster is delivered to each service; gives what they said there.

    That is the term after the last one of the log, unless an election failed first.
    """

    def find() -> list[Any] | None:
        told = [line for line in member.events("aeron_sample.term") if line["leadership_term_id"] > last_term_id]
        return told[:service_count] if len(told) >= service_count else None

    return await wait_for(find, timeout_s=TIMEOUT_S, what=f"a term after {last_term_id} at {member!r}")


def named_lengths(document: Any) -> dict[str, str]:
    """The lengths that an import prints: those of the log, which a member that begins empty goes on with."""
    return {name: str(value) for name, value in document["settings"].items() if name.endswith("_length_bytes")}


async def wait_for_loaded_state(member: Member) -> None:
    """Wait until the member's service was given a snapshot: one that begins empty starts twice."""
    await wait_for(
        lambda: any(line["is_loaded"] for line in member.events("aeron_sample.started")) or None,
        timeout_s=TIMEOUT_S,
        what=f"a snapshot at {member!r}",
    )


def named_settings(document: Any) -> dict[str, str]:
    """The settings that an import prints and that a cluster of the tests does not have by itself."""
    found = {name: str(value).lower() for name, value in document["settings"].items() if isinstance(value, bool)}
    return found | {"checksum_kind": document["settings"]["checksum_kind"]}


async def use(cluster: SystemCluster, payloads: list[bytes]) -> list[Any]:
    """Send requests; gives the states that came back."""
    config = ClientConfig(endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(TIMEOUT_S))
    async with await ClusterClient.connect([], config=config) as client:
        return [json.loads(await client.request(payload)) for payload in payloads]


@pytest.mark.parametrize(
    ("scenario", "service", "options", "time_unit"),
    [
        pytest.param("single-node", ONE, [], "MILLIS", id="from its snapshot"),
        pytest.param("single-node", ONE, ["--no-snapshots"], "MILLIS", id="from its beginning"),
        pytest.param("checksummed", TWO, [], "NANOS", id="two services from their snapshots"),
        pytest.param("checksummed", TWO, ["--no-snapshots"], "NANOS", id="two services from the beginning"),
        pytest.param("torn", ONE, ["--as-is"], "MILLIS", id="killed, as it is"),
        pytest.param("there-and-back", ONE, [], "MILLIS", id="begun here, gone on with by Aeron"),
    ],
)
async def test_a_single_member_goes_on_where_aeron_stopped(
    data_dir: Path, scenario: str, service: str, options: list[str], time_unit: str
) -> None:
    """Issue 5: a Trimaran node starts on a directory left by a real Aeron Cluster, replays its log and goes on."""
    source = extract_sample(scenario, data_dir / "aeron") / "node0"
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    cluster = SystemCluster(data_dir, member_count=1, service=service)
    (document,) = await run_import(str(source), "--to", str(cluster.directory_of(0)), *options)
    imported = check_directory(cluster.directory_of(0), is_imported=True)
    original = check_directory(source, by_aeron=True, stopped=scenario != "torn")
    named = named_settings(document)
    cluster.processes.settings = {**cluster.processes.settings, **named}
    is_from_snapshot = bool(document["snapshot_positions"])
    is_loaded_at_end = document["replay_position"] == document["stop_position"]

    async with cluster:
        last_term_id, service_count = document["last_leadership_term_id"], len(service.split(","))
        told = await wait_for_own_term(cluster.members[0], last_term_id, service_count=service_count)
        sizes = [0, 100, 1400, 1500, 5000, 8000]
        states = await use(cluster, [bytes(size) for size in sizes])
        position = await take(cluster)
        first_start = cluster.members[0].events("aeron_sample.started")[0]
        cluster.members[0].kill()
        again = cluster.start(0)
        started = await again.wait_for_event("aeron_sample.started")
        states += await use(cluster, [b"more"])

    assert before == {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert without_session_ids(imported.log) == without_session_ids(original.log)
    if "--as-is" in options:
        assert imported.log.data == original.log.data
    expected = counts_in_log(scenario)
    assert [{name: line[name] for name in COUNTS} for line in told] == [expected] * service_count
    assert {line["term_unit"] for line in told} == {time_unit}
    assert (first_start["time_unit"], started["time_unit"]) == (time_unit, time_unit)
    assert started["is_loaded"]
    first = states[0]["messages"]
    assert first >= expected["messages"] + 1
    assert [state["payload_bytes"] for state in states[1:]] == [
        states[0]["payload_bytes"] + sum(sizes[: i + 1]) for i in range(1, len(sizes))
    ] + [states[0]["payload_bytes"] + sum(sizes) + 4]
    report = check_directory(cluster.directory_of(0))
    assert report.log.data[: len(imported.log.data)] == imported.log.data
    assert position in {log_position for log_position, _ in states_in(report)}
    diverged = [event for member in (cluster.members[0], again) for event in member.events("service.diverged")]
    assert is_from_snapshot or not diverged, diverged
    assert is_loaded_at_end == (scenario in ("checksummed", "there-and-back") and is_from_snapshot)
    if scenario != "torn":  # the others have snapshots of the Java service: at the same place the state is the same
        mine, theirs = states_in(report), java_states(source)
        assert {place: mine[place] for place in theirs} == theirs


@pytest.mark.parametrize(
    ("scenario", "service", "last_term_id", "replay_position", "options"),
    [
        pytest.param("three-node-failover", ONE, 2, 420192, [], id="begun by Aeron"),
        pytest.param(
            "there-and-back-three",
            ONE,
            3,
            103040,
            [],
            id="begun here, gone on with by Aeron",
            marks=pytest.mark.campaign,
        ),
        pytest.param("three-crc32c", TWO, 1, 92960, [], id="CRC-32C", marks=pytest.mark.campaign),
        pytest.param("three-crc32c", TWO, 1, 0, ["--no-snapshots", "--as-is"], id="CRC-32C, from its beginning"),
    ],
)
async def test_three_members_go_on_where_aeron_stopped(
    data_dir: Path, scenario: str, service: str, last_term_id: int, replay_position: int, options: list[str]
) -> None:
    """Each member's directory is imported; a leader is killed and the members still agree, byte for byte."""
    sources = [extract_sample(scenario, data_dir / "aeron") / f"node{i}" for i in range(3)]
    cluster = SystemCluster(data_dir, service=service)
    targets = [f"--to={cluster.directory_of(i)}" for i in range(3)]
    documents = await run_import(*map(str, sources), *targets, *options)
    cluster.processes.settings = {**cluster.processes.settings, **named_settings(documents[0])}
    services = len(service.split(","))
    originals = [check_directory(source, by_aeron=True).log for source in sources]

    async with cluster:
        lines = [
            await wait_for_own_term(member, last_term_id, service_count=services) for member in cluster.members.values()
        ]
        states = await use(cluster, [b"x" * 2000] * 20)
        leader = await cluster.wait_for_leader()
        cluster.members[leader.leader_member_id].kill()
        states += await use(cluster, [b"y" * 2000] * 20)
        cluster.start(leader.leader_member_id)
        await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
        await take(cluster)

    expected = counts_in_log(scenario)
    assert [{name: line[0][name] for name in COUNTS} for line in lines] == [expected] * 3
    assert [document["replay_position"] for document in documents] == [replay_position] * 3
    assert {document["checksums_written"] for document in documents} == {"crc32c" if "crc" in scenario else "crc32"}
    assert states[-1]["payload_bytes"] == expected["payload_bytes"] + 40 * 2000
    for member_id, original in enumerate(originals):
        log = check_directory(cluster.directory_of(member_id), stopped=False).log
        assert without_session_ids(log, len(original.data)) == without_session_ids(original)


async def test_one_directory_is_seeded_to_three_members(data_dir: Path) -> None:
    """A cluster of one becomes one of three; client and snapshot see nothing of it."""
    source = extract_sample("torn", data_dir / "aeron") / "node0"
    cluster = SystemCluster(data_dir, service=ONE)
    await run_import(str(source), *[f"--to={cluster.directory_of(i)}" for i in range(3)])

    async with cluster:
        lines = [await wait_for_own_term(member, 0) for member in cluster.members.values()]
        states = await use(cluster, [b"seeded"])

    expected = counts_in_log("torn")
    assert [{name: line[0][name] for name in COUNTS} for line in lines] == [expected] * 3
    assert states[0]["messages"] == expected["messages"] + 1


@pytest.mark.parametrize("scenario", ["cluster-backup", "cluster-backup-late"])
async def test_three_members_go_on_from_what_a_cluster_backup_of_aeron_holds(data_dir: Path, scenario: str) -> None:
    """A migration with seconds of stop: the backup has followed the old cluster, and nobody has voted in it.

    The late one was begun in the second term and holds the log from the newest snapshot on. The state is the one that
    the services of the real members had in the end.
    """
    source = extract_sample(scenario, data_dir / "aeron") / "node0"
    truth = truth_of(scenario)
    cluster = SystemCluster(data_dir, service=ONE)
    documents = await run_import(str(source), *[f"--to={cluster.directory_of(i)}" for i in range(3)])

    async with cluster:
        lines = [await wait_for_own_term(member, 1) for member in cluster.members.values()]
        states = await use(cluster, [b"moved"])

    expected = {name: truth["state"][name] for name in COUNTS}
    assert {document["stop_position"] for document in documents} == {truth["position"]}
    assert [{name: line[0][name] for name in COUNTS} for line in lines] == [expected] * 3
    assert states[0]["messages"] == expected["messages"] + 1


@pytest.mark.parametrize(
    ("node", "counts"),
    [
        pytest.param(0, {"messages": 144, "payload_bytes": 44266, "timers": 61, "service_messages": 9}, id="seeded"),
        pytest.param(
            1,
            {"messages": 158, "payload_bytes": 47263, "timers": 62, "service_messages": 9},
            id="gone on with by Aeron",
        ),
    ],
)
async def test_members_go_on_from_the_state_that_a_log_was_seeded_with(
    data_dir: Path, node: int, counts: dict[str, int]
) -> None:
    """Issue 21: the entry says position 0, the snapshot's marker another; a real member counted the same state.

    The seed stays what the log begins with: a start without a newer snapshot loads it again.
    """
    source = extract_sample("seeded", data_dir / "aeron") / f"node{node}"
    cluster = SystemCluster(data_dir, service=ONE)
    documents = await run_import(str(source), *[f"--to={cluster.directory_of(i)}" for i in range(3)])
    last_term_id = documents[0]["last_leadership_term_id"]

    async with cluster:
        lines = [await wait_for_own_term(member, last_term_id) for member in cluster.members.values()]
        states = await use(cluster, [b"x" * 2000] * 5)
        leader = await cluster.wait_for_leader()
        cluster.members[leader.leader_member_id].kill()
        states += await use(cluster, [b"y" * 2000] * 5)
        again = cluster.start(leader.leader_member_id)
        started = await again.wait_for_event("aeron_sample.started")
        await cluster.wait_for_leader(min_term_id=leader.leadership_term_id + 1)
        states += await use(cluster, [b"z"])
        await take(cluster)

    assert [{name: line[0][name] for name in counts} for line in lines] == [counts] * 3
    assert [document["snapshot_positions"] for document in documents] == [[0]] * 3
    assert started["is_loaded"]
    assert states[-1]["payload_bytes"] == counts["payload_bytes"] + 20_001
    reports = [check_directory(cluster.directory_of(i)) for i in range(3)]
    newest = {states_in(report)[max(states_in(report))] for report in reports}
    assert len(newest) == 1


@pytest.mark.parametrize("node", [pytest.param(0, id="seeded"), pytest.param(1, id="gone on with by Aeron")])
async def test_a_member_that_begins_empty_gets_the_state_that_the_log_was_seeded_with(
    data_dir: Path, node: int
) -> None:
    """Issue 21: it recorded the whole log from 0 on, and replayed it without that state, which nobody noticed."""
    source = extract_sample("seeded", data_dir / "aeron") / f"node{node}"
    cluster = SystemCluster(data_dir, service=ONE)
    document, _ = await run_import(str(source), *[f"--to={cluster.directory_of(i)}" for i in range(2)])
    cluster.processes.settings = {**cluster.processes.settings, **named_lengths(document)}

    async with cluster:  # member 2 has nothing
        await cluster.wait_for_leader()
        await use(cluster, [b"x" * 2000] * 5)
        await wait_for_loaded_state(cluster.members[2])
        wiped = (await cluster.wait_for_leader()).leader_member_id
        cluster.members[wiped].kill()
        shutil.rmtree(cluster.directory_of(wiped))
        await use(cluster, [b"y" * 2000] * 5)
        await wait_for_loaded_state(cluster.start(wiped))
        (state,) = await use(cluster, [b"z"])
        await take(cluster)

    reports = [check_directory(cluster.directory_of(i)) for i in range(3)]
    newest = [states_in(report)[max(states_in(report))] for report in reports]
    assert newest == [newest[0]] * 3
    assert state["payload_bytes"] == {0: 44266, 1: 47263}[node] + 20_001


async def test_a_seeded_member_takes_no_part_in_a_cluster_that_began_without_it(data_dir: Path) -> None:
    """It came too late: the others had begun a log with nothing before it, and to replay that gave it another state."""
    source = extract_sample("seeded", data_dir / "aeron") / "node0"
    cluster = SystemCluster(data_dir, service=ONE, start=[0, 1])
    (document,) = await run_import(str(source), f"--to={cluster.directory_of(2)}")
    cluster.processes.settings = {**cluster.processes.settings, **named_lengths(document)}

    async with cluster:
        await cluster.wait_for_leader()
        seeded = cluster.start(2)
        differed = await seeded.wait_for_event("member.settings_differed")
        seeded.kill()
        del cluster.members[2]  # its log is none of this cluster's

    assert has_facts(differed["reason"], "snapshot here", "member")
    assert seeded.events("aeron_sample.term") == []


async def test_a_member_started_on_a_seeded_directory_begins_a_new_log(data_dir: Path) -> None:
    """Without an import: the log before stays in the archive, and is not what the member goes on with."""
    source = extract_sample("seeded", data_dir / "aeron") / "node0"
    cluster = SystemCluster(data_dir, member_count=1, service=ONE)
    shutil.copytree(source, cluster.directory_of(0))
    cluster.processes.settings = {**cluster.processes.settings, "checksums": "true"}

    async with cluster:
        (line,) = await wait_for_own_term(cluster.members[0], 1)
        cluster.members[0].kill()
        again = cluster.start(0)
        (line_again,) = await wait_for_own_term(again, line["leadership_term_id"])
        (state,) = await use(cluster, [b"x"])

    assert (line["messages"], line["payload_bytes"]) == (144, 44266)
    assert (line_again["messages"], line_again["payload_bytes"]) == (144, 44266)
    assert state["messages"] == 145
    assert (cluster.directory_of(0) / "archive" / "0-0.rec").read_bytes() == (
        source / "archive" / "0-0.rec"
    ).read_bytes()


@pytest.mark.damages_directories
async def test_a_member_does_not_start_without_the_state_that_its_log_was_seeded_with(data_dir: Path) -> None:
    """An operator who marks it invalid is told; before, the service began with nothing."""
    source = extract_sample("seeded", data_dir / "aeron") / "node1"
    cluster = SystemCluster(data_dir, member_count=1, service=ONE)
    await run_import(str(source), f"--to={cluster.directory_of(0)}")
    file = RecordingLogFile.open(cluster.directory_of(0) / "cluster")
    file.recording_log.invalidate_latest_snapshot()
    file.persist()
    file.close()

    member = cluster.start(0)
    await member.wait_exit()

    assert "no valid snapshot" in member.process.log_path.read_text()
