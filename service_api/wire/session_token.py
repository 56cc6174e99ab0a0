"""The token of a client session: what shows that a connection is the session's own client's.

    client    draws a secret when it begins to connect, and keeps it to itself
    connect   SessionConnectRequest.response_channel = trimaran:tcp?token-sha256=<the secret's SHA-256 in hex>
    log       SessionOpenEvent.response_channel says the same, and so do snapshots: the secret is in neither
    later     on every new connection ChallengeResponse(cluster_session_id, secret), and then a keep-alive

So reading a log or a snapshot is not enough to take a session over, nor is knowing its id. The secret
crosses the links as it is: where those can be read by others, so can all messages. A session whose channel holds no
token, as in the logs of a real Aeron Cluster, can be taken over by nobody: it is used on the connection that opened it,
and ends by timeout once that is lost.

The token says that a connection is the session's client's. It does not say that this client may still have a session.
So the leader adds to the channel, before it is in the log, what showed who the client is:

    proof=certificate      a certificate of its principal: the token counts only on a connection that shows one
    proof=<proof id>       the authenticator's name for it, such as the secret's salt: it says what still counts

A client that can show its principal again says so in its channel, and then its token counts only on a connection that
has: a member asks for the credentials with a `Challenge` (`SHOW_CREDENTIALS`), and its authenticator decides. A client
without credentials does not say it, nor does one of an earlier version, whose token counts as it is.

    token-with=proof       the token counts only with a proof of the session's principal, where the session has one
"""

from __future__ import annotations

import re
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from ..channel import find_parameter

TOKEN_PARAMETER: Final = "token-sha256"
_CHANNEL: Final = f"trimaran:tcp?{TOKEN_PARAMETER}="
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

PROOF_PARAMETER: Final = "proof"
CERTIFICATE_PROOF: Final = "certificate"
"""The proof of a client that has shown its principal with a certificate."""
_TOKEN_WITH_PARAMETER: Final = "token-with"
_WITH_PROOF: Final = "proof"

SHOW_CREDENTIALS: Final = b"trimaran:show-credentials"
"""The challenge that a client answers with its credentials, as they are in a connect request: it has shown the token of
a session, and is to show the session's principal."""

_PROOF_ID: Final = re.compile(r"[A-Za-z0-9._-]{0,64}")


def token_digest(secret: bytes) -> bytes:
    """Return what the cluster keeps of a secret: 32 bytes."""
    return sha256(secret).digest()


def bound_digest(digest: bytes, certified_principal: bytes) -> bytes:
    """Bind the digest of a secret to the principal of a certificate; empty: to none, which is the digest itself."""
    return sha256(digest + certified_principal).digest() if certified_principal else digest


def proven_digest(digest: bytes, encoded_principal: bytes) -> bytes:
    """Bind the digest of a secret to a principal that an authenticator has seen the proof of."""
    return sha256(_WITH_PROOF.encode() + digest + encoded_principal).digest()


def token_channel(secret: bytes, *, proves_again: bool = False) -> str:
    """Return the response channel of a session that a client with `secret` may take over.

    With `proves_again` only a client that proves the session's principal, too, where the session has one.
    """
    channel = _CHANNEL + token_digest(secret).hex()
    return f"{channel}|{_TOKEN_WITH_PARAMETER}={_WITH_PROOF}" if proves_again else channel


def channel_needs_proof(response_channel: str) -> bool:
    """Return True if the token of a session counts only with a proof of its principal."""
    return find_parameter(response_channel, _TOKEN_WITH_PARAMETER) == _WITH_PROOF


def channel_digest(response_channel: str) -> bytes | None:
    """Read the digest out of a session's response channel; None where there is none, or none that is well formed."""
    found = find_parameter(response_channel, TOKEN_PARAMETER)
    return bytes.fromhex(found) if found is not None and _DIGEST.fullmatch(found) else None


def channel_proof(response_channel: str) -> str:
    """Read what showed who a session's client is; empty where the channel does not say."""
    return find_parameter(response_channel, PROOF_PARAMETER) or ""


def with_proof(response_channel: str, proof_id: str) -> str:
    """Add to a response channel what showed who its client is; an empty id adds nothing."""
    if not proof_id:
        return response_channel
    return f"{response_channel or 'trimaran:tcp'}{'|' if '?' in response_channel else '?'}{PROOF_PARAMETER}={proof_id}"


def is_proof_id(text: str) -> bool:
    """Return True if an authenticator may name a proof so: at most 64 letters, digits and `. _ -`, no certificate's."""
    return _PROOF_ID.fullmatch(text) is not None and text != CERTIFICATE_PROOF


def is_digest_of(expected: bytes | None, actual: bytes) -> bool:
    """Compare two digests, in a time that does not tell how much of them is equal; nothing fits no digest."""
    return expected is not None and compare_digest(expected, actual)
