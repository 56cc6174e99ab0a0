"""The service under slow callbacks: echoes, and takes as long as it is told to."""

from __future__ import annotations

import struct
import time
from typing import Final

from ...service_api import ClientSession, ClusteredService

_COMMAND: Final = struct.Struct("<8sd")
_NAME: Final = b"be slow!"


def slow_command(seconds: float) -> bytes:
    """Make the message whose callback takes so long, on every member."""
    return _COMMAND.pack(_NAME, seconds)


class SlowService(ClusteredService):
    """Sends each message back; a command makes it wait first. It waits and does not compute: members share cores."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Echo, late if that is asked for."""
        if len(payload) == _COMMAND.size:
            name, seconds = _COMMAND.unpack(payload)
            if name == _NAME:
                time.sleep(seconds)
        session.offer(payload)
