"""The secrets file of the password authenticator: its format, and reading and changing it.

    # anything after a hash at the beginning of a line is for people
    version 1
    iterations 60000
    decoy-key 5f0e...                                 32 bytes in hex
    principal ops 0c43...  9f21...                    salt of 16 bytes and verifier of 32 bytes, in hex

The secrets are not in it (`password_proof` says what a verifier is), but weak ones can be guessed from it:
it is written for its owner alone. Every principal has the same iterations, and the decoy key makes up a salt for those
that are not in it, the same on every member and after every start; so nobody can tell from a challenge who is in it.
Every member is given a copy of the same file, and reads it again when it has changed (`file_watch`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from ...service_api.access.password_proof import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_LENGTH,
    VERIFIER_LENGTH,
    SaltedSecret,
    encode_principal,
)
from ...service_api.access.private_files import expect_private, write_private
from ...service_api.errors import ConfigurationError

SECRET_LIMIT: Final = 1024
"""Characters of a secret."""

_VERSION: Final = "1"
_DECOY_KEY_LENGTH: Final = 32
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_HEADER: Final = (
    "# Who may open sessions with this cluster. Change it with: trimaran secrets add|remove FILE PRINCIPAL\n"
)
_FORMS: Final = {
    "version": "version 1",
    "iterations": f"iterations {ITERATIONS_MIN}..{ITERATIONS_MAX}",
    "decoy-key": "decoy-key <64 hexadecimal digits>",
    "principal": "principal NAME <32 hexadecimal digits> <64 hexadecimal digits>",
}


@dataclass(slots=True, frozen=True)
class Verifier:
    """What the file holds of one principal."""

    salt: bytes
    verifier: bytes


@dataclass(slots=True)
class SecretsFile:
    """The contents of a secrets file."""

    iterations: int
    decoy_key: bytes
    verifiers: dict[bytes, Verifier] = field(default_factory=dict)
    """By encoded principal, in the order of the file."""

    def __repr__(self) -> str:
        return f"<SecretsFile principals={len(self.verifiers)} iterations={self.iterations}>"

    @classmethod
    def empty(cls, random_bytes: Callable[[int], bytes], *, iterations: int = ITERATIONS_DEFAULT) -> Self:
        """Begin a file that lets nobody in."""
        return cls(iterations, random_bytes(_DECOY_KEY_LENGTH))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file.

        Raises:
            ConfigurationError: the user's: it cannot be read, or a line of it is not as expected.
        """
        expect_private(path, "secrets file")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"secrets file is not UTF-8 text: file={path} position={error.start}") from error
        except OSError as error:
            raise ConfigurationError(f"secrets file cannot be read: file={path} reason={error.strerror}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Read the text of a file; `name` is for errors.

        Raises:
            ConfigurationError: the user's: names the line and what was expected.
        """
        parser = _Parser(name)
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip() and not line.startswith("#"):
                parser.take(number, line.split())
        iterations, decoy_key = parser.finish()
        return cls(iterations, decoy_key, parser.verifiers)

    def add(self, principal: str, secret: str, random_bytes: Callable[[int], bytes]) -> None:
        """Add a principal with its secret, or change its secret.

        Raises:
            ConfigurationError: the user's: the principal or the secret cannot be used.
        """
        encoded = encode_principal(principal)
        if not 0 < len(secret) <= SECRET_LIMIT:
            raise ConfigurationError(f"secret of length={len(secret)} expected 1..{SECRET_LIMIT} characters")
        salt = random_bytes(SALT_LENGTH)
        self.verifiers[encoded] = Verifier(salt, SaltedSecret.of(secret, salt, self.iterations).verifier)

    def lookup(self, encoded_principal: bytes) -> Verifier:
        """Return what the file holds of a principal; of others something that no secret fits."""
        known = self.verifiers.get(encoded_principal)
        decoy = hmac.new(self.decoy_key, encoded_principal, hashlib.sha512).digest()
        if known is not None:
            return known
        return Verifier(decoy[:SALT_LENGTH], decoy[-VERIFIER_LENGTH:])

    def text(self) -> str:
        """Write it down."""
        lines = [f"version {_VERSION}", f"iterations {self.iterations}", f"decoy-key {self.decoy_key.hex()}"]
        for principal, entry in self.verifiers.items():
            lines.append(f"principal {principal.decode()} {entry.salt.hex()} {entry.verifier.hex()}")
        return _HEADER + "\n".join(lines) + "\n"

    def save(self, path: Path) -> None:
        """Put the file in place, at once and for its owner alone.

        Raises:
            ConfigurationError: the user's: it cannot be written there.
        """
        write_private(path, self.text().encode(), "secrets file")


class _Parser:
    """Reads line by line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: dict[str, str] = {}
        self.verifiers: dict[bytes, Verifier] = {}

    def take(self, number: int, words: list[str]) -> None:
        """Read one line that is not blank or a comment."""
        keyword = words[0]
        if keyword not in _FORMS:
            raise self._problem(number, f"begins with {keyword!r}", f"one of {', '.join(_FORMS)}")
        expected = _FORMS[keyword]
        if keyword == "principal":
            self._take_principal(number, words, expected)
            return
        if keyword in self._values:
            raise self._problem(number, f"repeats {keyword}", f"one line with {keyword}")
        if len(words) != 2 or not _is_value(keyword, words[1]):
            raise self._problem(number, "is malformed", expected)
        self._values[keyword] = words[1]

    def finish(self) -> tuple[int, bytes]:
        """Return iterations and decoy key."""
        missing = [keyword for keyword in _FORMS if keyword != "principal" and keyword not in self._values]
        if missing:
            raise ConfigurationError(
                f"secrets file has a line missing: file={self._name} expected: {_FORMS[missing[0]]}"
            )
        return int(self._values["iterations"]), bytes.fromhex(self._values["decoy-key"])

    def _take_principal(self, number: int, words: list[str], expected: str) -> None:
        if len(words) != 4 or not _is_hex(words[2], SALT_LENGTH) or not _is_hex(words[3], VERIFIER_LENGTH):
            raise self._problem(number, "is malformed", expected)
        try:
            principal = encode_principal(words[1])
        except ConfigurationError as error:
            raise self._problem(number, "has an invalid principal", str(error)) from error
        if principal in self.verifiers:
            raise self._problem(number, f"repeats principal {words[1]}", "one line for each principal")
        self.verifiers[principal] = Verifier(bytes.fromhex(words[2]), bytes.fromhex(words[3]))

    def _problem(self, number: int, what: str, expected: str) -> ConfigurationError:
        # Never the line itself: somebody may have written a secret into it.
        return ConfigurationError(f"secrets file: file={self._name} line={number} {what} expected: {expected}")


def _is_value(keyword: str, text: str) -> bool:
    if keyword == "version":
        return text == _VERSION
    if keyword == "iterations":
        return _NUMBER.fullmatch(text) is not None and ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX
    return _is_hex(text, _DECOY_KEY_LENGTH)


def _is_hex(text: str, length: int) -> bool:
    return len(text) == 2 * length and all(letter in "0123456789abcdef" for letter in text)
