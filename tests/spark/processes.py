"""Spark's own servers as processes on loopback, and the Python of a machine that has Spark but not Trimaran."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark

from tests.waiting import patient, wait_blocking
from trimaran.archive.spark import ensure_java

SPARK_HOME = Path(pyspark.__file__).parent
LIBRARIES = ("fsspec", "numpy", "numpy.libs", "pyarrow", "pyarrow.libs")
"""What a machine must have for reading, besides Spark's own Python files, which Spark brings; fsspec for URLs only."""

DEADLINE_S = 90


def make_bare_python(directory: Path) -> Path:
    """Write a `python` that has Spark, numpy and pyarrow, and nothing else that is installed.

    Without `site` (-S) neither the directory of packages nor the .pth file that points at the checkout is on the
    path. Spark itself puts its `pyspark.zip` and what is shipped on PYTHONPATH.
    """
    packages = directory / "packages"
    packages.mkdir(parents=True)
    installed = Path(sysconfig.get_paths()["purelib"])
    for name in LIBRARIES:
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def bare_environment(**others: str) -> dict[str, str]:
    """The environment of Spark's servers: nothing of ours, no PYTHONPATH, and a Java."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PATH": "/usr/bin:/bin",
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        **others,
    }


@contextlib.contextmanager
def run_server(
    command: list[str], pattern: str, directory: Path, environment: Mapping[str, str]
) -> Iterator[re.Match[str]]:
    """Run a server in a directory of its own, give what it says when it is ready, and end it by its id.

    Raises:
        AssertionError: it does not say so before the deadline; with what it said instead.
    """
    directory.mkdir(parents=True)
    log = directory / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield _wait_for(pattern, log, process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=patient(30))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(pattern: str, log: Path, process: subprocess.Popen[bytes]) -> re.Match[str]:
    def find() -> re.Match[str] | None:
        is_over = process.poll() is not None
        match = re.search(pattern, log.read_text(errors="replace"))
        assert match is not None or not is_over, log.read_text(errors="replace")
        return match

    return wait_blocking(find, timeout_s=DEADLINE_S, what=lambda: f"{pattern!r}:\n{log.read_text(errors='replace')}")


def run_job(script: Path, *arguments: str, environment: Mapping[str, str]) -> Any:
    """Run a driver or client in a process of its own, and give what it prints as JSON in its last line.

    Raises:
        AssertionError: it ends with an error; with all that it said.
    """
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=patient(150), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
