"""What a compiler would bring: the copy with functions in C does what the package does, and a failed build says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran.benchmarks.compiled import build
from trimaran.benchmarks.guard.stand_ins import CHUNK_MESSAGES
from trimaran.benchmarks.scenarios.compiled import CompiledParameters
from trimaran.service_api import ConfigurationError

_EGRESS_OF_ECHOES = """
import hashlib
from trimaran.benchmarks.guard import paths
from trimaran.cluster.service.client_session import ContainerClientSession
written, count = hashlib.sha256(), 0
def write(self, data):
    global count
    count += len(data)
    written.update(data)
paths._Outlet.write = write
path = paths.make_paths(33)["deliver_and_egress"]()
for _ in range(3):
    path()
print(ContainerClientSession.offer.__class__.__name__, count, written.hexdigest())
"""


def egress_of_echoes(place: Path | None) -> list[str]:
    changed = {} if place is None else {"PYTHONPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-c", _EGRESS_OF_ECHOES], env={**os.environ, **changed}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_two_functions_in_c_send_what_python_sends(tmp_path: Path) -> None:
    in_python, in_c = egress_of_echoes(None), egress_of_echoes(build.build_functions(tmp_path))

    assert (in_python[0], in_c[0]) == ("function", "cython_function_or_method")
    assert in_c[1:] == in_python[1:]
    assert int(in_c[1]) == 3 * CHUNK_MESSAGES * 128  # a payload of 33 bytes with its headers


def test_a_copy_that_cannot_be_built_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_BUILD", "raise SystemExit('gcc: not found')")

    with pytest.raises(ConfigurationError, match=r"not built: gcc: not found; expected Cython, setuptools and a C"):
        build.build_modules(tmp_path)


def test_values_that_make_no_run_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"rounds=0 messages=300000 expected at least 1"):
        CompiledParameters(rounds=0)
