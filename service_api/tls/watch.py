"""Reads the files of TLS again when they change, and says in time when a certificate expires.

`run` looks at the files once a second, by their inodes, lengths, times, modes and owners, in a thread, so that the
event loop waits for no disk. What cannot be used changes nothing: a mistake in a file ends no connection and locks
nobody out who could come in before. What is connected stays, but for callers whose certificates do not count any more
(`review`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from ..errors import ConfigurationError
from ..net.connection_gate import ConnectionGate
from .certificates import Certificate, Now, utc_now
from .review import CertificateReview
from .stack import TlsStack

EXPIRY_NOTICE: Final = timedelta(days=14)
"""How long before it expires a certificate is a problem."""

_LOOK_INTERVAL_S: Final = 1.0
_REMINDER: Final = timedelta(hours=12)

Tell = Callable[..., Any]  # what a logger's method returns is nobody's business
"""Logs an event, and its fields by name."""


class TlsWatch:
    """Watches the files of one stack."""

    def __init__(self, stack: TlsStack, gate: ConnectionGate, *, info: Tell, error: Tell, now: Now = utc_now) -> None:
        """`gate` has the connections whose certificates are looked at again."""
        self._stack = stack
        self._review = CertificateReview(stack, gate, now)
        self._info, self._error = info, error
        self._now = now
        self._reminded: tuple[Certificate, Any] | None = None
        """What was told of last, and when."""

    def __repr__(self) -> str:
        return f"<TlsWatch {self._stack!r}>"

    async def run(self) -> None:
        """Look once a second, until this is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Read the files again if they have changed since the last look; tell what expires, end what has."""
        is_changed = False
        try:
            is_changed = await asyncio.get_running_loop().run_in_executor(None, self._stack.renew)
        except ConfigurationError as error:
            self._error("tls.refused", reason=f"{error}; the certificate that was read before stays in use")
        else:
            if is_changed:
                self._info("tls.changed", **_fields(self._stack.expires))
        self._remind()
        await self._review.look(is_changed=is_changed)

    def _remind(self) -> None:
        certificate, now = self._stack.expires, self._now()
        if certificate is None or certificate.not_after - now > EXPIRY_NOTICE:
            return
        if self._reminded is not None and self._reminded[0] == certificate and now - self._reminded[1] < _REMINDER:
            return
        self._reminded = certificate, now
        has_expired = certificate.not_after < now
        self._error(
            "tls.certificate_expired" if has_expired else "tls.certificate_expires",
            **_fields(certificate),
            reason=(
                "new connections are refused with it; have a new one issued, and put it in the place of this file"
                if has_expired
                else "have a new one issued before then, and put it in the place of this file: no restart is needed"
            ),
        )


def _fields(certificate: Certificate | None) -> dict[str, str]:
    if certificate is None:
        return {}
    return {
        "file": str(certificate.file),
        "subject": certificate.subject,
        "not_after": f"{certificate.not_after:%Y-%m-%d %H:%M:%S} UTC",
    }
