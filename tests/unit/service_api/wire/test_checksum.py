"""Checksums are the same numbers whichever library computes them, and without the extra that brings the quicker one."""

from __future__ import annotations

import importlib
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api.wire import checksum


@given(data=st.binary(max_size=600), value=st.integers(0, 0xFFFF_FFFF))
def test_numbers_are_those_of_zlib(data: bytes, value: int) -> None:
    assert checksum.crc32(data) == zlib.crc32(data)
    assert checksum.crc32(memoryview(data)[1:], value) == zlib.crc32(data[1:], value)


@pytest.mark.parametrize("length", [1 << 10, (1 << 10) + 1, 1 << 16, (256 << 10) - 7])
def test_long_runs_are_too(length: int) -> None:
    data = bytes(number * 7 % 251 for number in range(length))

    assert checksum.crc32(bytearray(data)) == zlib.crc32(data)


def test_where_the_extra_is_not_installed_zlib_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checksum.CRC32_SOURCE == "zlib_ng"  # the development environment has it
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "zlib_ng", None)
        patch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
        plain = importlib.reload(checksum)
        assert (plain.CRC32_SOURCE, plain.crc32) == ("zlib", zlib.crc32)
    importlib.reload(checksum)
    assert checksum.CRC32_SOURCE == "zlib_ng"
