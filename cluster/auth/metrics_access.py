"""Who may read the metrics of a member: who is on its machine, has the token, or shows a certificate.

    from loopback                              yes: who is on the machine may ask
    `Authorization: Bearer TOKEN`              yes, with the token of the setting `metrics_token_file`
    a certificate of this cluster              an observer's, an operator's and a member's: yes
    anybody else                               401, or 403 with a certificate that is not enough

A proxy on the same machine asks from loopback: it has to look itself whom it answers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...service_api.access.identity import CallerRole
from ...service_api.access.permissions import Permission
from ...service_api.access.private_files import expect_private
from ...service_api.errors import ConfigurationError
from ...service_api.net.connection_gate import AcceptedConnection

TOKEN_LENGTH_MIN: Final = 16
TOKEN_LENGTH_MAX: Final = 512
_TOKEN: Final = re.compile(rf"[A-Za-z0-9._~+/=-]{{{TOKEN_LENGTH_MIN},{TOKEN_LENGTH_MAX}}}")
"""Source: RFC 6750 §2.1, `b64token`."""
_BEARER: Final = re.compile(rb"^authorization:[ \t]*bearer[ \t]+([^\s]+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
_LOOPBACK_NETWORK: Final = "::/64"
"""What `address_of` makes of ::1. Nobody routes the rest of it."""


def load_token(path: Path) -> bytes:
    """Read a token: one line. Blocks.

    Raises:
        ConfigurationError: the user's: it cannot be read, or is none, or others may read it.
    """
    expect_private(path, "metrics token file")
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise ConfigurationError(f"metrics token file cannot be read: file={path} reason={error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        # Never the text itself.
        raise ConfigurationError(
            f"metrics token file: file={path} length={len(text)} expected one line of {TOKEN_LENGTH_MIN} to "
            f"{TOKEN_LENGTH_MAX} letters, digits and . _ ~ + / = -, as `openssl rand -hex 32` prints it"
        )
    return text.encode()


class MetricsAccess:
    """Decides about one request."""

    def __init__(self, token: Callable[[], bytes] | None) -> None:
        """`token` gives the token as it is now; None: there is none."""
        self._token = token

    def refusal(self, accepted: AcceptedConnection, request: bytes) -> tuple[int, str] | None:
        """Return the status and the text that refuse a caller; None where it may read the metrics."""
        caller = accepted.caller
        if (
            accepted.may(Permission.METRICS)
            or accepted.address.startswith("127.")
            or accepted.address == _LOOPBACK_NETWORK
        ):
            return None
        shown = _BEARER.search(request)
        if shown is not None and self._token is not None and _is_equal(shown[1], self._token()):
            return None
        if caller.role is not CallerRole.STRANGER:
            return 403, f"the metrics are for observers, operators and members: this is {caller}"
        ways = "a certificate of an observer (docs/security.md)"
        if self._token is not None:
            ways = f"the token of metrics_token_file as `Authorization: Bearer TOKEN`, or {ways}"
        else:
            ways = f"the setting metrics_token_file, or {ways}"
        return 401, f"the metrics need {ways}"


def _is_equal(shown: bytes, token: bytes) -> bool:
    """Compare digests, whose comparison tells nothing about the length either."""
    return hmac.compare_digest(hashlib.sha256(shown).digest(), hashlib.sha256(token).digest())
