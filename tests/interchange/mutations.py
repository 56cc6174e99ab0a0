"""Changing one value in a copy of a real directory, and what every command then says of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.interchange.samples import Ended, link_directory, run

Value = int | str
"""A number to write, or text such as "+1" for what is added to the number that stands there."""


class Field(NamedTuple):
    """Where a number lies in a structure, and its format."""

    offset: int
    format: str


FRAME_HEADER = {
    "frame_length": Field(0, "<i"),
    "version": Field(4, "<B"),
    "flags": Field(5, "<B"),
    "type": Field(6, "<H"),
    "term_offset": Field(8, "<i"),
    "session_id": Field(12, "<i"),
    "stream_id": Field(16, "<i"),
    "term_id": Field(20, "<i"),
    "reserved_value": Field(24, "<q"),
    "payload": Field(32 + 16, "<B"),
}
MESSAGE_HEADER = {
    "block_length": Field(32, "<H"),
    "template_id": Field(34, "<H"),
    "schema_id": Field(36, "<H"),
    "schema_version": Field(38, "<H"),
}
"""Of the message in a frame, counted from where the frame begins."""

ARCHIVE_COMMANDS = (("describe",), ("verify",), ("dump",), ("dump", "--messages"))


class ClusterOutcome(NamedTuple):
    """How the commands ended that read a member's small files."""

    recording_log: Ended
    recovery_plan: Ended
    state: Ended


class Outcome(NamedTuple):
    """How every command ended on one directory."""

    describe: Ended
    verify: Ended
    dump: Ended
    messages: Ended
    cluster: ClusterOutcome

    @property
    def statuses(self) -> tuple[int, int, int, int]:
        """The exit statuses of the archive's commands: describe, verify, dump, dump --messages."""
        return (self.describe.exit_code, self.verify.exit_code, self.dump.exit_code, self.messages.exit_code)

    @property
    def recovery_plan(self) -> Ended:
        return self.cluster.recovery_plan


def write_value(path: Path, offset: int, format_: str, value: Value) -> None:
    """Write a number into a file."""
    data = bytearray(path.read_bytes())
    (old,) = struct.unpack_from(format_, data, offset)
    struct.pack_into(format_, data, offset, old + int(value) if isinstance(value, str) else value)
    path.write_bytes(data)


def mutated(source: Path, target: Path, name: str, change: Callable[[Path], object]) -> Path:
    """Make a directory like `source` in which one file is changed; its path is given to `change`."""
    link_directory(source, target, copied=name)
    (path,) = target.rglob(name)
    change(path)
    return target


def run_cluster(directory: Path) -> ClusterOutcome:
    """Run the commands that read a member's small files; how they may end is as in `run_all`."""
    results = [run(name, directory, "-o", "json") for name in ("recording-log", "recovery-plan", "state")]
    check_ends(results)
    return ClusterOutcome(*results)


def run_all(directory: Path, *options: object) -> Outcome:
    """Run every command that reads a member's files; `options` are for those that read recordings.

    A traceback ends the test. So does a status that says neither "fine", nor "cannot be used", nor "damaged".
    """
    results = [run("archive", *command, directory, *options, "-o", "jsonl") for command in ARCHIVE_COMMANDS]
    check_ends(results)
    describe, verify, dump, messages = results
    return Outcome(describe, verify, dump, messages, run_cluster(directory))


def check_ends(results: list[Ended]) -> None:
    assert {result.exit_code for result in results} <= {0, 2, 10}
    assert all(result.exit_code == 0 or result.output for result in results), "it says why"
