"""What other operating systems lack is taken away in a process of its own, and what is promised there still works.

No Mac and no Windows is used here: `docs/platforms.md` says what was run where. Each process starts on this system,
takes names and modules away before it imports Trimaran, and then does what a user there does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.waiting import patient
from trimaran.benchmarks.rig.processes import find_base_ports

pytestmark = pytest.mark.slow

TAKING_AWAY = """
import asyncio, errno, faulthandler, importlib.abc, os, resource, select, signal, socket, sys

class Absent(importlib.abc.MetaPathFinder):
    def __init__(self, *names):
        self.names = names
        for name in [*sys.modules]:
            if name.partition(".")[0] in names:
                del sys.modules[name]

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def without_modules(*names):
    sys.meta_path.insert(0, Absent(*names))

def without(owner, names):
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)

def lacking(self):
    raise AttributeError("sendmsg")

def without_messages():
    socket.socket.sendmsg = socket.socket.recvmsg = property(lacking)
    asyncio.selector_events._HAS_SENDMSG = False

def without_unix_sockets():
    without(socket, "AF_UNIX")
    def pair(*arguments):
        with socket.create_server(("127.0.0.1", 0)) as server:
            one = socket.create_connection(server.getsockname())
            return one, server.accept()[0]
    socket.socketpair = pair

def macos():
    without(os, "fdatasync posix_fadvise posix_fallocate preadv pwritev sched_getaffinity sched_setaffinity "
        "sched_getscheduler sched_setscheduler sched_yield SCHED_OTHER SCHED_BATCH SCHED_IDLE pipe2 eventfd splice "
        "process_cpu_count")
    without(select, "POLLRDHUP epoll")
    without(socket, "TCP_USER_TIMEOUT TCP_KEEPIDLE SO_PEERCRED")
    isdir, listdir, stat = os.path.isdir, os.listdir, os.stat
    def is_hidden(path):
        return isinstance(path, str) and path.startswith("/proc")
    def hidden(real):
        def call(path=".", *arguments, **options):
            if is_hidden(path):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            return real(path, *arguments, **options)
        return call
    os.path.isdir = lambda path: not is_hidden(path) and isdir(path)
    os.listdir, os.stat = hidden(listdir), hidden(stat)

def windows():
    macos()
    without_modules("fcntl", "resource", "pwd", "grp", "termios", "tty", "uvloop")
    without(os, "fork forkpty fchmod fchown pread pwrite geteuid getuid getgid getegid uname statvfs sysconf "
        "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK killpg setsid getpgid mkfifo sync")
    without_unix_sockets()
    without(socket, "SO_REUSEPORT")
    without_messages()
    without(select, "poll PIPE_BUF")
    without(signal, "SIGHUP SIGKILL SIGPROF pthread_sigmask setitimer ITIMER_PROF")
    without(faulthandler, "register")
    def refused(*arguments, **options):
        raise NotImplementedError
    asyncio.BaseEventLoop.add_signal_handler = refused
    asyncio.SelectorEventLoop.add_signal_handler = refused
"""

LACKS = {
    "os.fdatasync": 'without(os, "fdatasync")',
    "os.fork": 'without(os, "fork forkpty")',
    "sendmsg": "without_messages()",
    "AF_UNIX": "without_unix_sockets()",
    "SO_PEERCRED": 'without(socket, "SO_PEERCRED")',
    "SO_REUSEPORT": 'without(socket, "SO_REUSEPORT")',
    "resource": 'without_modules("resource")',
    "fcntl": 'without_modules("fcntl")',
    "pwd": 'without_modules("pwd", "grp")',
    "termios": 'without_modules("termios", "tty")',
    "uvloop": 'without_modules("uvloop")',
    "os.pread": 'without(os, "pread pwrite preadv pwritev")',
    "os.geteuid": 'without(os, "geteuid getuid O_CLOEXEC O_DIRECTORY O_NOFOLLOW")',
    "select.poll": 'without(select, "poll PIPE_BUF POLLRDHUP")',
    "SIGHUP": 'without(signal, "SIGHUP SIGPROF pthread_sigmask setitimer"); without(faulthandler, "register")',
    "all of macOS": "macos()",
    "all of Windows": "windows()",
}
"""What is taken away, one by one, and then all that a system lacks."""

IN_THE_SUITE = ("node", "uvloop", "all of macOS", "all of Windows")
CAMPAIGN = pytest.mark.campaign

USING = """
import contextlib, io
import trimaran
from pathlib import Path
from trimaran import ClusterClient, ClusteredService, SyncClusterClient, TypedClient
from trimaran.archive import frames
from trimaran.cluster.cli import main
from trimaran.cluster.testing import MemoryCluster

def command(*arguments):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main([*arguments])
    except SystemExit as end:
        return end.code or 0, said.getvalue()
    return 0, said.getvalue()

class Counter(ClusteredService):
    total = 0

    def on_request(self, session, timestamp, payload):
        self.total += int(bytes(payload))
        return str(self.total).encode()

def ask():
    with MemoryCluster(Counter) as cluster:
        async def requests():
            client = await cluster.connect()
            await client.request(b"1")
            cluster.kill_leader()
            return await client.request(b"2")

        return cluster.run(requests())

async def ask_member(endpoint):
    async with ClusterClient.connect([endpoint]) as client:
        return await client.request(b"0")

def check(name, found, expected):
    assert found == expected, f"{name}: {found!r} expected {expected!r}"

archive, endpoint = sys.argv[2:]
check("a client", asyncio.run(ask_member(endpoint)), b"0")
with SyncClusterClient.connect([endpoint]) as client:
    check("a client without asyncio", client.request(b"0"), b"0")
status, said = command("status", "--members", f"0={endpoint}", "-o", "json")
check("status", (status, "LEADER" in said), (0, True))
check("health", command("health", "--members", f"0={endpoint}")[0], 0)
check("a cluster in memory", ask(), b"3")
if IS_SIMULATED:
    quickly = ("--length", "0.01", "--without", "all", "--trace-file", os.devnull)
    check("sim", command("sim", "--seeds", "0:1", *quickly)[0], 0)
check("verify", command("archive", "verify", archive)[0], 0)
status, said = command("archive", "dump", archive, "-o", "jsonl", "--messages")
check("dump", (status, b"hello".hex() in said), (0, True))
check("frames", sum(batch.num_rows for batch in frames(Path(archive))), 1)
print("fine")
"""

REFUSED = """
from trimaran.cluster.cli import main
try:
    main([*ARGUMENTS])
except SystemExit as end:
    print(f"status={end.code}")
"""

NEEDING_A_MEMBER = {
    "node": ("--member-id", "0", "--members", "0=127.0.0.1:1", "--directory", "d", "--service", "m:S"),
    "up": (),
    "demo": (),
    "archive serve": ("d", "--port", "1"),
    "backup run": ("--directory", "d", "--members", "0=127.0.0.1:1"),
}
"""Commands that run a member or write as one, and the least that they are called with."""

MAKING_AN_ARCHIVE = """
import asyncio, sys
from pathlib import Path
from trimaran.archive import Archive, ArchiveConfig
from trimaran.service_api.wire.frame import encode_frame

async def write():
    config = ArchiveConfig(term_length_bytes=1 << 16, segment_length_bytes=1 << 16, checksums=False, file_sync_level=0)
    archive = await Archive.launch(Path(sys.argv[1]), config, clock_ms=lambda: 1)
    recording = await archive.start_recording(stream_id=7, session_id=8, channel="c", source_identity="s")
    recording.append(encode_frame(b"hello", session_id=8, stream_id=7))
    recording.flush()
    await recording.stop()
    await archive.aclose()

asyncio.run(write())
"""


FORKING = """
import json, os, sys
# What is not ours is imported once: a fork takes it along.
import aiofiles, numpy, prometheus_client, pyarrow, pydantic_settings, rich.console, rich.live, rich.table, ssl
import structlog, typer

# The first process compiles Trimaran for the others, also where Python is told to keep no bytecode.
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1] + "-bytecode", False

for name, program in json.loads(sys.stdin.read()).items():
    child = os.fork()
    if not child:
        with open(os.path.join(sys.argv[1], name), "w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            try:
                exec(compile(program, name, "exec"), {"__name__": "__main__"})
                status = 0
            except SystemExit as end:
                status = end.code
            except BaseException:
                import traceback
                traceback.print_exc()
                status = 70
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    os.waitpid(child, 0)
"""
"""Runs each program in a process of its own, which begins with the packages that Trimaran needs, and nothing of it."""

COUNTER = """
from trimaran import ClusteredService

class Counter(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return bytes(payload)
"""


def run(program: str, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=patient(170),
        check=False,
    )


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Each lack and command that is asked for, and the output of the process that did without."""
    wanted = {
        value
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
        for value in item.callspec.params.values()
    }
    directory = tmp_path_factory.mktemp("platforms")
    (directory / "counter.py").write_text(COUNTER)
    endpoint = f"127.0.0.1:{find_base_ports(1)[0]}"
    settings = ("--member-id", "0", "--members", f"0={endpoint}", "--directory", "data", "--service", "counter:Counter")
    node = subprocess.Popen(
        [sys.executable, "-m", "trimaran", "node", *settings],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        made = run(MAKING_AN_ARCHIVE, directory / "archive")
        assert made.returncode == 0, made.stderr
        outputs = directory / "outputs"
        outputs.mkdir()
        programs = {
            lack: f"{TAKING_AWAY}IS_SIMULATED = {lack.startswith('all of')}\n{taking}{USING}"
            for lack, taking in LACKS.items()
        }
        for command, flags in NEEDING_A_MEMBER.items():
            programs[command] = f"{TAKING_AWAY}windows()\nARGUMENTS = {[*command.split(), *flags]}{REFUSED}"
        programs = {name: program for name, program in programs.items() if name in wanted}
        done = run(FORKING, outputs, directory / "archive", endpoint, text=json.dumps(programs))
        assert done.returncode == 0, done.stderr
        yield {file.name: file.read_text() for file in outputs.iterdir()}
    finally:
        node.kill()
        node.wait()


@pytest.mark.parametrize("lack", [pytest.param(lack, marks=() if lack in IN_THE_SUITE else CAMPAIGN) for lack in LACKS])
def test_what_is_promised_everywhere_works_without(lack: str, said: dict[str, str]) -> None:
    """A client, status, health, a cluster in memory and reading an archive; with all that a system lacks the simulator,
    which takes seconds."""
    assert said[lack] == "fine\n"


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=() if each in IN_THE_SUITE else CAMPAIGN) for each in NEEDING_A_MEMBER]
)
def test_a_command_that_takes_a_member_says_what_it_needs(command: str, said: dict[str, str]) -> None:
    output = " ".join(said[command].split())

    assert "Traceback" not in output
    assert f"`trimaran {command}` needs Linux or macOS" in output
    assert "WSL 2" in output
    assert output.endswith("status=2")
