"""The certificate that a caller has shown, kept while its connection is open, since it may cease to count.

A handshake verifies a certificate once. `tls.review` looks at those of open connections again: whether they have
expired, and whether an authority that is trusted now has signed them. For that the whole chain is kept, as OpenSSL
verified it: the caller may have sent certificates between its own and the authority's.
"""

from __future__ import annotations


class ShownCertificate:
    """One certificate that a handshake has verified."""

    __slots__ = ("chain", "expires_at_s", "refusal")

    def __init__(self, chain: tuple[bytes, ...], expires_at_s: float) -> None:
        self.chain = chain
        """The caller's own, then each one's issuer, in DER."""
        self.expires_at_s = expires_at_s
        """When its own expires, in seconds since the Unix epoch."""
        self.refusal = ""
        """Why it does not count any more."""

    def __repr__(self) -> str:
        return f"<ShownCertificate length={len(self.chain)} refusal={self.refusal!r}>"
