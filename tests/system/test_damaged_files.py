"""A directory that cannot be used is refused at the start: exit status 2, one line that says what, nothing changed."""

from __future__ import annotations

import shutil
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.cluster_process import SystemCluster

pytestmark = [pytest.mark.slow, pytest.mark.damages_directories]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stopped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SystemCluster]:
    """A single member that has recorded a few segments and was stopped in order."""
    data_dir = tmp_path_factory.mktemp("stopped")
    async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester() as requester:
        await requester.request(500)
    yield cluster


@pytest.fixture
def cluster(stopped: SystemCluster, data_dir: Path) -> Iterator[SystemCluster]:
    """The same member with a copy of its directory, not started."""
    copy = SystemCluster(data_dir, member_count=1, start=[])
    shutil.copytree(stopped.directory_of(0), copy.directory_of(0))
    with copy.processes.group:
        yield copy


def _write(offset: int, data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    return write


def _cut(length: int) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(length)

    return cut


def _contents(directory: Path) -> dict[str, bytes]:
    """Every file but the mark files, which say who tried, and the catalog's redo file, which is made if need be."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("cluster-mark.dat", "archive-mark.dat", "archive.catalog.redo")
    }


def _forget_stop_position(catalog: Path) -> None:
    """Make the first entry look as a crash leaves it: -1, with the right checksum."""
    data = bytearray(catalog.read_bytes())
    (length,) = struct.unpack_from("<i", data, 32)
    struct.pack_into("<q", data, 32 + 64, -1)
    struct.pack_into("<q", data, 32 + 80, -1)
    struct.pack_into("<I", data, 32 + 8, zlib.crc32(data[64 : 64 + length]))
    catalog.write_bytes(data)


async def _refusal(cluster: SystemCluster, exit_status: int = 2) -> str:
    """Start the member, which must refuse; gives the reason in its one message."""
    member = cluster.start(0)
    status = await member.wait_exit()
    assert status == exit_status, member.text()
    assert not member.other_lines()
    (failed,) = member.events("node.failed")
    return str(failed["reason"])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        pytest.param("cluster/node-state.dat", _cut(20), id="node state cut"),
        pytest.param("cluster/node-state.dat", _write(0, b"\xff\xff\xff\x7f"), id="node state of another version"),
        pytest.param("cluster/node-state.dat", _write(8, b"\xa5" * 56), id="node state overwritten"),
        pytest.param("cluster/recording.log", _write(44, struct.pack("<i", 77)), id="recording log of unknown type"),
        pytest.param("cluster/recording.log", _write(0, b"\xa5" * 64), id="recording log overwritten"),
        pytest.param("archive/archive.catalog", _cut(10), id="catalog cut"),
        pytest.param("archive/archive.catalog", _write(0, b"\xa5" * 32), id="catalog of another version"),
        pytest.param("archive/archive.catalog", _write(32, b"\xa5" * 512), id="catalog entry overwritten"),
    ],
)
async def test_a_damaged_file_is_refused_and_left_as_it_is(
    cluster: SystemCluster, name: str, damage: Callable[[Path], None]
) -> None:
    """DESIGN §5: corruption is told apart from a torn tail; whoever repairs it must find it unchanged."""
    directory = cluster.directory_of(0)
    (directory / "archive" / "archive.catalog.redo").unlink()
    damage(directory / name)
    before = _contents(directory)

    line = await _refusal(cluster)

    assert Path(name).name in line or "catalog" in line, line
    assert _contents(directory) == before


async def test_a_damaged_frame_that_is_not_the_tail_is_refused_after_a_crash(cluster: SystemCluster) -> None:
    """DESIGN §5: valid frames follow the wrong one, so this is no torn tail, and nothing is cut off.

    Another member could mend it; a single one refuses, the second time as the first.
    """
    directory = cluster.directory_of(0)
    (directory / "archive" / "archive.catalog.redo").unlink()
    catalog = directory / "archive" / "archive.catalog"
    _forget_stop_position(catalog)
    segments = sorted((directory / "archive").glob("0-*.rec"), key=lambda path: int(path.stem.split("-")[1]))
    _write(32 + 40, b"\xa5")(segments[-1])
    before = _contents(directory)

    line, again = await _refusal(cluster), await _refusal(cluster)

    assert segments[-1].stem.split("-")[1] in line
    assert again == line
    assert _contents(directory) == before


@pytest.mark.parametrize("offset", [40, 96], ids=["message header", "payload"])
async def test_a_damaged_frame_under_the_stop_position_is_never_delivered(cluster: SystemCluster, offset: int) -> None:
    """STYLE 17, check after reading: a member stops rather than hand its service bytes that nobody wrote."""
    segment = cluster.directory_of(0) / "archive" / "0-65536.rec"
    (frame_length,) = struct.unpack_from("<i", segment.read_bytes())
    _write(offset, b"\xa5\x5a")(segment)

    line = await _refusal(cluster)

    assert frame_length > 100
    assert "position=65536" in line
    assert "checksum" in line


@pytest.mark.parametrize("endpoint", ["ingress", "consensus", "log", "catchup", "archive"])
async def test_a_port_in_use_is_refused_by_name(cluster: SystemCluster, endpoint: str) -> None:
    """A port in use is one clear line, whichever of the five it is; with status 1 a supervisor tries again."""
    offset = ("ingress", "consensus", "log", "catchup", "archive").index(endpoint)
    with socket.create_server(("127.0.0.1", cluster.processes.base_ports[0] + offset)) as taken:
        line = await _refusal(cluster, exit_status=1)

        assert endpoint in line
        assert f"127.0.0.1:{taken.getsockname()[1]}" in line


async def test_a_directory_in_use_is_refused_while_a_cluster_runs_on_it(data_dir: Path) -> None:
    """Issue 2: a second node on a directory is refused with the owner's pid, and the owner is not disturbed."""
    async with SystemCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        owner = cluster.members[1]
        second = SystemCluster(data_dir / "second", settings={"directory": str(cluster.directory_of(1))}, start=[])
        second.processes.data_dir.mkdir()

        intruder = second.start(1)
        status = await intruder.wait_exit()

        assert status == 2
        assert f"owner_pid={owner.process.pid}" in intruder.text()
        async with cluster.requester() as requester:
            await requester.request(100)
