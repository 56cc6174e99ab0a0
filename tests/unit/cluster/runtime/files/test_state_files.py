"""The three files of a cluster directory: Aeron's bytes, durable before return, one process only."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.places import AERON, ROOT
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.cli.state import read_state_file
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.messages.mark import ClusterComponentType
from trimaran.cluster.runtime.files.mark_file import (
    MARK_FILE_NAME,
    ClusterMarkFile,
    DirectoryInUseError,
    read_cluster_mark_file,
)
from trimaran.cluster.runtime.files.node_state_file import (
    NODE_STATE_FILE_LENGTH,
    NODE_STATE_FILE_NAME,
    NodeStateFile,
)
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile, read_recording_log
from trimaran.service_api.errors import ClusterError, ConfigurationError
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME


@cache
def member_of(tar_name: str, path: str) -> bytes:
    with tarfile.open(AERON / tar_name) as tar:
        member = tar.extractfile(path)
        assert member is not None
        return member.read()


@cache
def truth(name: str) -> dict[str, Any]:
    with gzip.open(AERON / name, "rt") as file:
        state: dict[str, Any] = json.load(file)
        return state


class NotingFileSystem(OsFileSystem):
    """The real disk; notes writes and syncs, and fails the next sync when asked to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = False

    def pwrite(self, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:  # type: ignore[override]
        self.calls.append(f"write {offset}+{len(data)}")
        return os.pwrite(handle, data, offset)

    def sync_data(self, handle: int) -> None:
        self.calls.append("fdatasync")
        if self.fails:
            raise OSError("disk failed")
        os.fdatasync(handle)

    def sync_file(self, handle: int) -> None:
        self.calls.append("fsync")
        os.fsync(handle)

    def sync_directory(self, path: Path) -> None:
        self.calls.append(f"fsync {path.name}")
        super().sync_directory(path)


def append_term(file: RecordingLogFile, term_id: int, base: int) -> None:
    file.recording_log.append_term(
        recording_id=0, leadership_term_id=term_id, term_base_log_position=base, timestamp=term_id
    )


def append_snapshot(file: RecordingLogFile, term_id: int, log_position: int) -> None:
    for service_id in (0, -1):
        file.recording_log.append_snapshot(
            RecordedSnapshot(
                recording_id=log_position + service_id,
                leadership_term_id=term_id,
                term_base_log_position=640,
                log_position=log_position,
                timestamp=term_id,
                service_id=service_id,
            )
        )


# recording.log


def test_recording_log_is_read_back_as_it_was_persisted(tmp_path: Path) -> None:
    file = RecordingLogFile.open(tmp_path)
    append_term(file, 0, 0)
    append_term(file, 1, 640)
    file.persist()
    file.close()

    again = RecordingLogFile.open(tmp_path)

    assert again.recording_log.entries == file.recording_log.entries
    assert (tmp_path / RECORDING_LOG_FILE_NAME).stat().st_size == 128
    again.close()


@pytest.mark.parametrize("tar_name", ["single-node", "checksummed"])
def test_recording_log_of_a_real_node_is_read(tar_name: str, tmp_path: Path) -> None:
    expected = truth(f"truth-{tar_name}-node0.json.gz")["recording_log"]["entries"]
    data = member_of(f"{tar_name}.tar.gz", f"{tar_name}/node0/cluster/recording.log")
    (tmp_path / RECORDING_LOG_FILE_NAME).write_bytes(data)

    file = RecordingLogFile.open(tmp_path)

    assert [
        (entry.entry_index, entry.recording_id, entry.log_position, entry.timestamp, entry.service_id)
        for entry in file.recording_log.entries
    ] == [(e["entryIndex"], e["recordingId"], e["logPosition"], e["timestamp"], e["serviceId"]) for e in expected]
    assert b"".join(entry.encode() for entry in file.recording_log.entries) == data
    file.close()


def test_a_slot_in_which_aeron_left_an_older_endpoint_is_read(tmp_path: Path) -> None:
    """It does not clear its buffer: after the snapshot that follows a standby snapshot stands that one's endpoint."""
    data = member_of("state-files.tar.gz", "state-files/standby-snapshots/recording.log")
    (tmp_path / RECORDING_LOG_FILE_NAME).write_bytes(data)

    file = RecordingLogFile.open(tmp_path)

    assert len(file.recording_log.entries) == len(truth("truth-state-files.json.gz")["standby-snapshots"]["entries"])
    file.close()


@pytest.mark.parametrize(
    ("level", "opening", "persisting"),
    [(0, [], []), (1, ["fsync", "fsync {}"], ["fdatasync"]), (2, ["fsync", "fsync {}"], ["fsync"])],
)
def test_recording_log_is_durable_as_the_sync_level_says(
    level: int, opening: list[str], persisting: list[str], tmp_path: Path
) -> None:
    disk = NotingFileSystem()

    file = RecordingLogFile.open(tmp_path, file_sync_level=level, file_system=disk)
    assert disk.calls == [call.format(tmp_path.name) for call in opening]
    disk.calls.clear()
    append_term(file, 0, 0)
    append_term(file, 1, 640)
    file.persist()

    assert disk.calls == ["write 0+64", "write 0+64", "write 64+64", *persisting]
    disk.calls.clear()
    file.persist()
    assert disk.calls == []
    file.close()


def test_recording_log_entry_cut_short_by_a_crash_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / RECORDING_LOG_FILE_NAME
    path.write_bytes(member_of("state-files.tar.gz", "state-files/terms-and-snapshots/recording.log")[:670])

    file = RecordingLogFile.open(tmp_path)

    assert path.stat().st_size == 640
    assert file.recording_log.end_position == 640
    file.close()


def test_damaged_recording_log_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / RECORDING_LOG_FILE_NAME).write_bytes(b"\x07" * 128)

    with pytest.raises(ClusterError, match=r"path=.*recording.log: .*entry_index=0 position=0 type=117901063"):
        RecordingLogFile.open(tmp_path)


def test_every_flipped_bit_in_a_recording_log_is_refused() -> None:
    """Of terms, open, closed and removed, and of snapshots, valid and invalid; but for one that Aeron changes, too."""
    disk, path = MemoryFileSystem(), Path("/") / RECORDING_LOG_FILE_NAME
    file = RecordingLogFile.open(Path("/"), file_system=disk)
    for term_id in range(3):
        append_term(file, term_id, term_id * 640)
    last = file.recording_log.last_term()
    assert last is not None
    file.recording_log.remove_entry(last)
    for log_position in (800, 960):
        append_snapshot(file, 1, log_position)
    file.recording_log.invalidate_latest_snapshot()
    file.persist()
    file.close()
    data = disk.content(path)
    assert len(data) == 448
    invalid_bit_of_valid_snapshots = {(slot * 64 + 47) * 8 + 7 for slot in (3, 4)}

    for bit in range(len(data) * 8):
        disk.damage(path, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
        if bit in invalid_bit_of_valid_snapshots:
            read_recording_log(path, disk)
        else:
            with pytest.raises(ClusterError, match=r"recording log: path=.*rename"):
                RecordingLogFile.open(Path("/"), file_system=disk)
        disk.damage(path, bit // 8, data[bit // 8 : bit // 8 + 1])


def test_entry_of_a_standby_snapshot_is_read_back_whatever_the_length_of_its_endpoint(tmp_path: Path) -> None:
    """Its slot has no checksum: no member here writes one."""
    file = RecordingLogFile.open(tmp_path)
    for length in range(1, 120):
        file.recording_log.append_standby_snapshot(
            RecordedSnapshot(
                recording_id=length,
                leadership_term_id=0,
                term_base_log_position=0,
                log_position=640,
                timestamp=1,
                service_id=-1,
            ),
            archive_endpoint="x" * length,
        )
    file.persist()
    file.close()

    again = RecordingLogFile.open(tmp_path)
    again.close()

    assert again.recording_log.entries == file.recording_log.entries


def test_change_that_touches_several_sectors_is_synced_sector_by_sector(tmp_path: Path) -> None:
    """So that a power loss leaves no hole: 8 entries a sector."""
    disk = NotingFileSystem()
    file = RecordingLogFile.open(tmp_path, file_system=disk)
    for term_id in range(8):
        append_term(file, term_id, term_id * 640)
    file.persist()
    disk.calls.clear()

    append_term(file, 8, 5120)
    file.persist()

    assert disk.calls == ["write 448+64", "fdatasync", "write 512+64", "fdatasync"]
    file.close()


def test_recording_log_refuses_everything_after_a_failed_sync(tmp_path: Path) -> None:
    disk = NotingFileSystem()
    file = RecordingLogFile.open(tmp_path, file_system=disk)
    append_term(file, 0, 0)
    disk.fails = True
    with pytest.raises(OSError, match="disk failed"):
        file.persist()
    disk.fails = False

    with pytest.raises(ClusterError, match="earlier write"):
        file.persist()
    file.close()


@pytest.mark.parametrize("name", [RECORDING_LOG_FILE_NAME, NODE_STATE_FILE_NAME])
def test_a_file_with_the_projects_former_tag_is_refused_and_not_called_damaged(tmp_path: Path, name: str) -> None:
    disk, path = MemoryFileSystem(), Path("/") / name
    if name == RECORDING_LOG_FILE_NAME:
        file = RecordingLogFile.open(Path("/"), file_system=disk)
        append_term(file, 0, 0)
        file.persist()
        file.close()
        tagged_at = 48
    else:
        NodeStateFile.open(Path("/"), file_system=disk).close()
        tagged_at = 64
    disk.damage(path, tagged_at, b"QUORATE".ljust(12, b"\0") + b"crc!")

    with pytest.raises(ConfigurationError) as caught:
        (RecordingLogFile if name == RECORDING_LOG_FILE_NAME else NodeStateFile).open(Path("/"), file_system=disk)

    assert has_facts(str(caught.value), f"file={name}", "QUORATE", "version")
    assert "damage" not in str(caught.value)


# node-state.dat


def without_checksum(directory: Path) -> bytes:
    """The file as Aeron would have written it."""
    data = (directory / NODE_STATE_FILE_NAME).read_bytes()
    fields, magic, crc = struct.unpack_from("<24s8sI", data, 64)
    assert (fields, magic, crc) == (data[24:48], b"TRIMARAN", zlib.crc32(data[:96]))
    return data[:64] + bytes(36) + data[100:]


def test_checksum_is_added_to_a_node_state_of_aerons(tmp_path: Path) -> None:
    data = member_of("state-files.tar.gz", "state-files/node-state-proposed/node-state.dat")
    (tmp_path / NODE_STATE_FILE_NAME).write_bytes(data)
    file = NodeStateFile.open(tmp_path)

    file.propose_max_candidate_term_id(10, 3200, 1700000000003)
    file.close()

    assert without_checksum(tmp_path)[:8] == data[:8]
    assert without_checksum(tmp_path)[48:] == data[48:]
    again = NodeStateFile.open(tmp_path)
    assert again.candidate_term_id == 10
    again.close()


def test_every_flipped_bit_in_a_node_state_is_refused() -> None:
    """Aeron has no checksum there: a lower candidate term would let this member vote twice."""
    disk, path = MemoryFileSystem(), Path("/") / NODE_STATE_FILE_NAME
    file = NodeStateFile.open(Path("/"), file_system=disk)
    file.propose_max_candidate_term_id(9, 3200, 1700000000002)
    file.close()
    data = disk.content(path)

    for bit in range(100 * 8):
        disk.damage(path, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
        with pytest.raises(ClusterError, match=r"node state: path=.*restore"):
            NodeStateFile.open(Path("/"), file_system=disk)
        disk.damage(path, bit // 8, data[bit // 8 : bit // 8 + 1])


def test_candidate_term_is_durable_before_it_is_believed(tmp_path: Path) -> None:
    disk = NotingFileSystem()
    file = NodeStateFile.open(tmp_path, file_system=disk)
    disk.calls.clear()

    file.propose_max_candidate_term_id(3, 0, 1)

    assert disk.calls == ["write 0+100", "fdatasync"]
    disk.fails = True
    with pytest.raises(OSError, match="disk failed"):
        file.propose_max_candidate_term_id(4, 0, 1)
    assert file.candidate_term_id == 3
    with pytest.raises(ClusterError, match="earlier write"):
        file.propose_max_candidate_term_id(5, 0, 1)
    file.close()


def test_a_vote_that_is_withdrawn_comes_back_with_the_next_term_that_is_stored_and_the_term_never_falls() -> None:
    """`repair.coming_back`: such a member keeps the term, and a restart does not give it the vote."""
    disk = MemoryFileSystem()
    file = NodeStateFile.open(Path("/"), file_system=disk)
    assert not file.has_vote
    file.propose_max_candidate_term_id(9, 3200, 1)
    assert file.has_vote

    file.withdraw_vote(2)
    file.close()

    file = NodeStateFile.open(Path("/"), file_system=disk)
    assert (file.candidate_term_id, file.has_vote) == (9, False)
    assert file.propose_max_candidate_term_id(8, 640, 3) == 9
    assert (file.candidate_term_id, file.log_position, file.has_vote) == (9, 640, True)
    file.close()


def test_new_node_state_file_is_durable_before_it_has_its_name(tmp_path: Path) -> None:
    (tmp_path / (NODE_STATE_FILE_NAME + ".new")).write_bytes(b"left by a crash")
    disk = NotingFileSystem()

    NodeStateFile.open(tmp_path, file_system=disk).close()

    made = [f"write 0+{NODE_STATE_FILE_LENGTH}", "fsync", f"fsync {tmp_path.name}"]
    assert disk.calls == [*made, "fsync", f"fsync {tmp_path.name}"]


@pytest.mark.parametrize(
    ("position", "data", "reason"),
    [
        (0, b"\x00\x00\x01\x00", "version=0x00010000 expected=0x00000300"),
        (0, b"\x00\x00\x00\x00", "version=0x00000000"),
        (16, b"\xff\xff\xff\x7f", "position=8: frame_length=2147483647"),
        (16, b"\x00\x00\x00\x00", "position=8: frame_length=0"),
        (10, b"\x09\x00", "template_id=9"),
        (12, b"\x6f\x00", "schema_id=111"),
        (50, b"\x2d\x01", "candidateTerm"),
        (8, bytes.fromhex("000030017000"), "footer"),
    ],
)
def test_damaged_node_state_is_refused_by_name(position: int, data: bytes, reason: str, tmp_path: Path) -> None:
    content = bytearray(member_of("state-files.tar.gz", "state-files/node-state-proposed/node-state.dat"))
    content[position : position + len(data)] = data
    (tmp_path / NODE_STATE_FILE_NAME).write_bytes(content)

    with pytest.raises(ClusterError, match=reason) as caught:
        NodeStateFile.open(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("length", [0, 7, 8, 30, 48, 63])
def test_node_state_cut_short_is_refused(length: int, tmp_path: Path) -> None:
    content = member_of("state-files.tar.gz", "state-files/node-state-proposed/node-state.dat")
    (tmp_path / NODE_STATE_FILE_NAME).write_bytes(content[:length])

    with pytest.raises(ClusterError, match="node state"):
        NodeStateFile.open(tmp_path)


# cluster-mark.dat


@pytest.mark.parametrize("tar_name", ["single-node", "checksummed"])
def test_real_mark_files_are_read(tar_name: str, tmp_path: Path) -> None:
    expected = truth(f"truth-{tar_name}-node0.json.gz")["mark_files"]
    for name, mark in expected.items():
        if not name.startswith("cluster-mark"):
            continue
        path = tmp_path / name
        path.write_bytes(member_of(f"{tar_name}.tar.gz", f"{tar_name}/node0/cluster/{name}"))

        header = read_cluster_mark_file(path)

        fields = mark["fields"]
        names = {field.wire_name: field.name for field in header.LAYOUT.block}
        names |= {field.wire_name: field.name for field in header.LAYOUT.var_data}
        for wire_name, python_name in names.items():
            value = getattr(header, python_name)
            assert (value.name if isinstance(value, ClusterComponentType) else value) == fields[wire_name]
        assert len(header.encode()) == mark["encoded_end"]
        assert path.read_bytes()[: mark["encoded_end"]] == header.encode()


def test_mark_file_says_who_runs_and_since_when(tmp_path: Path) -> None:
    mark = ClusterMarkFile.open(tmp_path, member_id=2, cluster_id=5, now_ms=1000)
    path = tmp_path / MARK_FILE_NAME

    mark.update_activity(2000)

    header = read_cluster_mark_file(path)
    assert (header.member_id, header.cluster_id, header.pid) == (2, 5, os.getpid())
    assert (header.start_timestamp, header.activity_timestamp) == (1000, 2000)
    assert header.component_type is ClusterComponentType.CONSENSUS_MODULE
    assert path.stat().st_size == 1_056_768
    assert repr(mark) == f"<ClusterMarkFile path={path} member_id=2 pid={os.getpid()}>"
    mark.close()
    assert read_cluster_mark_file(path).activity_timestamp == -1


def test_second_opener_is_told_the_directory_and_the_owners_pid(tmp_path: Path) -> None:
    mark = ClusterMarkFile.open(tmp_path, member_id=0, now_ms=1)

    with pytest.raises(DirectoryInUseError) as caught:
        ClusterMarkFile.open(tmp_path, member_id=1, now_ms=2)

    assert f"directory={tmp_path} owner_pid={os.getpid()}" in str(caught.value)
    mark.close()
    ClusterMarkFile.open(tmp_path, member_id=1, now_ms=3).close()


def test_another_members_votes_are_no_directory_to_go_on_with(tmp_path: Path) -> None:
    """With directories that were swapped, one member could vote twice in a term."""
    ClusterMarkFile.open(tmp_path, member_id=3, now_ms=1).close()

    with pytest.raises(ConfigurationError, match=r"member_id=3,.*member_id=4"):
        ClusterMarkFile.open(tmp_path, member_id=4, now_ms=2, has_voted=True)

    ClusterMarkFile.open(tmp_path, member_id=3, now_ms=3, has_voted=True).close()
    ClusterMarkFile.open(tmp_path, member_id=4, now_ms=4).close()  # nothing was voted: the first id was a mistake


def test_lock_is_dropped_when_its_process_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from trimaran.cluster.runtime.files.mark_file import ClusterMarkFile\n"
        "mark = ClusterMarkFile.open(pathlib.Path(sys.argv[1]), member_id=0, now_ms=1)\n"
        "print('locked', flush=True); sys.stdin.read()\n"
    )
    root = ROOT
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryInUseError) as caught:
            ClusterMarkFile.open(tmp_path, member_id=0, now_ms=2)
        assert caught.value.pid == process.pid
        process.kill()
        process.wait()

    mark = ClusterMarkFile.open(tmp_path, member_id=0, now_ms=3)

    assert mark.header.pid == os.getpid()
    mark.close()


def test_boot_is_the_same_only_when_it_was_confirmed_under_the_same_id(tmp_path: Path) -> None:
    """A start that fails before everything was repaired leaves the next one in doubt."""

    def is_same_boot(boot_id: str, *, confirms: bool) -> bool:
        mark = ClusterMarkFile.open(tmp_path, member_id=2, now_ms=1, boot_id=boot_id)
        if confirms:
            mark.confirm_boot()
        mark.close()
        return mark.is_same_boot

    assert not is_same_boot("boot-1", confirms=False)
    assert not is_same_boot("boot-1", confirms=True)
    assert is_same_boot("boot-1", confirms=False)
    assert is_same_boot("boot-1", confirms=True)
    assert not is_same_boot("boot-2", confirms=False)
    assert not is_same_boot("boot-2", confirms=True)
    assert is_same_boot("boot-2", confirms=True)
    assert not is_same_boot("boot-1", confirms=False)
    assert not is_same_boot("", confirms=True)
    assert not is_same_boot("", confirms=True)
    assert not is_same_boot("boot-2", confirms=False)
    assert not is_same_boot("b" * 129, confirms=True)
    assert not is_same_boot("b" * 129, confirms=True)


def test_boot_id_lies_where_aerons_header_does_not_reach(tmp_path: Path) -> None:
    mark = ClusterMarkFile.open(tmp_path, member_id=2, now_ms=1, boot_id="0b7c-boot")

    mark.confirm_boot()

    data = (tmp_path / MARK_FILE_NAME).read_bytes()
    assert data[4096:8192].rstrip(b"\0") == b"0b7c-boot"
    assert read_cluster_mark_file(tmp_path / MARK_FILE_NAME).member_id == 2
    assert len(data) == 1_056_768
    mark.close()


def test_a_mark_file_names_the_cluster_beyond_aerons_header(tmp_path: Path) -> None:
    mark = ClusterMarkFile.open(tmp_path, member_id=1, now_ms=1000)
    before = read_state_file(tmp_path / "cluster-mark.dat")["fields"]
    mark.note_cluster_id(0x3F9A0C12D45E77B1)
    mark.close()
    ClusterMarkFile.open(tmp_path, member_id=1, now_ms=2000).close()

    assert (tmp_path / "cluster-mark.dat").read_bytes()[4224:4240] == b"3f9a0c12d45e77b1"
    assert read_state_file(tmp_path / "cluster-mark.dat")["fields"]["trimaranClusterId"] == "3f9a0c12d45e77b1"
    assert "trimaranClusterId" not in before


def test_owner_that_has_not_written_its_header_yet_has_no_pid() -> None:
    disk = MemoryFileSystem()
    disk.make_directory(Path("/member"))
    disk.try_lock(disk.open_file(Path("/member") / MARK_FILE_NAME, create=True))

    with pytest.raises(DirectoryInUseError, match="owner_pid=None"):
        ClusterMarkFile.open(Path("/member"), member_id=0, now_ms=1, file_system=disk)


def test_what_is_not_a_mark_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / MARK_FILE_NAME
    path.write_bytes(bytes(8192))

    with pytest.raises(ClusterError, match=r"mark file: path=.*schema_id=0 expected=110"):
        read_cluster_mark_file(path)


def test_directory_name_too_long_for_the_header_is_refused(tmp_path: Path) -> None:
    class PretendingFileSystem(OsFileSystem):
        def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
            return super().open_file(tmp_path / path.name, create=create, writable=writable)

        def list_directory(self, path: Path) -> list[str]:
            return []

    with pytest.raises(ClusterError, match="header too long"):
        ClusterMarkFile.open(Path("d" * 9000), member_id=0, now_ms=1, file_system=PretendingFileSystem())


def test_recording_log_value_and_file_agree_on_the_empty_log(tmp_path: Path) -> None:
    file = RecordingLogFile.open(tmp_path)

    assert file.recording_log.entries == RecordingLog().entries
    file.close()
