"""What a connection does with received bytes, without a socket."""

from __future__ import annotations

from typing import Any

from trimaran.client.connection import MemberConnection

_LENGTH_BYTES = 64


class Pairs:
    """Stands for the conductor: a frame is two bytes, and what it received last of each connection is kept."""

    def __init__(self) -> None:
        self.frames: dict[int, list[bytes]] = {1: [], 2: []}

    def on_received(self, connection: MemberConnection, data: memoryview) -> int:
        whole = len(data) // 2 * 2
        self.frames[connection.connection_id] += [bytes(data[at : at + 2]) for at in range(0, whole, 2)]
        return whole


def _connection(conductor: Any, connection_id: int) -> MemberConnection:  # Any: a stand-in
    return MemberConnection(conductor, connection_id, receive_buffer_bytes=_LENGTH_BYTES)


def _receive(connection: MemberConnection, data: bytes) -> None:
    """Do as the loop does: ask for a buffer, fill it, report it, without anything in between."""
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))


async def test_connections_share_one_buffer_and_never_each_others_bytes() -> None:
    """Each has half a frame outstanding while the other receives."""
    conductor = Pairs()
    one, other = _connection(conductor, 1), _connection(conductor, 2)

    for first, second in ((b"abc", b"stu"), (b"", b"vwx"), (b"defg", b""), (b"h", b"")):
        _receive(one, first)
        _receive(other, second)

    assert conductor.frames == {1: [b"ab", b"cd", b"ef", b"gh"], 2: [b"st", b"uv", b"wx"]}
    assert one.get_buffer(-1).obj is other.get_buffer(-1).obj


async def test_a_frame_that_comes_byte_by_byte_is_whole_in_the_end() -> None:
    conductor = Pairs()
    connection = _connection(conductor, 1)

    for byte in b"abcde":
        _receive(connection, bytes([byte]))

    assert conductor.frames[1] == [b"ab", b"cd"]
    assert len(connection.get_buffer(-1)) == _LENGTH_BYTES - 1
