"""A system that is not Linux, such as macOS: what only Linux has is missing, and everything that reads works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.places import ROOT
from tests.waiting import patient

WITHOUT_LINUX = """
import fcntl, os, select, socket

LINUX_ONLY = {
    os: "fdatasync posix_fadvise posix_fallocate preadv pwritev sched_getaffinity sched_setaffinity "
        "sched_getscheduler sched_setscheduler sched_yield SCHED_OTHER SCHED_BATCH SCHED_IDLE pipe2 eventfd splice",
    select: "POLLRDHUP epoll",
    socket: "TCP_USER_TIMEOUT TCP_KEEPIDLE",
}
for module, names in LINUX_ONLY.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
"""

WRITE_AND_READ = """
import asyncio, sys
from pathlib import Path

import trimaran, trimaran.cluster.node, trimaran.archive.spark.session
from trimaran.archive import Archive, ArchiveConfig, frames
from trimaran.cluster.cli import main
from trimaran.service_api.wire.frame import encode_frame

directory = Path(sys.argv[1])

async def write():
    config = ArchiveConfig(term_length_bytes=1 << 16, segment_length_bytes=1 << 16, checksums=False, file_sync_level=1)
    archive = await Archive.launch(directory, config, clock_ms=lambda: 1)
    recording = await archive.start_recording(stream_id=7, session_id=8, channel="c", source_identity="s")
    recording.append(encode_frame(b"hello", session_id=8, stream_id=7))
    recording.flush()
    position = await recording.stop()
    await archive.aclose()
    return position

print(asyncio.run(write()), sum(batch.num_rows for batch in frames(directory)))
sys.stdout.flush()
main(["archive", "verify", str(directory)])
"""

SYNCED_DRIVES = """
import errno, fcntl, os, sys

synced, fallen_back = [], []
fcntl.F_FULLFSYNC = 51
real = os.fsync

def control(handle, command, *arguments):
    assert command == 51
    synced.append(handle)
    if len(synced) > 3:
        raise OSError(errno.ENOTSUP if len(synced) == 4 else errno.EIO, "refused")

fcntl.fcntl, os.fsync = control, fallen_back.append
from pathlib import Path
from trimaran.archive.disk.file_system import OsFileSystem

disk = OsFileSystem()
handle = disk.open_file(Path(sys.argv[1]) / "file", create=True)
disk.sync_data(handle)
disk.sync_file(handle)
disk.sync_directory(Path(sys.argv[1]))
assert (len(synced), fallen_back) == (3, [])
disk.sync_data(handle)
assert fallen_back == [handle], "a file system without the command gets an fsync"
try:
    disk.sync_data(handle)
except OSError as error:
    assert error.errno == errno.EIO, "an error of the drive is an error"
    print("fine")
"""


def run(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )


def test_recording_is_written_read_and_verified_without_what_only_linux_has(tmp_path: Path) -> None:
    result = run(WITHOUT_LINUX + WRITE_AND_READ, tmp_path / "archive")

    assert result.returncode == 0, result.stderr
    assert "64 1" in result.stdout.splitlines()


def test_macos_has_the_drive_write_what_is_synced(tmp_path: Path) -> None:
    result = run(WITHOUT_LINUX + SYNCED_DRIVES, tmp_path)

    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
