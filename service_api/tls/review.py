"""Looks again at the certificates of open connections, and ends the rights of those that do not count any more.

A certificate of a client, an observer or an operator counts

    until it expires                                                  looked at once a second
    while an authority that is trusted now has signed its chain       looked at when the files have changed

Then each connection that was given something for it ends, with a line in the audit trail (`access.rights`). Members are
not looked at: the configuration says who they are, and a link that ended because a certificate is a day late would take
a member away where nobody has gone.

Signatures are checked in a thread, once for each certificate: it takes 0.1 ms to 0.3 ms. A handshake that had begun
before the files changed may end after; so the look is repeated until none of these can be left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from ..access.shown_certificate import ShownCertificate
from ..net.connection_gate import ConnectionGate
from ..net.handshake_errors import HANDSHAKE_TIMEOUT_S
from .certificates import Certificate, Now
from .stack import TlsStack

if TYPE_CHECKING:
    from cryptography import x509

_LOOKS_AFTER_CHANGE: Final = int(HANDSHAKE_TIMEOUT_S) + 2
"""Once a second, for longer than a handshake takes."""

_UNSIGNED: Final = "no authority that is trusted now has signed its certificate"


class CertificateReview:
    """Judges the certificates that the connections of one gate have shown."""

    def __init__(self, stack: TlsStack, gate: ConnectionGate, now: Now) -> None:
        self._stack, self._gate, self._now = stack, gate, now
        self._looks_left = 0
        self._signed: set[tuple[bytes, ...]] = set()
        """Chains that the authorities of the files in use have signed."""

    def __repr__(self) -> str:
        return f"<CertificateReview signed={len(self._signed)}>"

    async def look(self, *, is_changed: bool) -> None:
        """Judge those that are open; `is_changed` says that other files are in use than at the last look."""
        shown = [each for one in self._gate.connections() if (each := one.certificate) is not None and not each.refusal]
        now = self._now()
        refused = _refuse_expired(shown, now)
        if is_changed:
            self._looks_left = _LOOKS_AFTER_CHANGE
            self._signed.clear()
        if self._looks_left:
            self._looks_left -= 1
            refused |= await self._refuse_unsigned(shown, now)
            if not self._looks_left:
                self._signed.clear()
        if refused:
            self._gate.rights.review(self._gate.connections())

    async def _refuse_unsigned(self, shown: Sequence[ShownCertificate], now: datetime) -> bool:
        authorities = self._stack.credentials.authorities
        chains = {each.chain for each in shown} - self._signed
        if not chains or not authorities:  # without a file of them the operating system's count
            return False
        self._signed |= await asyncio.get_running_loop().run_in_executor(None, _find_signed, chains, authorities, now)
        refused = [each for each in shown if each.chain not in self._signed]
        for each in refused:
            each.refusal = _UNSIGNED
        return bool(refused)


def _refuse_expired(shown: Iterable[ShownCertificate], now: datetime) -> bool:
    now_s, is_any = now.timestamp(), False
    for each in shown:
        if each.expires_at_s < now_s:
            expired = datetime.fromtimestamp(each.expires_at_s, UTC)
            each.refusal = f"its certificate has expired: not_after={expired:%Y-%m-%d %H:%M:%S} UTC"
            is_any = True
    return is_any


def _find_signed(
    chains: Collection[tuple[bytes, ...]], authorities: Sequence[Certificate], now: datetime
) -> set[tuple[bytes, ...]]:
    """Return the chains of which an authority is a part, or has signed a part. Blocks."""
    from cryptography import x509

    trusted = [each.encoded for each in authorities if each.not_before <= now <= each.not_after]
    issuers = [x509.load_der_x509_certificate(each) for each in trusted]
    return {
        chain
        for chain in chains
        if any(each in trusted or _is_signed(x509.load_der_x509_certificate(each), issuers) for each in chain)
    }


def _is_signed(certificate: x509.Certificate, issuers: Iterable[x509.Certificate]) -> bool:
    from cryptography.exceptions import InvalidSignature

    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):  # another's name, another kind of key, another key
            continue
        return True
    return False
