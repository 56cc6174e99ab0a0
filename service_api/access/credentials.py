"""How an application's client shows the cluster's authenticator who it is.

    class OneSecret:
        def encoded_credentials(self) -> bytes:
            return b"open sesame"

        def on_challenge(self, encoded_challenge: bytes) -> bytes:
            raise LookupError("never challenged")

    ClusterClient.connect(endpoints, credentials=OneSecret())

Source: aeron.md §3.6, `CredentialsSupplier`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, Protocol

from ..errors import ConfigurationError
from .password_proof import (
    NONCE_LENGTH,
    PasswordChallenge,
    SaltedSecret,
    encode_principal,
    prove,
)

CREDENTIALS_ADVICE: Final = (
    "pass credentials=PasswordCredentials(principal, secret) where the cluster has authenticator=password; "
    "for an authenticator of its own, the bytes or the CredentialsSupplier that it takes"
)
"""The kinds of credentials that there are, for a client that has passed the wrong ones."""


class CredentialsSupplier(Protocol):
    """Says who a client is. Plain functions, called on the client's event loop."""

    def encoded_credentials(self) -> bytes:
        """What goes with every connect request, at most 4 KiB."""

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """Answer the authenticator's challenge, in at most 4 KiB; one that raises ends the connect."""


def expect_credentials(credentials: object, on_challenge: Callable[[bytes], bytes] | None) -> None:
    """Refuse what cannot be credentials. The error does not show them.

    Raises:
        ConfigurationError: they are neither bytes nor a `CredentialsSupplier`, or such a supplier is given with an
            `on_challenge`.
    """
    if isinstance(credentials, bytes):
        return
    if not hasattr(credentials, "encoded_credentials"):
        kind = type(credentials).__name__
        raise ConfigurationError(
            f"credentials of type {kind} expected bytes or CredentialsSupplier: {CREDENTIALS_ADVICE}"
        )
    if on_challenge is not None:
        raise ConfigurationError("on_challenge is given, and credentials that answer challenges themselves")


def advise(encoded_credentials: bytes) -> str:
    """Return what to pass, for a client that was refused and has passed nothing; empty for one that has."""
    return "" if encoded_credentials else f"no credentials= were given: {CREDENTIALS_ADVICE}"


def describe_unanswered(encoded_credentials: bytes) -> str:
    """Describe why a challenge was not answered."""
    given = "bytes without on_challenge=" if encoded_credentials else "no credentials="
    return f"it asks for credentials= that answer a challenge, and {given} were given"


class PasswordCredentials:
    """A principal and its secret, for clusters with `authenticator = "password"`.

        ClusterClient.connect(endpoints, credentials=PasswordCredentials("ops", secret))

    The secret never leaves this process: the cluster gets a proof that holds for one challenge. Stretching the secret
    takes some 30 ms, once for a salt, in which the event loop stands still.
    """

    def __init__(
        self, principal: str, secret: str | bytes, *, random_bytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        """Take a principal and its secret, text or the bytes of its UTF-8; `random_bytes` gives nonces of a length.

        Raises:
            ConfigurationError: the principal cannot be one, as when it is empty or holds blanks, or the secret cannot.
        """
        self._encoded_principal = encode_principal(principal)
        if not isinstance(secret, str | bytes):
            raise ConfigurationError(f"secret of type {type(secret).__name__} expected str or bytes")
        self._secret = secret
        self._random_bytes = random_bytes
        self._salted: tuple[bytes, int, SaltedSecret] | None = None

    def __repr__(self) -> str:
        return f"<PasswordCredentials principal={self._encoded_principal.decode()!r}>"

    def encoded_credentials(self) -> bytes:
        """Return the principal."""
        return self._encoded_principal

    def on_challenge(self, encoded_challenge: bytes) -> bytes:
        """Return the proof that this client knows the secret.

        Raises:
            RemoteProtocolError: the challenge is malformed, or asks for so few iterations that it helps a thief.
        """
        challenge = PasswordChallenge.decode(encoded_challenge)
        known = self._salted
        if known is None or known[:2] != (challenge.salt, challenge.iterations):
            salted = SaltedSecret.of(self._secret, challenge.salt, challenge.iterations)
            known = self._salted = (challenge.salt, challenge.iterations, salted)
        return prove(known[2], self._encoded_principal, challenge, nonce=self._random_bytes(NONCE_LENGTH))
