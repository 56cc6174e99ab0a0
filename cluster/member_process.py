"""The process of one member: it opens a node, again where that is asked for, and stops it when it is told to.

The first SIGTERM or SIGINT stops the member after a hand-over, if it leads (`runtime.departure`); the second at once.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import structlog

from .node import Node
from .runtime.agent import NodeEnd
from .runtime.garbage import settle_garbage_collector
from .runtime.watching.failure_report import log_node_failure
from .runtime.watching.log_tap import ErrorLogProcessor
from .settings.config import NodeConfig
from .settings.service_loading import load_service_classes

logger = structlog.get_logger()


async def run_node(config: NodeConfig, *, log_tap: ErrorLogProcessor | None = None) -> None:
    """Run one member until SIGTERM or SIGINT, or until it cannot go on.

    What `log_tap`, a processor of the log lines, hears of trouble goes to the member's error log.

    Raises:
        ConfigurationError: something in the configuration cannot be used, such as an endpoint that is taken.
        ClusterError: the directory is in use or damaged, the disk failed, or an invariant broke.
    """
    try:
        await _run_process(config, log_tap)
    except Exception as error:
        log_node_failure(error)
        raise


async def _run_process(config: NodeConfig, log_tap: ErrorLogProcessor | None) -> None:
    """Run one member, and again in the same process after it has installed a snapshot."""
    service_classes = load_service_classes(config.services, config.service_dir)
    stop = _StopRequest()
    end: NodeEnd | None = None
    while (end is None or end.is_restart) and not stop.is_asked:
        services = [make_service() for make_service in service_classes]
        async with Node.open(config, *services, holds=end is NodeEnd.ENTRY_HELD) as node:
            end = await _run_until_end(node, stop, log_tap)


async def _run_until_end(node: Node, stop: _StopRequest, log_tap: ErrorLogProcessor | None) -> NodeEnd:
    """Run a node that was opened, with everything that goes with a process."""
    if stop.is_asked:
        return NodeEnd.STOPPED  # while it was opened again
    settle_garbage_collector()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_unhandled)
    stop.node = node
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.ask)
    if log_tap is not None:
        log_tap.attach(node.errors.observe)
    try:
        with node.stalls.watch_process():
            return await node.run()
    finally:
        stop.node = None
        if log_tap is not None:
            log_tap.detach()


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


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what no callback of the loop caught: a bug, and one to be found in the error log."""
    logger.error("loop.exception_raised", message=context.get("message"), exc_info=context.get("exception"))
