"""The directories that a real Aeron left, the truth beside them, and the commands that read them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.testing import CliRunner

from tests.places import AERON
from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.cluster.cli.app import build_app, report_error

CLUSTER_NODES = (
    "single-node-node0",
    "checksummed-node0",
    "torn-node0",
    *(f"three-node-failover-node{i}" for i in range(3)),
    *(f"three-crc32c-node{i}" for i in range(3)),
    "there-and-back-node0",
    *(f"there-and-back-three-node{i}" for i in range(3)),
)
"""The last four are of Trimaran, and real members went on with them."""
SEEDED_NODES = ("seeded-node0", "seeded-node1")
"""One of those after `ClusterTool seed-recording-log-from-snapshot`; and after a real member has gone on from there."""
BACKUP_NODES = ("cluster-backup-node0", "cluster-backup-late-node0")
"""What Aeron's ClusterBackup keeps beside a running cluster: from the beginning of the log, and from a snapshot of the
second term on."""
APPLICATION_NODES = ("application-none-node0", "application-crc32-node0", "application-crc32c-node0")
"""Archives without a cluster, with what applications do to frames: claims given up, padding appended anywhere in a
term, claims of a client that died, flags of their own, two publishers of one stream, extended recordings, segments
that were migrated, replication with tags. By their checksums."""
NODES = (*CLUSTER_NODES, *BACKUP_NODES, "archive-only-node0", *APPLICATION_NODES)
SCENARIOS = (
    "single-node",
    "checksummed",
    "torn",
    "archive-only",
    "application-none",
    "application-crc32",
    "application-crc32c",
    "application-types",
    "three-node-failover",
    "three-crc32c",
    "there-and-back",
    "tool-changed",
    "there-and-back-three",
    "seeded",
    "state-files",
    "torn-variants",
    "cluster-backup",
    "cluster-backup-late",
)


class Sample(NamedTuple):
    """One node's directory, and what the real programs said of it."""

    name: str
    directory: Path

    @property
    def truth(self) -> dict[str, Any]:
        return truth_of(self.name)

    def said(self, tool: str) -> str:
        """What a real tool printed, without its own first line."""
        text = (AERON / "tools" / self.name / f"{tool}.txt").read_text(encoding="utf-8", errors="replace")
        return text.partition("\n")[2]


@cache
def truth_of(name: str) -> dict[str, Any]:
    return load_truth(name)


def unpack_all(target: Path) -> Path:
    for scenario in SCENARIOS:
        extract_sample(scenario, target)
    return target


def sample_of(root: Path, name: str) -> Sample:
    scenario, _, node = name.rpartition("-")
    return Sample(name, root / scenario / node)


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


@cache
def app_of(command: str) -> typer.Typer:
    """The app with one command of `trimaran` imported."""
    return build_app([command])


def run(*arguments: object) -> Ended:
    """Run a command of `trimaran` as `main` does, in this process; what would be a traceback is raised."""
    argv = [str(argument) for argument in arguments]
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app_of(argv[0]), argv)
    if result.exception is None or isinstance(result.exception, SystemExit):
        return Ended(result.exit_code, result.stdout, result.stderr)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = report_error(result.exception)
    return Ended(status, result.stdout, result.stderr + said.getvalue())


def as_lines(rows: list[dict[str, Any]]) -> list[str]:
    """What a program that knows nothing of ours prints of rows: one object a line, as `json.dumps` does."""
    return [json.dumps(row) for row in rows]


def frames_of(truth: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"recording_id": r["recording_id"], **frame} for r in truth["recordings"] for frame in r["frames"]]


def messages_of(truth: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"recording_id": r["recording_id"], **message} for r in truth["recordings"] for message in r["messages"]]


def link_directory(source: Path, target: Path, *, copied: str | None = None) -> Path:
    """Make a directory with the files of another; only the one named `copied` is a copy and may be changed."""
    for path in files_of(source):
        other = target / path.relative_to(source)
        other.parent.mkdir(parents=True, exist_ok=True)
        if path.name == copied:
            shutil.copyfile(path, other)
        else:
            os.link(path, other)
    return target


def files_of(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())
