"""The hash that takes a key to one of 4,096 slots, the same for every client, member and version.

    slot = CRC-32(bytes of the key) mod 4096

The CRC is the one of zlib, gzip and Ethernet, so every language has it. Neither the hash nor the number of slots may
ever change: a key would be in one group's state and its messages in another group's log. Golden values in the tests
hold both.

Rejected: Python's `hash`, which differs from process to process; a table of ranges that is moved about while the
cluster runs, because a key that moves takes its state along, which only the service could do.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from ..errors import LocalProtocolError

GroupKey = bytes | bytearray | memoryview | str | int
"""What a message is about. Text stands for its UTF-8 bytes, a whole number of 64 bits for its 8 bytes, little endian,
in two's complement. So `"7"` and `b"7"` are one key, and `7` is another.
"""

SLOT_COUNT: Final = 4096
HASH_NAME: Final = "crc32/4096"
"""How directories name the hash and the number of slots."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def key_bytes(key: GroupKey) -> bytes | bytearray | memoryview:
    """Return the bytes that a key stands for.

    Raises:
        LocalProtocolError: it is of another type, a number outside of 64 bits, or text that UTF-8 cannot say.
    """
    if isinstance(key, (bytes, bytearray, memoryview)):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"key={key!r}: expected text that UTF-8 can say: {error.reason}") from None
    if isinstance(key, bool) or not isinstance(key, int):
        raise LocalProtocolError(f"key={key!r}: expected bytes, str or int, not {type(key).__name__}")
    if not _INT64_MIN <= key <= _INT64_MAX:
        raise LocalProtocolError(f"key={key}: expected a number from -2^63 to 2^63 - 1, or bytes or text for it")
    return key.to_bytes(8, "little", signed=True)


def slot_of(key: GroupKey) -> int:
    """Return the slot of a key, from 0 to `SLOT_COUNT` - 1.

    Raises:
        LocalProtocolError: it is no key; see `GroupKey`.
    """
    return crc32(key_bytes(key)) % SLOT_COUNT
