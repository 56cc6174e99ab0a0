"""`trimaran up`: what its directory remembers, what becomes of a member that ends, what is shown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.unit.cluster.cli.answers import answered, failed, member_status
from tests.waiting import within
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.tool.output import OutputFormat
from trimaran.cluster.cli.certs.development import CERTIFICATES_NAME, read_cluster_id
from trimaran.cluster.cli.shared.cluster_report import make_report
from trimaran.cluster.cli.shared.local_nodes import LocalNodes, LocalNodesError, NodeProcess
from trimaran.cluster.cli.up.place import CONFIG_FILE_NAME, Place, open_place
from trimaran.cluster.cli.up.supervisor import Supervisor
from trimaran.cluster.cli.up.up import OWN_SETTINGS, choose_settings, up
from trimaran.cluster.cli.up.up_view import UpView
from trimaran.cluster.runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, ClusterIdFile
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import flag_arguments, load_members
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.errors import ClusterError, ConfigurationError
from trimaran.service_api.ready_made import READY_MADE

DEADLINE_S = 30.0
NO_FLAGS = dict.fromkeys(NodeConfig.model_fields) | {"config_file": None}
PLACE = Place(Path("/data"), ("127.0.0.1:9000", "127.0.0.1:9010"), is_new=True)


def test_a_new_place_names_its_members_for_other_commands(tmp_path: Path) -> None:
    place = open_place(tmp_path / "new", member_count=5, base_port=None)

    members = load_members(tmp_path / "new" / CONFIG_FILE_NAME, {})
    assert [member.ingress for member in members] == list(place.endpoints)
    assert (len(place.endpoints), place.is_new) == (5, True)


def test_a_place_that_is_there_is_the_same_cluster(tmp_path: Path) -> None:
    first = open_place(tmp_path, member_count=None, base_port=None)

    again = open_place(tmp_path, member_count=3, base_port=None)

    assert (again.endpoints, again.is_new) == (first.endpoints, False)


@pytest.mark.parametrize("member_id", [0, 2])
def test_certificates_that_come_later_name_the_cluster_that_there_is(tmp_path: Path, member_id: int) -> None:
    open_place(tmp_path / "up", member_count=3, base_port=None)
    directory = tmp_path / "up" / f"node-{member_id}" / "cluster"
    directory.mkdir(parents=True)
    ClusterIdFile.open(directory, OsFileSystem()).store(ClusterId(0x3F9A0C12D45E77B1))

    open_place(tmp_path / "up", member_count=None, base_port=None, with_tls=True)

    assert read_cluster_id(tmp_path / "up" / CERTIFICATES_NAME) == 0x3F9A0C12D45E77B1


def test_a_damaged_cluster_id_is_not_made_certificates_for(tmp_path: Path) -> None:
    """The member would not start with it either."""
    open_place(tmp_path / "up", member_count=3, base_port=None)
    directory = tmp_path / "up" / "node-0" / "cluster"
    directory.mkdir(parents=True)
    ClusterIdFile.open(directory, OsFileSystem()).store(ClusterId(0x3F9A0C12D45E77B1))
    file = directory / CLUSTER_ID_FILE_NAME
    file.write_text(file.read_text().replace("3f9a", "3f9b"))

    with pytest.raises(ClusterError, match=r"cluster id: path=.*node-0.cluster.cluster-id"):
        open_place(tmp_path / "up", member_count=None, base_port=None, with_tls=True)

    assert not (tmp_path / "up" / CERTIFICATES_NAME).exists()


def test_members_get_the_settings_of_flags_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / CONFIG_FILE_NAME
    file.write_text('members = "0=127.0.0.1:9000"\nsession_limit = 5\nchecksums = false\n')
    monkeypatch.setenv("TRIMARAN_SESSION_LIMIT", "7")
    monkeypatch.setenv("TRIMARAN_DIRECTORY", "/not/of/up")
    flags = NO_FLAGS | {
        "service": "registers:Registers,access_quota:AccessQuota",
        "mtu_length_bytes": "1408",
        "term_length_bytes": "64MiB",
    }

    chosen = choose_settings(flags, file)
    small = choose_settings(NO_FLAGS | {"term_length_bytes": "64KiB", "mtu_length_bytes": "1408"}, tmp_path / "none")
    arguments = [part for name, value in chosen.items() for part in flag_arguments(name, value)]

    assert chosen["service"] == "registers:Registers,access_quota:AccessQuota"
    assert (chosen["session_limit"], chosen["mtu_length_bytes"], chosen["checksums"]) == ("7", "1408", "false")
    assert (chosen["term_length_bytes"], chosen["segment_length_bytes"]) == ("64MiB", "64MiB")
    assert (small["term_length_bytes"], small["segment_length_bytes"]) == ("64KiB", "16MiB")
    assert not {"members", "member_id", "directory", "log_format"} & set(chosen)
    assert "--no-checksums" in arguments
    assert arguments[arguments.index("--session-limit") + 1] == "7"


@pytest.mark.parametrize("names", [["kv"], [*READY_MADE]])
def test_services_that_are_ready_to_run_have_the_settings_of_production(names: list[str], tmp_path: Path) -> None:
    """But for ids, endpoints and directories, which `up` chooses, nothing differs from the defaults of a node."""
    service = ",".join(READY_MADE[name].target for name in names)

    chosen = choose_settings(NO_FLAGS | {"service": service}, tmp_path / "none")
    mixed = choose_settings(NO_FLAGS | {"service": f"{service},access_quota:AccessQuota"}, tmp_path / "none")

    assert chosen == {"service": service, "service_dir": str(Path.cwd())}
    assert mixed["check_queries"] == "true"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"mtu_length_bytes": "1409"}, "mtu_length_bytes=1409: .*32"),
        ({"election_timeout_ms": "soon"}, "election_timeout_ms='soon' from --election-timeout-ms"),
    ],
)
def test_settings_that_no_member_would_take_are_refused_before_any_starts(
    flags: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        choose_settings(NO_FLAGS | flags, tmp_path / CONFIG_FILE_NAME)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["kv", "stack"], "SERVICE=stack .*counters, kv, locks, queue"),
        (["kv", "counters", "kv"], r"services 0 and 2 .*name=kv"),
    ],
)
def test_up_refuses_names_that_it_does_not_know_or_has_already(names: list[str], told: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {name: value for name, value in NO_FLAGS.items() if name not in OWN_SETTINGS}

    with pytest.raises(ConfigurationError, match=told):
        up(services=names, directory=tmp_path, **flags)


def test_the_page_names_every_service_for_a_node() -> None:
    page = (ROOT / "docs" / "ready-made.md").read_text()

    for name, service in READY_MADE.items():
        assert f"| `{name}` | `{service.target}` |" in page


def test_up_takes_services_by_position_or_by_their_setting(tmp_path: Path) -> None:
    flags: dict[str, Any] = {name: value for name, value in NO_FLAGS.items() if name not in OWN_SETTINGS}

    with pytest.raises(ConfigurationError, match="SERVICE=a:A b:B --service=c:C"):
        up(services=["a:A", "b:B"], directory=tmp_path, **(flags | {"service": "c:C"}))
    with pytest.raises(ConfigurationError, match=r"services 0 and 1 .*name=kv"):
        up(services=[READY_MADE["kv"].target] * 2, directory=tmp_path, **flags)


def test_a_variable_that_is_no_setting_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be dropped without a word, as those that are settings were."""
    monkeypatch.setenv("TRIMARAN_SESION_LIMIT", "7")

    with pytest.raises(ConfigurationError, match="TRIMARAN_SESSION_LIMIT"):
        choose_settings(dict(NO_FLAGS), tmp_path / CONFIG_FILE_NAME)


def test_a_first_port_gives_all_ports(tmp_path: Path) -> None:
    place = open_place(tmp_path, member_count=2, base_port=9000)

    assert place.members == "0=127.0.0.1:9000,1=127.0.0.1:9010"
    assert open_place(tmp_path, member_count=None, base_port=9000).endpoints == place.endpoints


def test_a_cluster_with_groups_remembers_how_many(tmp_path: Path) -> None:
    """Other commands find the number in the file, and another number is refused by both."""
    place = open_place(tmp_path, member_count=2, base_port=9000, group_count=3)

    assert place.config_file.read_text() == f'members = "{place.members}"\ngroups = 3\n'
    assert open_place(tmp_path, member_count=None, base_port=9000).group_count == 3
    with pytest.raises(ConfigurationError, match=r"groups=3,.*groups=2"):
        open_place(tmp_path, member_count=None, base_port=None, group_count=2)


def test_free_ports_of_a_cluster_with_groups_are_free_in_every_group(tmp_path: Path) -> None:
    """So no group of one member is where another member's group is."""
    place = open_place(tmp_path, member_count=3, base_port=None, group_count=4)

    first = [int(endpoint.rpartition(":")[2]) for endpoint in place.endpoints]
    ports = [port + 100 * group_index + i for port in first for group_index in range(4) for i in range(5)]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize(
    ("member_count", "base_port", "expected"), [(5, None, "2 members"), (None, 9500, "other endpoints")]
)
def test_a_cluster_of_another_form_is_refused(
    tmp_path: Path, member_count: int | None, base_port: int | None, expected: str
) -> None:
    open_place(tmp_path, member_count=2, base_port=9000)

    with pytest.raises(ConfigurationError, match=expected):
        open_place(tmp_path, member_count=member_count, base_port=base_port)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")

    with pytest.raises(ConfigurationError, match="not empty"):
        open_place(tmp_path, member_count=None, base_port=None)

    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


class Processes(LocalNodes):
    """Processes that are no nodes: each start of a member runs the next program of the list."""

    def __init__(self, directory: Path, *programs: str) -> None:
        super().__init__(directory, ["127.0.0.1:1"], {})
        self._programs = list(programs)
        self._log_directory = directory

    async def _start_node(self, member_id: int) -> NodeProcess:
        log_file = self._log_directory / f"node-{member_id}.log"
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", self._programs.pop(0), stdout=log, stderr=log, start_new_session=True
            )
        return NodeProcess(member_id, self._log_directory, log_file, process)


class Said:
    """What the supervisor told; the test can wait for a word."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, word: str, text: str) -> None:
        self.lines.append((word, text))
        self._changed.set()

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.lines]

    async def wait_for(self, *words: str) -> None:
        async with within(DEADLINE_S):
            while self.words != list(words):
                self._changed.clear()
                await self._changed.wait()


SLEEP = "import time; time.sleep(600)"


async def test_a_member_that_was_killed_is_started_again(tmp_path: Path) -> None:
    said, nodes = Said(), Processes(tmp_path, SLEEP, SLEEP)
    supervisor = Supervisor(nodes, said, restart_delay_s=0)
    await supervisor.start()
    running = asyncio.create_task(supervisor.run())
    try:
        first = nodes.nodes[0].process.pid
        os.kill(first, signal.SIGKILL)
        await said.wait_for("member", "killed", "member")

        assert nodes.nodes[0].process.pid != first
        assert f"by signal {int(signal.SIGKILL)}" in said.lines[1][1]
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await supervisor.stop()
    assert nodes.running() == []


async def test_a_member_that_fails_stays_down_and_its_last_words_are_shown(tmp_path: Path) -> None:
    said, nodes = Said(), Processes(tmp_path, "print('no such service'); raise SystemExit(2)")
    supervisor = Supervisor(nodes, said, restart_delay_s=0)
    await supervisor.start()
    try:
        with pytest.raises(LocalNodesError, match="no member"):
            await supervisor.run()
    finally:
        await supervisor.stop()

    assert said.words == ["member", "down"]
    assert "exit_status=2" in said.lines[1][1]
    assert "no such service" in said.lines[1][1]


async def test_members_that_are_told_to_stop_stay_stopped_and_that_is_the_end(tmp_path: Path) -> None:
    """As `trimaran shutdown` does."""
    said, nodes = Said(), Processes(tmp_path, "raise SystemExit(0)")
    supervisor = Supervisor(nodes, said, restart_delay_s=0)
    await supervisor.start()
    try:
        async with within(DEADLINE_S):
            await supervisor.run()
    finally:
        await supervisor.stop()

    assert said.words == ["member", "stopped"]


def shown(capsys: pytest.CaptureFixture[str], output: OutputFormat) -> str:
    """What is printed of a cluster that forms, commits, and loses a member."""
    leader = answered(member_status(1, state="LEADER"))
    later = answered(member_status(1, state="LEADER", append=200_000))
    with UpView(PLACE, "counter:Counter", output) as view:
        for answers in ([failed(0), leader], [failed(0), later], [answered(member_status(0)), later]):
            view.show([make_report(answers, asked_at_ms=0)])
        view.say("stopping", "every member, in order")
    return capsys.readouterr().out


def test_in_a_pipe_only_changes_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A commit position that moves is none."""
    lines = shown(capsys, OutputFormat.TABLE).splitlines()

    assert [line.split()[0] for line in lines] == [
        *("data", "service", "members", "client", "look", "end", "state", "state", "stopping")
    ]
    assert lines[2] == "members   0=127.0.0.1:9000,1=127.0.0.1:9010"
    assert lines[-2] == "state     leader 1 in term 3, 2 of 2 members, commit 200,000"


def test_as_json_each_event_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    events = [json.loads(line) for line in shown(capsys, OutputFormat.JSONL).splitlines()]

    assert [event["event"] for event in events] == ["started", "state", "state", "stopping"]
    assert events[0]["config"] == "/data/cluster.toml"
    assert events[2]["report"]["in_term_count"] == 2
