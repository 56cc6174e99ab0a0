"""The first message of a TLS client: a TLS server answers it with a TLS record, everything else does not."""

from __future__ import annotations

import contextlib
import ssl
from typing import Final

_RECORDS: Final = (0x15, 0x16)
"""The first byte of what a server answers: an alert, or a part of the handshake."""


def client_hello() -> bytes:
    """Build the first record of a handshake. Nothing is said to the server that answers it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def speaks_tls(first: int | None) -> bool:
    """Return True if the first byte of an answer to `client_hello` is that of a TLS server; None: no answer came."""
    return first in _RECORDS
