"""Connections to servers that are none of the cluster's, such as a Redis server that takes entries.

They are beside the seam of `transport`: no member, no gate and no simulated network is at their other end.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from ..endpoint import Endpoint
from ..errors import ConfigurationError
from ..net.sockets import connect_any
from ..net.transport import PeerRefusedError


def trusted_authorities(ca_file: Path | None) -> ssl.SSLContext:
    """Make what trusts the certificates in a PEM file, or those that the machine trusts.

    Raises:
        ConfigurationError: the file cannot be read, or has no certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # of ssl, too
        raise ConfigurationError(f"certificates that are trusted cannot be read: file={ca_file}: {error}") from error


async def dial_outside(
    endpoint: Endpoint, *, trusted: ssl.SSLContext | None, limit_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a server, with TLS if certificates are trusted; its name has to be in its certificate.

    Raises:
        PeerRefusedError: its certificate is not trusted, or is for another name.
        OSError: it cannot be reached.
    """
    sock = await connect_any(endpoint)
    name = None if trusted is None else endpoint.host
    try:
        return await asyncio.open_connection(sock=sock, ssl=trusted, server_hostname=name, limit=limit_bytes)
    except ssl.SSLCertVerificationError as error:
        raise PeerRefusedError(f"{endpoint}: {error}") from error
    except BaseException:
        sock.close()
        raise
