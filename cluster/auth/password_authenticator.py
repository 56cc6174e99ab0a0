"""The password authenticator: a challenge, the client's proof that it knows its secret, and a check of that proof.

A principal that is not in the file is challenged as the others are, and its proof is checked as theirs are, against a
verifier that nothing fits: from outside the two cannot be told apart, nor by the time they take. Wrong proofs are
limited (`attempt_limits`); an attempt beyond the limit is rejected as one with a wrong proof is.

A session lasts as long as the secret that opened it: not longer than its principal is in the file, and a secret that
was replaced has let in its thief, too. Which secret that was, its salt says: each secret has its own, and everybody
knows it who was ever challenged.

Source: `trimaran.service_api.access.password_proof`; aeron.md §3.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ...service_api.access.line_limiter import LineLimiter
from ...service_api.access.password_proof import NONCE_LENGTH, PRINCIPAL_LIMIT_BYTES, PasswordChallenge, is_proof
from ...service_api.authenticator import SessionProxy
from .attempt_limits import AttemptLimits
from .secrets_file import SecretsFile, Verifier

_ATTEMPT_LIMIT: Final = 20_000
"""Attempts remembered, those of clients that went away among them. At the bound the oldest goes, and is rejected."""
_NS_PER_MS: Final = 1_000_000

logger = structlog.get_logger()


@dataclass(slots=True)
class _Attempt:
    """One client on its way in."""

    encoded_principal: bytes
    entry: Verifier
    challenge: PasswordChallenge
    response: bytes | None = None


class PasswordAuthenticator:
    """The built-in authenticator `password`; clients use `PasswordCredentials`."""

    def __init__(self, secrets: Callable[[], SecretsFile], random_bytes: Callable[[int], bytes]) -> None:
        """`secrets` gives the file as it is now, `random_bytes` nonces of a length; none may come again."""
        self._secrets = secrets
        self._random_bytes = random_bytes
        self._attempts: dict[int, _Attempt] = {}
        self._limits = AttemptLimits()
        self._limited = LineLimiter[None]()

    def __repr__(self) -> str:
        return f"<PasswordAuthenticator {self._secrets()!r} attempts={len(self._attempts)}>"

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """The credentials are the principal. One that is too long is nobody's, and no more of it is kept."""
        file, principal = self._secrets(), encoded_credentials[: PRINCIPAL_LIMIT_BYTES + 1]
        entry = file.lookup(principal)
        challenge = PasswordChallenge(self._random_bytes(NONCE_LENGTH), entry.salt, file.iterations)
        self._attempts[session_id] = _Attempt(principal, entry, challenge)
        if len(self._attempts) > _ATTEMPT_LIMIT:
            del self._attempts[next(iter(self._attempts))]

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Ask it to prove that it knows the principal's secret."""
        attempt = self._attempts.get(proxy.session_id)
        if attempt is None:
            proxy.reject()
        else:
            proxy.challenge(attempt.challenge.encode())

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Keep the proof."""
        attempt = self._attempts.get(session_id)
        if attempt is not None:
            attempt.response = encoded_credentials

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Check the proof once it is there: one try for a challenge."""
        attempt = self._attempts.get(proxy.session_id)
        if attempt is not None and attempt.response is None:
            return
        self._attempts.pop(proxy.session_id, None)
        if attempt is None or attempt.response is None:
            proxy.reject()
            return
        if self._is_limited(proxy.address, attempt.encoded_principal, now_ms):
            proxy.reject()
            return
        is_known = self._secrets().verifiers.get(attempt.encoded_principal) == attempt.entry
        is_proven = is_proof(attempt.response, attempt.entry.verifier, attempt.encoded_principal, attempt.challenge)
        if is_proven and is_known:
            self._limits.on_succeeded(proxy.address, attempt.encoded_principal)
            proxy.authenticate(attempt.encoded_principal, _proof_id(attempt.entry))
        else:
            self._limits.on_failed(proxy.address, attempt.encoded_principal, now_ms)
            proxy.reject()

    def still_admits(self, encoded_principal: bytes, proof_id: str) -> bool:
        """Return whether the principal is in the file, with the secret that it has proven."""
        entry = self._secrets().verifiers.get(encoded_principal)
        return entry is not None and _proof_id(entry) == proof_id

    def _is_limited(self, address: str, encoded_principal: bytes, now_ms: int) -> bool:
        """Whether too many attempts have failed; the first is logged at once, further ones every 10 s with a number."""
        limit = self._limits.find_limit(address, encoded_principal, now_ms)
        if limit is None:
            return False
        count = self._limited.count(None, now_ms * _NS_PER_MS)
        if count is not None:
            logger.warning(
                "authentication.limited",
                limit=limit,
                address=address,
                count=count,
                reason="too many proofs were wrong: more are rejected unseen until these are older",
            )
        return True


def _proof_id(entry: Verifier) -> str:
    return entry.salt.hex()
