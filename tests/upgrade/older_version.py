"""The older version that today's must run beside: a commit of this repository, as a wheel in an environment of its own.

`baseline.txt` names the commit. Its wheel is built from `git archive` with the build backend of this environment, and
takes what it depends on from here: no registry is asked. What was built stays under `build/upgrade`, by commit.
"""

from __future__ import annotations

import fcntl
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Final

from tests.places import ROOT

BASELINE_FILE: Final = Path(__file__).parent / "baseline.txt"
_BUILD_DIR: Final = ROOT / "build" / "upgrade"


def read_baseline() -> str:
    """The commit id of the older version: the first line that is no comment."""
    lines = [line.split("#")[0].strip() for line in BASELINE_FILE.read_text().splitlines()]
    return next(line for line in lines if line)


def older_python() -> Path:
    """The Python of the environment in which the older version is installed; made by the first that asks."""
    commit = read_baseline()
    _BUILD_DIR.mkdir(parents=True, exist_ok=True)
    environment = _BUILD_DIR / commit
    with (_BUILD_DIR / "lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not environment.exists():
            with tempfile.TemporaryDirectory(dir=_BUILD_DIR) as scratch:
                _make(Path(scratch), commit).rename(environment)
    return environment / "bin" / "python"


def _make(scratch: Path, commit: str) -> Path:
    """Make the environment in a directory that can be moved."""
    source, environment = scratch / "source", scratch / "environment"
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    assert archive.returncode == 0, (
        f"{BASELINE_FILE} names commit {commit}, which git cannot read here: {archive.stderr.decode().strip()}; the "
        "test needs the whole history: git fetch --unshallow"
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        # Python 3.11.3 and older have neither the argument nor the filter; the data is our own.
        files.extraction_filter = getattr(tarfile, "tar_filter", lambda member, path: member)
        files.extractall(source)
    _run("build", "--wheel", "--no-isolation", "--outdir", str(scratch), str(source))
    (wheel,) = scratch.glob("trimaran-*.whl")
    venv.create(environment, with_pip=False)
    packages = next(environment.glob("lib/python*/site-packages"))
    _run("pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", "--target", str(packages), str(wheel))
    # Without its .pth files, so that this checkout is not among what is found there.
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(shared)))
    shutil.rmtree(source)
    return environment


def _run(module: str, *arguments: str) -> None:
    result = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{module} {arguments}\n{result.stdout}\n{result.stderr}"
