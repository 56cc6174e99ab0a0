"""`trimaran` in a process that looks names up in a file, as it lies there at each look-up: a DNS for one test.

    python -m tests.system.named_node HOSTS node --member-id 0 ...

A line of HOSTS is an address and a name.
"""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path
from typing import Final

from trimaran.cluster.cli.app import main
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net import sockets
from trimaran.service_api.net.sockets import Address, NameUnresolvedError

SYSTEM: Final = sockets.resolve


class HostsFile:
    """Answers as a DNS server would that serves what is in the file now."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def resolve(self, endpoint: Endpoint, *, passive: bool = False) -> list[Address]:
        """Give all addresses of a name; an address is asked of the system."""
        if endpoint.is_address:
            return await SYSTEM(endpoint, passive=passive)
        lines = [line.split() for line in self._file.read_text().splitlines()]
        found = [address for address, name in lines if name == endpoint.host]
        if not found:
            raise NameUnresolvedError(errno.EADDRNOTAVAIL, f"host={endpoint.host} does not resolve: not in the file")
        return [(socket.AF_INET, (address, endpoint.port)) for address in found]


if __name__ == "__main__":
    sockets.resolve = HostsFile(Path(sys.argv[1])).resolve
    main(sys.argv[2:])
