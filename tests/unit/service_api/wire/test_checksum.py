"""Checksums are the same numbers whichever library computes them, and without the extra that brings the quicker one."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from types import ModuleType

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


def load_without(monkeypatch: pytest.MonkeyPatch, *names: str) -> ModuleType:
    """Load the module once more, beside the one in use, where packages are not installed."""
    spec = importlib.util.find_spec(checksum.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        for name in names:
            patch.setitem(sys.modules, name, None)
        spec.loader.exec_module(module)
    return module


def test_where_the_extra_is_not_installed_zlib_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checksum.CRC32_SOURCE == "zlib_ng"  # the development environment has it

    plain = load_without(monkeypatch, "zlib_ng", "zlib_ng.zlib_ng")

    assert (plain.CRC32_SOURCE, plain.crc32) == ("zlib", zlib.crc32)


def test_where_the_extra_is_not_installed_a_table_computes_crc32c(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_without(monkeypatch, "crc32c")

    assert plain.crc32c is plain.crc32c_by_table
    assert plain.ChecksumKind.CRC32C.compute(b"123456789") == 0xE306_9283


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE306_9283),
        (bytes(32), 0x8A91_36AA),
        (b"\xff" * 32, 0x62A8_AB43),
        (bytes(range(32)), 0x46DD_794E),
    ],
)
def test_crc32c_is_that_of_the_standard(data: bytes, expected: int) -> None:
    """Source: RFC 3720, appendix B.4."""
    assert checksum.crc32c(memoryview(bytearray(data))) == expected
    assert checksum.crc32c_by_table(data) == expected


@given(data=st.binary(max_size=600), cut=st.integers(0, 600))
def test_crc32c_goes_on_from_that_of_the_bytes_before(data: bytes, cut: int) -> None:
    for compute in (checksum.crc32c, checksum.crc32c_by_table):
        assert compute(data[cut:], compute(data[:cut])) == checksum.crc32c_by_table(data)
