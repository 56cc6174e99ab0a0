"""Pieces: what a large state is written in, and how it is read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.service_api import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.snapshots.pieces import PIECE_BYTES, encode_pieces, read_pieces


@dataclass
class Order:
    id: int
    symbol: str


class Image:
    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = messages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._messages:
            yield message


def read(messages: Sequence[bytes], **kinds: Any) -> list[tuple[str, list[Any]]]:
    async def collect() -> list[tuple[str, list[Any]]]:
        return [piece async for piece in read_pieces(Image(messages), kinds)]

    return asyncio.run(collect())


@given(st.lists(st.binary(max_size=200), max_size=600), st.lists(st.tuples(st.integers(0, 9), st.text()), max_size=9))
def test_values_come_back_in_their_order_and_under_their_names(
    blobs: list[bytes], pairs: list[tuple[int, str]]
) -> None:
    messages = [*encode_pieces("blobs", blobs), *encode_pieces("pairs", pairs)]

    pieces = read(messages, blobs=bytes, pairs=tuple[int, str])

    assert [value for name, values in pieces if name == "blobs" for value in values] == blobs
    assert [value for name, values in pieces if name == "pairs" for value in values] == pairs


def test_pieces_of_a_large_state_are_few_and_of_about_one_length() -> None:
    orders = {number: Order(number, f"SYM{number % 100}") for number in range(50_000)}

    messages = list(encode_pieces("orders", orders.items()))

    total_bytes = sum(map(len, messages))
    assert max(map(len, messages)) < PIECE_BYTES * 5 // 4
    assert len(messages) < total_bytes // (PIECE_BYTES // 2)
    [(_, loaded), *_] = read(messages[:1], orders=tuple[int, Order])
    assert loaded[0] == (0, orders[0])


def test_values_that_are_longer_than_a_piece_have_one_of_their_own() -> None:
    blobs = [b"little"] * 5_000 + [bytes(PIECE_BYTES * 3)] * 20

    messages = list(encode_pieces("blobs", blobs))

    assert max(map(len, messages)) < 4 * PIECE_BYTES
    assert [value for _, values in read(messages, blobs=bytes) for value in values] == blobs


@pytest.mark.parametrize("value", [object(), 1 << 70, {1j}])
def test_value_that_has_no_form_in_bytes_is_refused_with_the_name_of_its_part(value: object) -> None:
    with pytest.raises(LocalProtocolError, match=r"^odd: "):
        list(encode_pieces("odd", [value]))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_name_that_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="expected 1 to 255 bytes"):
        list(encode_pieces(name, [1]))


@pytest.mark.parametrize("message", [b"", b"\x05ab", b"\x02no\x91\x01", b"\x02ok"])
def test_message_that_is_no_piece_of_a_known_part_is_refused(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="piece of 'ok'"):
        read([message], ok=int)


def test_value_of_another_type_is_refused_with_the_name_of_its_part() -> None:
    with pytest.raises(RemoteProtocolError, match="ok: Expected `int`, got `str`"):
        read(list(encode_pieces("ok", ["one"])), ok=int)
