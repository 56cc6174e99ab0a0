"""What ends a member, or is caught by nobody in it, finds its way into the error log."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from typing import cast

import pytest
import structlog

from tests.waiting import passes
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.cluster.node.member_process import _on_unhandled
from trimaran.cluster.node.node import Node
from trimaran.cluster.runtime.files.error_log import ErrorObservation
from trimaran.cluster.runtime.files.log_tap import ErrorLogProcessor, keep_failure
from trimaran.service_api import ClusterError


class Ending:
    """Stands for a node, and for its agent; keeps what it was ended with."""

    def __init__(self) -> None:
        self.agent = self
        self.errors: list[BaseException | None] = []

    def terminate(self, error: BaseException | None) -> None:
        self.errors.append(error)


async def test_what_nobody_catches_in_the_loop_is_an_error_of_its_own() -> None:
    seen: list[ErrorObservation] = []
    tap = ErrorLogProcessor()
    tap.attach(seen.append)
    structlog.configure(processors=[tap, structlog.processors.KeyValueRenderer()])
    loop = asyncio.get_running_loop()
    node = Ending()
    loop.set_exception_handler(partial(_on_unhandled, cast(Node, node)))

    def fail() -> None:
        raise ValueError("unforeseen")

    loop.call_soon(fail)
    await passes(2)

    assert [(trouble.event, trouble.kind, trouble.level) for trouble in seen] == [
        ("loop.exception_raised", "ValueError", "error")
    ]
    assert seen[0].place.endswith("fail")
    assert node.errors == []


@pytest.mark.parametrize(
    ("error", "is_end"),
    [
        (MemoryError(), True),
        (OSError(errno.EIO, "input/output error"), True),
        (ArchiveError("sync failed", code=ArchiveErrorCode.STORAGE_SPACE), True),
        (ConnectionResetError(errno.ECONNRESET, "connection reset by peer"), False),
    ],
    ids=repr,
)
async def test_a_lack_of_memory_or_a_disk_that_refuses_in_the_loop_ends_the_member(
    error: BaseException, is_end: bool
) -> None:
    """Return what the callback did is half done: it was logged, and the member went on."""
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    loop, node = asyncio.get_running_loop(), Ending()
    loop.set_exception_handler(partial(_on_unhandled, cast(Node, node)))

    def fail() -> None:
        raise error

    loop.call_soon(fail)
    await passes(2)

    assert node.errors == ([error] if is_end else [])


def test_what_ends_a_member_is_kept_and_goes_on() -> None:
    seen: list[ErrorObservation] = []

    with pytest.raises(ClusterError, match="disk"), keep_failure(seen.append):
        raise ClusterError("disk is gone")

    assert [(trouble.level, trouble.event, trouble.message) for trouble in seen] == [
        ("critical", "node.failed", "ClusterError: disk is gone")
    ]


@pytest.mark.parametrize("ending", [KeyboardInterrupt, asyncio.CancelledError])
def test_being_told_to_stop_is_no_failure(ending: type[BaseException]) -> None:
    seen: list[ErrorObservation] = []

    with pytest.raises(ending), keep_failure(seen.append):
        raise ending

    assert seen == []
