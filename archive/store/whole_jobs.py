"""Blocking jobs that change an archive: they run to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from ..files.segment_files import storage_error

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


async def run_whole(job: Callable[[], _T], recording_id: int | None = None) -> _T:
    """Run `job` in a thread, to its end even if the caller is cancelled, and however often: half a change is worse,
    and so is another job beside it.

    Raises:
        ArchiveError: the disk refused. What else the job raises is passed on.
    """
    work = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, job))
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        failure = None if work.cancelled() else work.exception()
        if failure is not None:
            _log.warning("archive.change_failed", recording_id=recording_id, error=repr(failure))
        raise cancelled from failure
    try:
        return work.result()
    except OSError as error:
        raise storage_error(error, "disk refused", recording_id, None) from error
