"""Why two sides did not agree on encryption, in words."""

from __future__ import annotations

from typing import Final

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""How long a connection may take to agree on encryption; who dials, or the gate, may have less patience."""


class PeerRefusedError(ConnectionError):
    """The other side is not who it has to be; the text says what it shows."""


def is_handshake_error(error: BaseException | None) -> bool:
    """Return True if two sides did not agree on encryption: one refused the other, or said so in an alert of TLS."""
    return isinstance(error, PeerRefusedError) or (isinstance(error, OSError) and hasattr(error, "library"))


def describe_handshake_error(error: OSError) -> str:
    """Say in one line why two sides did not agree on encryption."""
    if isinstance(error, PeerRefusedError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s"
    verified = getattr(error, "verify_message", None)
    if verified:
        return f"the certificate of the other side is refused: {verified}"
    reason = getattr(error, "reason", None)
    if reason:
        return str(_HANDSHAKE_ADVICE.get(reason, reason))
    return str(error) or type(error).__name__


_HANDSHAKE_ADVICE: Final = {
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
    "HTTP_REQUEST": "the other side sends plain HTTP",
    "UNSUPPORTED_PROTOCOL": "the other side does not speak TLS 1.3",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate, and needs one here",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "a certificate is needed here: see the settings tls certificate and key",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the authority of the own certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the own certificate has expired, says the other side",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side refuses the own certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the own certificate is not made for this side of a connection",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the other side does not speak TLS 1.3",
}
"""OpenSSL's names of what goes wrong, in words."""
