"""`make notebooks`: JupyterLab on loopback, with a token, and the notebooks in it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from notebooks.execute import scripts
from tests.places import ROOT
from tests.waiting import patient, wait_blocking

INSTALLED: Final = (".venv/.installed-core", ".venv/.installed-notebooks")
DEADLINE_S: Final = 60

pytestmark = pytest.mark.slow


@contextmanager
def jupyter_lab(directory: Path) -> Iterator[tuple[str, str]]:
    """Run `make notebooks` on a port that is free; gives the address and the token that it prints."""
    output = directory / "output"
    homes = {f"JUPYTER_{name}_DIR": str(directory / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    old = [part for file in INSTALLED for part in ("--old-file", file)]  # what is installed is what is tested
    with output.open("w") as stream:
        process = subprocess.Popen(
            ["make", *old, "notebooks", "ARGS=--no-browser --ServerApp.port=0"],
            cwd=ROOT,
            env={**os.environ, **homes},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield find_address(output, process)
    finally:
        with suppress(ProcessLookupError):  # it has ended, and the test says so
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(patient(DEADLINE_S))


def find_address(output: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    def find() -> tuple[str, str] | None:
        found = re.search(r"(http://[\w.]+:\d+)/lab\?token=(\w+)\s", output.read_text())
        if found is not None and listens(found[1]):
            return found[1], found[2]
        assert process.poll() is None, output.read_text()
        return None

    return wait_blocking(find, timeout_s=DEADLINE_S, what=lambda: f"an address:\n{output.read_text()}")


def listens(address: str) -> bool:
    """Whether somebody takes connections there; Jupyter prints where it will listen shortly before it does."""
    url = urlsplit(address)
    try:
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=patient(DEADLINE_S)):
            return True
    except ConnectionRefusedError:
        return False


def get(url: str, token: str | None = None) -> Any:  # Any: JSON
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=patient(DEADLINE_S)) as answer:
        return json.load(answer)


def test_make_notebooks_opens_jupyterlab_on_the_notebooks(tmp_path: Path) -> None:
    with jupyter_lab(tmp_path) as (address, token):
        listing = get(f"{address}/api/contents", token)
        first = get(f"{address}/api/contents/{scripts()[0].with_suffix('.ipynb').name}", token)
        kernels = get(f"{address}/api/kernelspecs", token)
        with pytest.raises(HTTPError, match="403"):
            get(f"{address}/api/contents")

    names = {entry["name"] for entry in listing["content"]}
    assert address.startswith("http://127.0.0.1:")
    assert {script.with_suffix(".ipynb").name for script in scripts()} <= names
    assert kernels["default"] == first["content"]["metadata"]["kernelspec"]["name"]
