"""The process of one member: it opens a node, again where that is asked for, and stops it when it is told to.

The first SIGTERM, SIGINT or SIGHUP stops the member after a hand-over, if it leads (`runtime.departure`); the second
at once. A member that can neither work nor close ends without order: its watchdog sees to that.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from ...archive.errors import is_disk_failure
from ...service_api import ClusteredService
from ...service_api.stop_signals import on_stop_signal
from ...service_api.users_code import USERS_CODE, calls_users_code
from ..runtime.files.process_log import ProcessLog
from ..runtime.ground.agent_door import NodeEnd
from ..runtime.ground.garbage import settle_garbage_collector
from ..runtime.turns.failure_report import log_node_failure
from ..runtime.watching.process_end import end_on_lost_memory, end_process
from ..runtime.watching.watchdog import Watchdog, last_words_of
from ..settings.config import NodeConfig
from ..settings.service_loading import load_service_classes
from .node import Node

logger = structlog.get_logger()


async def run_node(config: NodeConfig, *, process_log: ProcessLog | None = None) -> None:
    """Run one member until a signal asks it to stop, or until it cannot go on; then this process has to end, too.

    What `process_log` hears of trouble goes to the member's error log; the member gives its newest lines to callers.

    Raises:
        ConfigurationError: something in the configuration cannot be used, such as an endpoint that is taken.
        ClusterError: the directory is in use or damaged, the disk failed, or an invariant broke.
    """
    no_memory = last_words_of("node.failed", "no memory is left", member_id=config.member_id)
    end_on_lost_memory(no_memory)
    watchdog = _make_watchdog(config)
    watchdog.start()
    try:
        await _run_process(config, process_log, watchdog)
    except MemoryError:
        # An interpreter that closes starts a thread, and would wait without end for one that has no memory.
        with suppress(MemoryError):
            traceback.print_exc()
        end_process(no_memory)
    except Exception as error:
        log_node_failure(error)
        raise
    finally:
        watchdog.expect_end()


def _make_watchdog(config: NodeConfig) -> Watchdog:
    said = f"the event loop stood still, or the member did not close, for hang_timeout_ms={config.hang_timeout_ms}"
    last_words = last_words_of("node.hung", said, member_id=config.member_id)
    return Watchdog(config.hang_timeout_ms / 1e3, last_words=last_words, excused_code=USERS_CODE)


async def _run_process(config: NodeConfig, process_log: ProcessLog | None, watchdog: Watchdog) -> None:
    """Run one member, and again in the same process after it has installed a snapshot."""
    service_classes = load_service_classes(config.services, config.service_dir)
    stop = _StopRequest()
    end: NodeEnd | None = None
    while (end is None or end.is_restart) and not stop.is_asked:
        watchdog.expect_turns()
        services = _make_services(service_classes)
        async with Node.open(config, *services, holds=end is NodeEnd.ENTRY_HELD) as node:
            node.on_closing = watchdog.expect_end
            end = await _run_until_end(node, stop, process_log)


@calls_users_code
def _make_services(classes: Sequence[type[ClusteredService]]) -> list[ClusteredService]:
    return [make_service() for make_service in classes]


async def _run_until_end(node: Node, stop: _StopRequest, process_log: ProcessLog | None) -> NodeEnd:
    """Run a node that was opened, with everything that goes with a process."""
    if stop.is_asked:
        return NodeEnd.STOPPED  # while it was opened again
    settle_garbage_collector()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(partial(_on_unhandled, node))
    stop.node = node
    on_stop_signal(stop.ask)
    if process_log is not None:
        process_log.errors.attach(node.errors.observe)
        node.parts.answers.use_log(process_log)
    try:
        with node.stalls.watch_process():
            return await node.run()
    finally:
        stop.node = None
        if process_log is not None:
            process_log.errors.detach()


class _StopRequest:
    """Whether the process is to stop, also while no node runs in it."""

    def __init__(self) -> None:
        self.is_asked = False
        self.node: Node | None = None

    def ask(self) -> None:
        """Stop the node that runs, and open no other; at once when it is asked a second time."""
        self.is_asked = True
        if self.node is not None:
            self.node.departure.begin()


def _on_unhandled(node: Node, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what no callback of the loop caught: a bug, and one to be found in the error log.

    Where memory ran out or the disk refused, the callback did half of its work, and nobody knows which half: the member
    ends.
    """
    error = context.get("exception")
    if isinstance(error, MemoryError) or (error is not None and is_disk_failure(error)):
        node.agent.terminate(error)
    logger.error("loop.exception_raised", message=context.get("message"), exc_info=error)
