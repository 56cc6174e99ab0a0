"""Install a set of packages into the environment that runs this: `python -m tests.set_up suite`.

`constraints.txt` names every release, so nothing is resolved. pip installs uv, and uv downloads and unpacks the rest
side by side: for the packages of every set it took 11 s of processor time where pip took 56 s. If uv fails, pip
installs the same list.

PySpark exists only as source, with 460 MB of jars. A wheel of it is made without compression, since it is unpacked at
once: 11 s of processor time instead of 23 s. Bytecode is made for what the suite imports often: some machines tell
Python not to keep any (`PYTHONDONTWRITEBYTECODE`), and then each process would compile the modules again.

This module imports the standard library only, since nothing else is installed when it runs.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.constraints import CONSTRAINTS, CORE, PYTHONS, Pin, read_pins
from tests.places import ROOT

EXPECTED: Final = {
    CORE: "trimaran (4 s, 70 MB)",
    "report": "the report (10 s, 0.5 GB)",
    "spark": "Spark (half a minute, 1 GB)",
    "notebooks": "notebooks and Spark (half a minute, 1.3 GB)",
    "suite": "Spark, notebooks and the tests' packages (a minute, 1.5 GB)",
    "check": "linters and a type checker (10 s, 0.2 GB)",
    "campaign": "one more type checker (10 s, 0.3 GB)",
    "fuzz": "a fuzzer (5 s, 0.1 GB)",
    "bench": "peers and profilers of benchmarks (5 s, 20 MB)",
}
"""The name of each set for readers, and its cost on two cores with nothing in a cache."""

REPORT_INTERVAL_S: Final = 10.0
"""How often a step that lasts prints its newest line."""
_SELDOM_IMPORTED: Final = r"/(tests|pip|setuptools|Cython|fontTools|lexers|moto|mpl_toolkits)/"
_PIP: Final = (sys.executable, "-m", "pip")
_PIP_INSTALL: Final = (
    *(*_PIP, "install", "--no-deps", "--no-compile", "--progress-bar", "off", "--disable-pip-version-check"),
    *("--timeout", "20", "--retries", "2"),
)


_DISK_IS_FULL: Final = re.compile(r"No space left on device|os error 28\b")
_INDEX_IS_AWAY: Final = re.compile(r"connect|unreachable|timed out|resolution|dns error", re.IGNORECASE)


class SetUpError(Exception):
    """Set-up cannot go on; the text says in two lines why, and what to do."""


def explain(output: str) -> SetUpError:
    """Return the error for a failure of pip or uv: the first line of their reason, and what to do."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    lines = output.strip().splitlines() or ["no output"]
    first = next((line for line in lines if re.match("error", line, re.IGNORECASE)), lines[-1]).strip()[:300]
    if _DISK_IS_FULL.search(output):
        advice = "The disk is full: free 4 GB here, in ~/.cache and in the temporary directory, and run it again."
    elif _INDEX_IS_AWAY.search(output):
        advice = "The package index cannot be reached: check the network, or pip's index-url and proxy."
    elif python not in PYTHONS:
        advice = f"Python {python} is not one of {', '.join(PYTHONS)}: make clean, then again with PYTHON=/path/to/one."
    else:
        advice = f"{CONSTRAINTS.name} names a release that this machine cannot install."
    return SetUpError(f"{first}\n{advice}")


@contextmanager
def reports(lines: deque[str]) -> Iterator[None]:
    """Print every `REPORT_INTERVAL_S` how long it has taken, and the newest of these lines."""
    ended = threading.Event()
    started_s = time.monotonic()

    def report() -> None:
        while not ended.wait(REPORT_INTERVAL_S):
            newest = lines[-1].strip()[:80] if lines else ""
            print(f"    {time.monotonic() - started_s:.0f} s  {newest}", flush=True)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run(command: Sequence[str | Path], environment: Mapping[str, str]) -> str | None:
    """Run a command, and return its output if it fails."""
    lines: deque[str] = deque(maxlen=200)
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process, reports(lines):
        assert process.stdout is not None
        lines.extend(process.stdout)
    return "".join(lines) if process.returncode else None


def has_uv(pins: Sequence[Pin]) -> bool:
    """Have pip install the uv of `constraints.txt`, unless it is there; False if there is no uv for this machine.

    Raises:
        SetUpError: pip cannot install anything now.
    """
    (pin,) = (pin for pin in pins if pin.name == "uv")
    if any(found.version == pin.version for found in importlib.metadata.distributions(name="uv")):
        return True
    print("==> installing uv, which downloads the rest (3 s, 60 MB)", flush=True)
    failed = run((*_PIP_INSTALL, "--only-binary", ":all:", pin.requirement), {})
    if failed is not None and (_INDEX_IS_AWAY.search(failed) or _DISK_IS_FULL.search(failed)):
        raise explain(failed)
    return failed is None


def configured_index() -> dict[str, str]:
    """Return the setting that has uv use the package index of pip's configuration, if there is one."""
    listed = subprocess.run((*_PIP, "config", "list"), capture_output=True, text=True, check=False).stdout
    found = re.search(r"^(?:global|install|:env:)\.index-url='(.*)'$", listed, flags=re.MULTILINE)
    return {"UV_DEFAULT_INDEX": found[1]} if found else {}


def install(name: str) -> None:
    """Install a set, and trimaran itself with `CORE`.

    Raises:
        SetUpError: Neither uv nor pip can install it.
    """
    pins = read_pins()
    listing = Path(sys.prefix, f"set-{name}.txt")
    listing.write_text("".join(f"{pin.requirement}\n" for pin in pins if not {CORE, name}.isdisjoint(pin.sets)))
    wanted = ("--requirement", listing, *(("--editable", ROOT) if name == CORE else ()))
    stored = Path(sys.prefix, "stored-wheels.cfg")
    stored.write_text("[bdist_wheel]\ncompression = stored\n")
    building = {"DIST_EXTRA_CONFIG": str(stored)}

    uv = (Path(sys.executable).with_name("uv"), "pip", "install", "--python", sys.executable, "--system-certs")
    options = ("--no-deps", "--build-constraints", CONSTRAINTS)

    failed: str | None = "no uv"
    if has_uv(pins):
        print(f"==> installing {EXPECTED[name]}", flush=True)
        failed = run((*uv, *options, *wanted), {**building, **configured_index()})
    if failed is not None and not _DISK_IS_FULL.search(failed):
        print(f"==> installing {EXPECTED[name]} with pip instead of uv: this takes longer", flush=True)
        failed = run((*_PIP_INSTALL, *wanted), building)
    if failed is not None:
        raise explain(failed)


def compile_packages() -> None:
    """Write the bytecode that is missing."""
    print("==> compiling to bytecode (2 to 15 s)", flush=True)
    command = ("-m", "compileall", "-q", "-j", "0", "-x", _SELDOM_IMPORTED, sysconfig.get_path("purelib"))
    run((sys.executable, *command), {})


def note_slow_build() -> None:
    """Print a note if the interpreter is a slow build; only other processes can import what was installed just now."""
    program = "from trimaran.service_api.python_build import is_slow_build; print(is_slow_build())"
    answer = subprocess.run((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True, check=False).stdout
    if answer.strip() == "True":
        print("==> this Python was compiled without a profile, which makes it slow: see docs/deploying.md#which-python")


def main(name: str) -> int:
    """Install a set, and print its steps; the exit status."""
    started_s = time.monotonic()
    try:
        install(name)
        compile_packages()
        if name == CORE:
            note_slow_build()
    except SetUpError as error:
        print(f"make: set-up has failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"==> installed in {time.monotonic() - started_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
