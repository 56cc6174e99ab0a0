"""Members' directories whose logs end in every way: in order, open, torn, and damaged in several ways."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.unit.archive.spark.member_logs import TERM_LENGTH, Log, MemberFiles
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile


class EndedLog(NamedTuple):
    """How a log of 100 frames is changed, and how it must be said to end."""

    name: str
    kind: str
    position: int
    resumes_at: int | None
    change: Callable[[MemberFiles], object] = lambda member: None
    is_stopped: bool = False
    message_count: int = 98
    is_before_tail: bool = False
    """Whether the damage lies in a term that `tail` does not read: it reads the terms that it shows."""

    def write(self, directory: Path) -> Path:
        """Write the directory of a member whose log ends so."""
        log = log_of(self.message_count)
        member = MemberFiles(directory=directory, log=log, is_stopped=self.is_stopped)
        member.write()
        self.change(member)
        NodeStateFile.open(directory / "cluster", file_sync_level=0).close()
        return directory


def log_of(message_count: int) -> Log:
    log = Log()
    log.begin_term(0)
    log.open_session()
    for index in range(message_count):
        log.message(f"message {index:04}" * 2)
    return log


ENDS = log_of(98).frame_ends
LONG = log_of(1500)


def flip(position: int) -> Callable[[MemberFiles], object]:
    """Flip one bit of the payload of the frame that begins there."""

    def change(member: MemberFiles) -> None:
        path = member.archive / f"0-{position - position % TERM_LENGTH}.rec"
        data = bytearray(path.read_bytes())
        data[position % TERM_LENGTH + 70] ^= 1
        path.write_bytes(data)

    return change


def write_over(position: int, data: bytes) -> Callable[[MemberFiles], object]:
    def change(member: MemberFiles) -> None:
        with (member.archive / "0-0.rec").open("r+b") as file:
            file.seek(position)
            file.write(data)

    return change


def cut(length: int) -> Callable[[MemberFiles], object]:
    return lambda member: os.truncate(member.archive / "0-0.rec", length)


def remove_segment(base: int) -> Callable[[MemberFiles], object]:
    return lambda member: (member.archive / f"0-{base}.rec").unlink()


FRAME_50 = ENDS[49]
LAST = ENDS[-2]

ENDED_LOGS = (
    EndedLog("in order", "stopped", ENDS[-1], None, is_stopped=True),
    EndedLog("open", "open", ENDS[-1], None),
    EndedLog("one bit of frame 50", "damaged", FRAME_50, ENDS[50], flip(FRAME_50)),
    EndedLog("one bit of frame 50, stopped", "damaged", FRAME_50, ENDS[50], flip(FRAME_50), is_stopped=True),
    EndedLog("header of frame 50", "damaged", FRAME_50, ENDS[50], write_over(FRAME_50, b"\xff" * 32)),
    EndedLog("frames 50 to 52 blank", "damaged", FRAME_50, ENDS[52], write_over(FRAME_50, bytes(ENDS[52] - FRAME_50))),
    EndedLog("one bit of the last frame", "open", LAST, None, flip(LAST)),
    EndedLog("one bit of the last frame, stopped", "damaged", LAST, None, flip(LAST), is_stopped=True),
    EndedLog("last frame blank", "open", LAST, None, write_over(LAST, bytes(ENDS[-1] - LAST))),
    EndedLog(
        "one bit of frame 50, several segments",
        "damaged",
        FRAME_50,
        ENDS[50],
        flip(FRAME_50),
        message_count=1500,
        is_before_tail=True,
    ),
    EndedLog(
        "one bit of frame 50, several segments, stopped",
        "damaged",
        FRAME_50,
        ENDS[50],
        flip(FRAME_50),
        is_stopped=True,
        message_count=1500,
        is_before_tail=True,
    ),
    EndedLog("file of the last segment cut inside a frame", "open", LAST, None, cut(LAST + 48)),
    EndedLog(
        "file of the last segment cut inside a frame, stopped", "damaged", LAST, None, cut(LAST + 48), is_stopped=True
    ),
    EndedLog(
        "missing segment", "damaged", TERM_LENGTH, 2 * TERM_LENGTH, remove_segment(TERM_LENGTH), message_count=1500
    ),
    EndedLog(
        "missing segment, stopped",
        "damaged",
        TERM_LENGTH,
        2 * TERM_LENGTH,
        remove_segment(TERM_LENGTH),
        is_stopped=True,
        message_count=1500,
    ),
)
