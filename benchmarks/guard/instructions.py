"""Counts the machine instructions of the hot paths under callgrind, which come out the same on a busy machine.

One Python process runs under `valgrind --tool=callgrind`, imports everything once and forks twice for each path: one
child takes a few chunks of messages through, the other some more. The difference belongs to the messages alone. Run as
a module with a directory and a payload length, this is what runs under valgrind: each child leaves the file that
callgrind writes, and a line on standard output says which path and how many chunks it stands for.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...service_api.errors import ClusterError, ConfigurationError
from ...service_api.python_build import describe_python
from .paths import make_paths
from .stand_ins import CHUNK_MESSAGES

_WARMUP_CHUNKS: Final = 4
_FEW_CHUNKS, _MORE_CHUNKS = 4, 12
_HOLE_BYTES: Final = [512 * 9**power // 8**power for power in range(41, 0, -1)]
_HOLE_COUNT: Final = 50
"""So many free places of each size are filled before the paths run: see `_fill_holes`."""

_TIMEOUT_S: Final = 600.0
_PROJECT_DIR: Final = Path(__file__).resolve().parents[2]


def interpreter() -> str:
    """What counts depend on besides our own code: they are compared for the same interpreter only."""
    return f"{describe_python()}, {platform.python_compiler()}, {platform.machine()}"


def count_instructions(payload_length: int, *, only: Sequence[str] = ()) -> dict[str, int]:
    """Count the instructions that one message takes on each path, or on some of them.

    Raises:
        ConfigurationError: there is no valgrind, or no path of such a name.
        ClusterError: it failed; the error ends with what it printed.
    """
    names = make_paths(payload_length)
    unknown = [name for name in only if name not in names]
    if unknown:
        raise ConfigurationError(f"only={','.join(unknown)} expected some of {','.join(names)}")
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise ConfigurationError("instructions are counted by valgrind, which is not installed: apt install valgrind")
    with tempfile.TemporaryDirectory() as directory:
        command = [
            valgrind,
            "--tool=callgrind",
            f"--callgrind-out-file={directory}/counts.%p",
            sys.executable,
            "-m",
            "trimaran.benchmarks.guard.instructions",
            str(payload_length),
            *only,
        ]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command, cwd=_PROJECT_DIR, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise ClusterError(f"callgrind failed: exit_status={done.returncode}\n{done.stderr[-2000:]}")
        totals: dict[str, dict[int, int]] = {}
        for line in done.stdout.splitlines():
            child = json.loads(line)
            totals.setdefault(child["path"], {})[child["chunks"]] = _total(Path(directory), child["pid"])
    messages = (_MORE_CHUNKS - _FEW_CHUNKS) * CHUNK_MESSAGES
    return {name: round((found[_MORE_CHUNKS] - found[_FEW_CHUNKS]) / messages) for name, found in totals.items()}


def _total(directory: Path, pid: int) -> int:
    """Read how many instructions a process executed."""
    text = (directory / f"counts.{pid}").read_text()
    line = next(line for line in text.splitlines() if line.startswith(("summary:", "totals:")))
    return int(line.split()[1])


def _run_all(payload_length: int, names: Sequence[str]) -> None:
    """Under valgrind: fork for each path, or each that is named, and number of chunks."""
    gc.disable()
    holes = _fill_holes()
    paths = make_paths(payload_length)
    for name in names or paths:
        for chunks in (_FEW_CHUNKS, _MORE_CHUNKS):
            sys.stdout.flush()
            pid = os.fork()
            if not pid:
                run = paths[name]()
                for _ in range(_WARMUP_CHUNKS + chunks):
                    run()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            if status:
                sys.exit(f"path {name} failed: status={status}")
            print(json.dumps({"path": name, "chunks": chunks, "pid": pid}))
    del holes


def _fill_holes() -> list[bytearray]:
    """Fill the free places that the imports have left in the heap; they stay filled as long as the result is held.

    A buffer that grows in such a place is copied when it reaches the end of it; at the end of the heap it is not. So an
    import more or less would move the count of a path that fills buffers, by up to 8 %.
    """
    return [bytearray(size) for size in _HOLE_BYTES for _ in range(_HOLE_COUNT)]


if __name__ == "__main__":
    _run_all(int(sys.argv[1]), sys.argv[2:])
