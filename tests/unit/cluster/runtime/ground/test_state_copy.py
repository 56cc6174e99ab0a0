"""A copy of this process that yields a state: what comes back, and what becomes of the copy."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.cluster.runtime.ground.state_copy import ProcessCopy, StateCopyError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a process with threads is forked on Linux only")


@pytest.fixture
def copies() -> Iterator[list[ProcessCopy]]:
    made: list[ProcessCopy] = []
    yield made
    for copy in made:
        copy.close()


def read_all(copy: ProcessCopy) -> list[bytes]:
    messages: list[bytes] = []
    while batch := copy.read_batch():
        messages += batch
    return messages


def test_copy_yields_the_rest_of_the_messages_from_the_state_as_it_was(copies: list[ProcessCopy]) -> None:
    state = {number: bytes([number % 251]) * (number % 3_000) for number in range(2_000)}
    expected = [*state.values()][1:]

    def yield_state() -> Iterator[bytes]:
        yield from state.values()

    messages = yield_state()
    next(messages)
    copies.append(ProcessCopy.fork(messages))
    for number in state:
        state[number] = b"changed"

    assert read_all(copies[0]) == expected
    assert copies[0].read_batch() == []


def test_message_that_is_longer_than_what_is_read_at_once_comes_whole(copies: list[ProcessCopy]) -> None:
    expected = [b"", bytes(5 << 20), b"end"]
    copies.append(ProcessCopy.fork(iter(expected)))

    assert read_all(copies[0]) == expected


def test_error_of_the_service_comes_back_after_what_it_yielded(copies: list[ProcessCopy]) -> None:
    def yield_some() -> Iterator[bytes]:
        yield b"first"
        raise ValueError("no such order")

    copies.append(ProcessCopy.fork(yield_some()))

    with pytest.raises(StateCopyError, match="order"):
        read_all(copies[0])


def test_copy_that_is_killed_does_not_pass_for_a_whole_state(copies: list[ProcessCopy]) -> None:
    def yield_some() -> Iterator[bytes]:
        yield bytes(1 << 20)
        os.kill(os.getpid(), 9)

    copies.append(ProcessCopy.fork(yield_some()))

    with pytest.raises(StateCopyError, match="ended before"):
        read_all(copies[0])


def test_copy_holds_no_file_and_no_connection_of_the_member(copies: list[ProcessCopy], tmp_path: Path) -> None:
    """A member that dies is to be seen: its connections close with it, and its directory is free."""

    def yield_open_files() -> Iterator[bytes]:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the descriptor of the list itself
                yield os.readlink(f"/proc/self/fd/{name}").encode()

    with open(tmp_path / "lock", "wb"), socket.create_server(("127.0.0.1", 0)):
        copies.append(ProcessCopy.fork(yield_open_files()))
        targets = [message.decode() for message in read_all(copies[0])[3:]]

    assert [target.partition(":")[0] for target in targets] == ["pipe"]


def test_copy_that_is_closed_early_leaves_no_process_behind(copies: list[ProcessCopy]) -> None:
    def yield_for_ever() -> Iterator[bytes]:
        while True:
            yield bytes(1 << 20)

    copy = ProcessCopy.fork(yield_for_ever())
    copy.read_batch()
    copy.close()

    with pytest.raises(ProcessLookupError):
        os.kill(copy.pid, 0)
