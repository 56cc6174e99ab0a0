"""The checksums of frames: CRC-32 and CRC-32C, each by the quickest implementation that is installed.

Aeron ships both, and an archive uses one of them, of its choice, or none, or a class of its user's. zlib's own
CRC-32 takes 0.1 us for a short payload and 0.22 ns a byte: a fourteenth of what a short message costs its leader, and a
tenth of what a copied byte costs. zlib-ng uses the processor's own instructions and takes a third of that, and a
fifteenth for long runs. For CRC-32C the package crc32c does so: 0.25 us for 64 bytes, 8 us for 64 KiB. google-crc32c is
as kept and takes twice as long for short payloads, because it takes nothing but `bytes`. The extra `speed` brings both
packages; without crc32c a table in Python gives the same numbers, at 20 MB/s. Nothing but time depends on them.
Source: Aeron `archive.checksum.Checksums`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

try:
    from zlib_ng.zlib_ng import adler32, crc32
except ImportError:  # not installed, or not built for this machine
    from zlib import adler32, crc32

CRC32_SOURCE: Final = crc32.__module__.partition(".")[0]
"""Which library computes CRC-32: zlib_ng or zlib."""

CRC32C_POLYNOMIAL: Final = 0x82F6_3B78
"""Reflected, as the bits of a register go. Source: RFC 3720."""
_CRC32_POLYNOMIAL: Final = 0xEDB8_8320


def make_crc_table(polynomial: int) -> list[int]:
    """Return what each byte makes of a register that is 0."""
    table = []
    for register in range(256):
        for _ in range(8):
            register = register >> 1 ^ (polynomial if register & 1 else 0)
        table.append(register)
    return table


def _make_crc32c() -> Callable[..., int]:
    """Return a function that computes CRC-32C with a table of 256 entries."""
    table = make_crc_table(CRC32C_POLYNOMIAL)

    def crc32c(data: bytes | bytearray | memoryview, value: int = 0, /) -> int:
        register = value ^ 0xFFFF_FFFF
        for byte in bytes(data):
            register = table[(register ^ byte) & 0xFF] ^ register >> 8
        return register ^ 0xFFFF_FFFF

    return crc32c


crc32c_by_table: Final = _make_crc32c()
"""CRC-32C where nothing quicker is installed."""

try:
    from crc32c import crc32c
except ImportError:  # not installed, or not built for this machine
    crc32c = crc32c_by_table


class ChecksumKind(IntEnum):
    """Which checksum the frames and catalog entries of an archive carry."""

    compute: Callable[..., int]
    """Computes it over bytes, from that of the bytes before them on; unsigned. Only of a kind that is known. A property
    would take 0.1 us."""

    UNKNOWN = 0
    """None of these: a class of a user's. Frames are read without being checked."""
    CRC32 = 1
    CRC32C = 2

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What settings and tables call it."""
        return self.name.lower()

    @property
    def polynomial(self) -> int:
        """Its polynomial, reflected, of one that is known."""
        return CRC32C_POLYNOMIAL if self is ChecksumKind.CRC32C else _CRC32_POLYNOMIAL

    @classmethod
    def labelled(cls, label: str) -> ChecksumKind:
        """Return the one with a label."""
        return cls[label.upper()]


ChecksumKind.CRC32.compute = crc32
ChecksumKind.CRC32C.compute = crc32c

KNOWN_CHECKSUMS: Final = (ChecksumKind.CRC32, ChecksumKind.CRC32C)

__all__ = [
    "CRC32C_POLYNOMIAL",
    "CRC32_SOURCE",
    "KNOWN_CHECKSUMS",
    "ChecksumKind",
    "adler32",
    "crc32",
    "crc32c",
    "crc32c_by_table",
    "make_crc_table",
]
