"""Reads the committed log of a running cluster for `trimaran log tail`, from whichever member serves it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Annotated, Any, Final

import typer

from ....archive.files.reader import RecordedMessage
from ....archive.reading.message_view import Vocabulary
from ....archive.tool.commands.rows import MessageRows
from ....archive.tool.output import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, fail
from ....service_api.types import LOG_STREAM_ID
from ...subscriptions.errors import SubscriptionError, SubscriptionRefusedError, SubscriptionTimeoutError
from ...subscriptions.log_source import Beginning, LogSource, OpenLog, ServedBy, TermStart
from ...subscriptions.subscription import LogReading

ServedByOption = Annotated[
    ServedBy, typer.Option("--served-by", metavar="ROLE", help="Read from a follower, the leader, or any.")
]
_BATCH_LIMIT: Final = 4096


class ClusterLog(LogReading[RecordedMessage]):
    """Reads the recorded messages of the committed log, many at once."""

    def __init__(self, source: LogSource, start: Beginning, *, timeout_s: float, is_followed: bool) -> None:
        super().__init__(
            source,
            start=start,
            choose=lambda message: message,
            reconnect_timeout_s=math.inf if is_followed else timeout_s,
        )
        self._timeout_s = timeout_s
        self.recording_id = -1
        """The recording that was read last, on the member that serves the log."""

    async def committed(self) -> AsyncGenerator[list[RecordedMessage]]:
        """Yield what is committed when the reading begins; the first member has to answer within the timeout."""
        log = await self._open(self._timeout_s)
        end = log.commit_position
        while self._ready or self._log is None or self._log.replay.position < end:
            if self._ready:
                yield self.take_ready(_BATCH_LIMIT)
            else:
                await self._fill()

    async def read(self) -> list[RecordedMessage]:
        """Read on, when there is something."""
        return [await anext(self), *self.take_ready(_BATCH_LIMIT)]

    async def _open(self, within_s: float) -> OpenLog:
        log = await super()._open(within_s)
        self.recording_id = log.recording_id
        return log


def tail_rows(
    source: LogSource, vocabulary: Vocabulary, count: int, *, begin: int | None, is_followed: bool, timeout_s: float
) -> Iterator[dict[str, Any]]:
    """Yield the last committed entries, at most those of two term buffers, or those from `begin` on; then new ones.

    While the log is followed, a cluster that is down is waited for.
    """
    batches = tail_batches(
        lambda start: ClusterLog(source, start, timeout_s=timeout_s, is_followed=is_followed),
        count,
        begin=begin,
        is_followed=is_followed,
    )

    async def next_batch() -> tuple[int, Iterable[RecordedMessage]] | None:
        return await anext(batches, None)

    with subscription_errors_as_exits(), asyncio.Runner() as runner:
        while (batch := runner.run(next_batch())) is not None:
            recording_id, messages = batch
            yield from map(MessageRows.of_log(recording_id, LOG_STREAM_ID, vocabulary).row, messages)
            sys.stdout.flush()


async def tail_batches(
    log_from: Callable[[Beginning], ClusterLog], count: int, *, begin: int | None, is_followed: bool
) -> AsyncGenerator[tuple[int, Iterable[RecordedMessage]]]:
    """Yield what `tail_rows` makes rows of, with the recording that it was read from."""
    async with AsyncExitStack() as logs:
        log = await logs.enter_async_context(log_from(TermStart(0) if begin is None else begin))
        last: deque[RecordedMessage] = deque(maxlen=count)
        async for batch in log.committed():
            if begin is None:
                last.extend(batch)
            else:
                yield log.recording_id, batch
        if begin is None and len(last) < count:
            last.clear()
            log = await logs.enter_async_context(log_from(TermStart(1)))
            async for batch in log.committed():
                last.extend(batch)
        yield log.recording_id, last
        while is_followed:
            yield log.recording_id, await log.read()


@contextmanager
def subscription_errors_as_exits() -> Iterator[None]:
    """Say in one line why a subscription ended, and exit.

    Raises:
        typer.Exit: the caller may not read the log (12), no member serves it (3), or the position is wrong (2).
    """
    try:
        yield
    except SubscriptionRefusedError as error:
        fail(str(error), EXIT_REFUSED)
    except SubscriptionTimeoutError as error:
        fail(str(error), EXIT_UNREACHABLE)
    except SubscriptionError as error:
        fail(str(error), EXIT_USAGE)
