"""Proving that one knows a secret, without saying it: what the password authenticator and its clients compute.

    secrets file   per principal: salt, and verifier = SHA-256(client key)
    salted         PBKDF2-HMAC-SHA-256(secret, salt, iterations)
    client key     HMAC(salted, "Client Key")
    connect        client: principal
    challenge      member: nonce, salt, iterations; a fresh nonce for every attempt
    response       client: its own nonce, and proof = client key XOR HMAC(verifier, the words of both sides)
    check          SHA-256(proof XOR HMAC(verifier, the words)) == verifier

So the secret crosses no link and lies in no file; a proof that was overheard fits no other challenge; and a stolen file
lets nobody in, though weak secrets can be guessed from it. What this does not do is show the member to the client, or
hide the messages that follow: for that the links need protection of their own.

Source: RFC 5802 §3 and RFC 7677 (SCRAM-SHA-256), with the messages of Aeron's challenge-response, and without the
server's signature, for which the session protocol has no place.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Final, Self

from ..errors import ConfigurationError, RemoteProtocolError

NONCE_LENGTH: Final = 24
SALT_LENGTH: Final = 16
VERIFIER_LENGTH: Final = 32
ITERATIONS_DEFAULT: Final = 60_000
ITERATIONS_MIN: Final = 4_096
"""What RFC 7677 asks for at least: a client that went below would give a false member an easy guess."""
ITERATIONS_MAX: Final = 2_000_000
"""A client that went above would stand still for a second and more."""
PRINCIPAL_LIMIT_BYTES: Final = 256

_CHALLENGE: Final = struct.Struct(f"<B{NONCE_LENGTH}s{SALT_LENGTH}sI")
_VERSION: Final = 1
_PURPOSE: Final = b"trimaran session 1"


def encode_principal(principal: str) -> bytes:
    """Return the bytes of a principal.

    Raises:
        ConfigurationError: it is no text, is empty or too long, or holds blanks or what cannot be printed.
    """
    if not isinstance(principal, str):
        raise ConfigurationError(f"principal={principal!r} of type {type(principal).__name__} expected str")
    encoded = principal.encode("utf-8", "replace")
    if not principal.isprintable() or " " in principal or not 0 < len(encoded) <= PRINCIPAL_LIMIT_BYTES:
        raise ConfigurationError(
            f"principal={principal!r} expected 1..{PRINCIPAL_LIMIT_BYTES} bytes of printable text without blanks"
        )
    return encoded


@dataclass(slots=True, frozen=True)
class PasswordChallenge:
    """What a member asks a client to answer."""

    nonce: bytes
    salt: bytes
    iterations: int

    def encode(self) -> bytes:
        """Return version, nonce, salt and iterations: 45 bytes."""
        return _CHALLENGE.pack(_VERSION, self.nonce, self.salt, self.iterations)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read a challenge.

        Raises:
            RemoteProtocolError: it is none, or its iterations are out of bounds.
        """
        if len(data) != _CHALLENGE.size or data[0] != _VERSION:
            raise RemoteProtocolError(
                f"password challenge: length={len(data)} expected={_CHALLENGE.size} and version {_VERSION}"
            )
        _, nonce, salt, iterations = _CHALLENGE.unpack(data)
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise RemoteProtocolError(
                f"password challenge: iterations={iterations} expected={ITERATIONS_MIN}..{ITERATIONS_MAX}"
            )
        return cls(nonce, salt, iterations)


@dataclass(slots=True, frozen=True, repr=False)
class SaltedSecret:
    """A stretched secret: as good as the secret itself where its salt is used."""

    client_key: bytes

    @classmethod
    def of(cls, secret: str | bytes, salt: bytes, iterations: int) -> Self:
        """Stretch a secret, text or the bytes of its UTF-8; slow on purpose."""
        encoded = secret if isinstance(secret, bytes) else secret.encode("utf-8", "surrogateescape")
        salted = hashlib.pbkdf2_hmac("sha256", encoded, salt, iterations)
        return cls(_hmac(salted, b"Client Key"))

    @property
    def verifier(self) -> bytes:
        """What the secrets file holds."""
        return hashlib.sha256(self.client_key).digest()


def prove(salted: SaltedSecret, encoded_principal: bytes, challenge: PasswordChallenge, *, nonce: bytes) -> bytes:
    """Answer a challenge: the client's nonce, which is drawn for this answer, then the proof."""
    signature = _hmac(salted.verifier, _words(encoded_principal, challenge, nonce))
    return nonce + _xor(salted.client_key, signature)


def is_proof(response: bytes, verifier: bytes, encoded_principal: bytes, challenge: PasswordChallenge) -> bool:
    """Whether an answer shows the secret behind a verifier; takes the same time whatever is wrong with the proof."""
    if len(response) != NONCE_LENGTH + VERIFIER_LENGTH:
        return False
    nonce, proof = response[:NONCE_LENGTH], response[NONCE_LENGTH:]
    client_key = _xor(proof, _hmac(verifier, _words(encoded_principal, challenge, nonce)))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier)


def _words(encoded_principal: bytes, challenge: PasswordChallenge, nonce: bytes) -> bytes:
    """Everything that both sides have said; every part but the principal has a fixed length."""
    return _PURPOSE + challenge.encode() + nonce + encoded_principal


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
