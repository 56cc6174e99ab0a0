"""Nothing is written beside a live Aeron: every layout of its mark files, every command that writes.

A live Aeron whose mark files nobody understood lost recordings to `archive compact`, and `trimaran node` wrote into its
log. Source: aeron.md §5.1; the mark files of `tests/data/directories` are of real members.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.live_marks import ALIVE, LAYOUTS, UNKNOWN, lay_out, renew
from tests.interchange.samples import Ended, run
from tests.places import ROOT
from trimaran.archive import Archive
from trimaran.archive.config import ArchiveConfig
from trimaran.archive.files.mark_file import ArchiveMarkFile
from trimaran.cluster.operating.backup.directory import BackupDirectory
from trimaran.cluster.operating.salvage.holding import read_holding
from trimaran.cluster.runtime.files.mark_file import ClusterMarkFile
from trimaran.cluster.runtime.files.member_files import open_files
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.runtime.ground.system_clock import SystemClock
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.service_api import ClusterError

SAMPLE = "single-node/node0"
MARKS = ROOT / "tests" / "data" / "directories" / "marks.tar.gz"


def start(directory: Path) -> Ended:
    """Open a member's files as `trimaran node` does first; a process of its own would take longer than Aeron lives."""
    config = NodeConfig(members=parse_members("0=127.0.0.1:9000"), member_id=0, directory=directory, service="a:B")
    try:
        with open_files(config, Host.of_operating_system()):
            return Ended(0, "", "")
    except ClusterError as error:
        return Ended(2, "", f"{error}\n")


def open_archive(directory: Path) -> Ended:
    """Open the archive of a directory as `trimaran archive serve` does first."""

    async def run_it() -> None:
        archive = await Archive.launch(directory / "archive", ArchiveConfig(), clock_ms=SystemClock().epoch_time)
        await archive.aclose()

    return ended_of(run_it)


def open_backup(directory: Path) -> Ended:
    """Open a backup's directory as `trimaran backup run` does first."""

    async def run_it() -> None:
        async with BackupDirectory.open(directory, ArchiveConfig(), Host.of_operating_system()):
            pass

    return ended_of(run_it)


def ended_of(run_it: Callable[[], Coroutine[None, None, None]]) -> Ended:
    try:
        asyncio.run(run_it())
    except ClusterError as error:
        return Ended(2, "", f"{error}\n")
    return Ended(0, "", "")


WRITING: dict[str, Callable[[Path, Path], Ended]] = {
    "compact": lambda directory, _: run("archive", "compact", directory / "archive"),
    "verify": lambda directory, _: run("archive", "verify", "--mark-invalid", directory / "archive"),
    "mark-invalid": lambda directory, _: run("archive", "mark-invalid", directory / "archive", 0),
    "capacity": lambda directory, _: run("archive", "capacity", directory / "archive", 2097152),
    "checksum": lambda directory, _: run("archive", "checksum", directory / "archive"),
    "orphans": lambda directory, _: run("archive", "delete-orphaned-segments", directory / "archive"),
    "import": lambda directory, target: run("archive", "import", directory, "--to", target),
    "export-aeron": lambda directory, target: run("archive", "export-aeron", directory, target),
    "invalidate": lambda directory, _: run("snapshot", "invalidate", directory),
    "node": lambda directory, _: start(directory),
    "serve": lambda directory, _: open_archive(directory),
    "backup run": lambda directory, _: open_backup(directory),
    "reset-candidate-term": lambda directory, _: run("reset-candidate-term", directory, "--yes"),
}


class Live:
    """A member's directory, whose mark files have one of the layouts."""

    def __init__(self, directory: Path, layout: str, elsewhere: Path) -> None:
        self.directory = directory
        self.layout = layout
        self.elsewhere = elsewhere

    def renew(self, *, age_ms: int | None = None) -> None:
        if age_ms is None:
            renew(self.directory, self.layout, self.elsewhere)
        else:
            renew(self.directory, self.layout, self.elsewhere, age_ms=age_ms)

    def content(self) -> dict[Path, bytes]:
        files = [*self.directory.rglob("*"), *self.elsewhere.rglob("*")]
        return {path: path.read_bytes() for path in files if path.is_file()}


def make_live(samples: Path, root: Path, layout: str) -> Live:
    directory = Path(shutil.copytree(samples / SAMPLE, root / "member"))
    found = Live(directory, layout, root / "marks")
    lay_out(directory, layout, found.elsewhere)
    return found


@pytest.fixture(scope="module", params=LAYOUTS)
def live(samples: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Live:
    """For tests that leave it as it is."""
    return make_live(samples, tmp_path_factory.mktemp("live"), request.param)


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_written_beside_a_live_aeron(live: Live, tmp_path: Path, name: str) -> None:
    live.renew()
    before = live.content()

    ended = WRITING[name](live.directory, tmp_path / "out")

    assert ended.exit_code != 0
    assert len(ended.stderr.splitlines()) == 1
    assert "in use: mark_file=" in ended.stderr
    assert ("may be" in ended.stderr) == (live.layout in UNKNOWN)
    assert ("stop Aeron first" if live.layout in ALIVE else "then rename") in ended.stderr
    assert live.content() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", WRITING)
def test_a_command_beside_a_live_aeron_leaves_the_rights_of_its_files(live: Live, tmp_path: Path, name: str) -> None:
    """Aeron makes files that a group may read; a member that was refused had taken that right already."""
    live.renew()
    paths = [live.directory, *live.directory.rglob("*")]
    for path in paths:
        path.chmod(0o755)

    ended = WRITING[name](live.directory, tmp_path / "out")

    assert ended.exit_code != 0
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o755}


@pytest.mark.parametrize("part", ["archive", "cluster"])
@pytest.mark.parametrize("name", ["node", "backup run"])
def test_nothing_is_written_beside_half_a_live_aeron(samples: Path, tmp_path: Path, name: str, part: str) -> None:
    """The archive of a member may run without its consensus module, in a process of its own."""
    live = make_live(samples, tmp_path, "with header")
    live.renew(age_ms=10_000)
    renew(live.directory / part, "with header", live.elsewhere / part)
    before = live.content()

    ended = WRITING[name](live.directory, tmp_path / "out")

    assert f"{part} directory in use: mark_file=" in ended.stderr
    assert live.content() == before


def test_a_backup_makes_nothing_beside_a_live_archive(samples: Path, tmp_path: Path) -> None:
    live = make_live(samples, tmp_path, "with header")
    live.renew()
    shutil.rmtree(live.directory / "cluster")

    ended = open_backup(live.directory)

    assert f"in use: mark_file={live.directory / 'archive'}" in ended.stderr
    assert [path.name for path in live.directory.iterdir()] == ["archive"]


def test_a_recovery_is_told_that_aeron_runs(live: Live) -> None:
    live.renew()

    holding = read_holding(str(live.directory), now_ms=SystemClock().epoch_time())

    assert holding.running is not None
    assert "in use" in holding.running


SAMPLED = ("compact", "import", "export-aeron", "invalidate", "node")


@pytest.mark.parametrize("layout", ALIVE)
@pytest.mark.parametrize("name", SAMPLED)
def test_an_aeron_that_died_hinders_nobody(samples: Path, tmp_path: Path, layout: str, name: str) -> None:
    live = make_live(samples, tmp_path, layout)
    live.renew(age_ms=10_000)

    ended = WRITING[name](live.directory, tmp_path / "out")

    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize("name", SAMPLED)
def test_nothing_is_written_beside_a_live_member_of_ours(samples: Path, tmp_path: Path, name: str) -> None:
    live = make_live(samples, tmp_path, "with header")
    mark = ClusterMarkFile.open(live.directory / "cluster", member_id=0, now_ms=1)
    with ArchiveMarkFile.open(live.directory / "archive", now_ms=1):
        before = live.content()

        ended = WRITING[name](live.directory, tmp_path / "out")

        assert live.content() == before
    mark.close()
    assert ended.exit_code != 0
    assert "stop it first" in ended.stderr
    assert not (tmp_path / "out").exists()


def test_a_link_goes_when_the_mark_file_is_in_the_directory_again(samples: Path, tmp_path: Path) -> None:
    """It would lead nowhere once the other directory is gone, and keep the next start from the directory."""
    live = make_live(samples, tmp_path, "elsewhere")
    live.renew(age_ms=10_000)

    ArchiveMarkFile.open(live.directory / "archive", now_ms=SystemClock().epoch_time()).close()
    ClusterMarkFile.open(live.directory / "cluster", member_id=0, now_ms=SystemClock().epoch_time()).close()

    assert sorted(path.name for path in live.directory.rglob("*mark*")) == ["archive-mark.dat", "cluster-mark.dat"]
    shutil.rmtree(live.elsewhere)
    ArchiveMarkFile.open(live.directory / "archive", now_ms=SystemClock().epoch_time()).close()


# --- what is shown


def rows_of(ended: Ended) -> list[dict[str, Any]]:
    assert ended.exit_code == 0, ended.output
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mark files of two real members: `v144` in their place, `elsewhere` behind links."""
    root = tmp_path_factory.mktemp("marks")
    with tarfile.open(MARKS) as archive:
        archive.extractall(root, filter="data")
    for link in (root / "elsewhere").rglob("*.lnk"):
        link.write_text(str(root / "elsewhere" / "marks" / Path(link.read_text()).name))
    return root


@pytest.mark.parametrize(
    ("member", "version", "pids", "layout"),
    [
        ("v144", 0x0000_0300, 24784, "without a message header: Aeron up to 1.46"),
        ("elsewhere", 0x0000_0300, 5286, None),
    ],
)
def test_state_shows_the_mark_files_of_real_members(
    marks: Path, member: str, version: int, pids: int, layout: str | None
) -> None:
    rows = rows_of(run("state", marks / member / "node0", "-o", "jsonl"))

    assert [row["file"] for row in rows] == ["cluster-mark.dat", "cluster-mark-service-0.dat", "archive-mark.dat"]
    assert [row["fields"]["pid"] for row in rows] == [pids] * 3
    assert [row["fields"]["version"] for row in rows] == [version, version, 0x0003_0100]
    assert [row.get("layout") for row in rows] == [layout] * 3
    assert rows[0]["fields"]["componentType"] == "CONSENSUS_MODULE"
    assert rows[0]["fields"]["servicesClusterDir"].endswith("/cluster")


def test_errors_are_found_in_the_mark_files_of_real_members(marks: Path) -> None:
    first, last = rows_of(run("errors", marks / "v144" / "node0", "-o", "jsonl"))

    assert "Truncating Cluster Log" in first["message"]
    assert last["message"] == "io.aeron.cluster.service.ClusterTerminationException: expected termination"
    assert rows_of(run("errors", marks / "elsewhere" / "node0", "-o", "jsonl")) == []


def test_errors_are_found_through_a_link(samples: Path, tmp_path: Path) -> None:
    live = make_live(samples, tmp_path, "elsewhere without header")
    text = b"java.lang.IllegalStateException: no"
    record = (24 + len(text)).to_bytes(4, "little") + (1).to_bytes(4, "little") + (5).to_bytes(8, "little") * 2 + text
    with (live.elsewhere / "archive-mark" / "archive-mark.dat").open("r+b") as file:
        file.seek(8192)
        file.write(record)

    (error,) = rows_of(run("errors", live.directory, "-o", "jsonl"))

    assert "IllegalStateException" in error["message"]


@pytest.mark.parametrize("layout", UNKNOWN)
def test_state_shows_what_it_cannot_read(samples: Path, tmp_path: Path, layout: str) -> None:
    live = make_live(samples, tmp_path, layout)

    ended = run("state", live.directory, "-o", "jsonl")

    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    if "nowhere" in layout:
        assert ended.exit_code == 0
        assert [row["fields"]["isThere"] for row in rows if row["file"].endswith(".lnk")] == [False] * 3
    else:
        assert ended.exit_code == 10
        assert sum("problem" in row for row in rows) == 3
