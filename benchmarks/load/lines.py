"""The lines between the harness and a load process: JSON events out, "go" in before each phase."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Self

from ...service_api.errors import ClusterError, first_leaf


class ProcessParameters:
    """Command line of a load process; its subclasses are dataclasses."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the form that the process takes."""
        fields: Any = self  # a dataclass
        return json.dumps(asdict(fields))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` returned."""
        return cls(**json.loads(text))


def emit(event: str, **values: object) -> None:
    """Tell the harness."""
    print(json.dumps({"event": event, **values}), flush=True)


async def open_commands() -> asyncio.StreamReader:
    """Read what the harness says."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def next_go(commands: asyncio.StreamReader) -> str:
    """Wait until the harness says to go on; return what it says besides.

    Raises:
        ClusterError: the harness is gone.
    """
    line = await commands.readline()
    if not line:
        raise ClusterError("the harness is gone: end of standard input")
    return line.decode().removeprefix("go").strip()


def run_process(run: Callable[[], None]) -> None:
    """Run a load process; a failure is one line on standard error and exit status 1."""
    try:
        run()
    except (ClusterError, BaseExceptionGroup) as error:
        leaf = first_leaf(error)
        if not isinstance(leaf, ClusterError):
            raise
        print(f"benchmark client: {leaf}", file=sys.stderr)
        sys.exit(1)
