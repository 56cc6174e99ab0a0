"""Members on this machine: ports, and that none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until, wait_blocking
from trimaran.cluster.cli.shared.local_nodes import LocalNodes, LocalNodesError, NodeProcess, free_base_ports

DEADLINE_S = 60.0

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


async def add_process(nodes: LocalNodes, directory: Path, program: str) -> NodeProcess:
    """Put a process that is no node in a node's place."""
    log_file = directory / f"node-{len(nodes.nodes)}.log"
    with log_file.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=log, stderr=log, start_new_session=True
        )
    node = NodeProcess(len(nodes.nodes), directory, log_file, process)
    nodes.nodes.append(node)
    return node


def make_nodes(directory: Path) -> LocalNodes:
    return LocalNodes(directory, ["127.0.0.1:1", "127.0.0.1:11", "127.0.0.1:21"], {})


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_base_ports_have_five_free_ports_each_and_do_not_overlap() -> None:
    bases = free_base_ports(5)

    ports = {base + i for base in bases for i in range(5)}
    assert len(ports) == 25
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


async def test_a_node_that_ends_unasked_is_told_with_the_tail_of_its_log(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path)
    node = await add_process(nodes, tmp_path, "print('last words'); raise SystemExit(3)")

    with pytest.raises(LocalNodesError, match="member_id=0 exit_status=3") as caught:
        await nodes.watch(node)

    assert "  last words" in str(caught.value)


async def test_stop_ends_nodes_in_order_and_their_watchers_are_content(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path)
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    node = await add_process(nodes, tmp_path, program)
    await until(lambda: b"up" in node.log_file.read_bytes())

    watching = asyncio.create_task(nodes.watch(node))
    await nodes.stop()
    await watching

    assert node.process.returncode == 0


async def test_close_kills_what_still_runs(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path)
    node = await add_process(nodes, tmp_path, SLEEPER)

    await nodes.close()

    assert node.process.returncode == -signal.SIGKILL
    assert nodes.running() == []


async def test_a_killed_node_is_expected_to_end(tmp_path: Path) -> None:
    nodes = make_nodes(tmp_path)
    node = await add_process(nodes, tmp_path, SLEEPER)

    nodes.kill(0)
    await nodes.watch(node)

    assert node.process.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the death of a parent")
def test_a_child_dies_with_a_demo_that_was_killed() -> None:
    """1 the demo starts a node, 2 the demo is killed with SIGKILL, 3 the kernel kills the node."""
    child = (
        "import sys, time\n"
        "from trimaran.cluster.cli.shared.local_child import end_with_parent\n"
        "end_with_parent(int(sys.argv[1]))\n"
        "print('bound', flush=True); time.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
        "p.wait()"
    )
    demo = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    with demo:
        assert demo.stdout is not None
        child_pid = int(demo.stdout.readline())
        demo.kill()

    wait_blocking(lambda: None if is_alive(child_pid) else True, timeout_s=DEADLINE_S, what="the end of the child")
