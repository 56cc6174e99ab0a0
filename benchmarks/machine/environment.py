"""Where figures come from: machine, software, file system, commit."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from ...service_api.processors import count_processors
from ...service_api.python_build import describe_python
from ...service_api.wire.checksum import CRC32_SOURCE

_PROJECT_DIR: Final = Path(__file__).resolve().parents[2]
_GC_THRESHOLDS: Final = (50_000, 50, 100)

_NOT_MEASURED: Final = (":(exclude)benchmarks/results", ":(exclude)docs")
"""What figures are written to: a second benchmark finds there what the first one has written."""


def tune_garbage_collector() -> None:
    """Take what start-up made out of the collector's sight and let it look at the rest less often.

    Client processes call it after their connect; `describe` says so. Members do as the node does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def describe(data_dir: Path | None) -> dict[str, object]:
    """Collect what a reader needs to judge figures; `data_dir` is where members keep their recordings."""
    return {
        "python": describe_python(),
        "uvloop": _version_of("uvloop"),
        "pydantic": _version_of("pydantic"),
        "checksums": f"{CRC32_SOURCE} {_version_of(CRC32_SOURCE) or zlib.ZLIB_RUNTIME_VERSION}",
        "trimaran": _version_of("trimaran"),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "git_commit": commit_of(_PROJECT_DIR),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu_model": _cpu_model(),
        "cores": count_processors(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "tcp_congestion_control": _tcp_congestion_control(),
        "file_system": None if data_dir is None else file_system_of(data_dir),
        "client_event_loop": "uvloop",
        "client_gc": f"freeze after connect, thresholds {_GC_THRESHOLDS}",
    }


def node_settings(names: Sequence[str], given: Mapping[str, object]) -> dict[str, object]:
    """The settings of these names as members have them, and all that were given; the rest are defaults."""
    from ...cluster.settings.config import NodeConfig

    return {**{name: NodeConfig.model_fields[name].default for name in names}, **given}


def file_system_of(path: Path) -> str:
    """Name the kind of file system that `path` lies on and its device, as "ext4 on /dev/vda"."""
    path = path.resolve()
    best, answer = -1, "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount_point, kind = line.split()[:3]
        if path.is_relative_to(mount_point) and len(mount_point) >= best:
            best, answer = len(mount_point), f"{kind} on {device}"
    return answer


def _tcp_congestion_control() -> str | None:
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return None


def _version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def commit_of(project_dir: Path) -> str | None:
    """The commit of a tree, with "+changes" when files differ from it that are measured; None outside a clone."""
    try:
        commit = _git(project_dir, "rev-parse", "--short=12", "HEAD")
        changes = _git(project_dir, "status", "--porcelain", "--untracked-files=no", "--", ".", *_NOT_MEASURED)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+changes" if changes else commit


def _git(project_dir: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("git", "-C", str(project_dir), *arguments), capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
