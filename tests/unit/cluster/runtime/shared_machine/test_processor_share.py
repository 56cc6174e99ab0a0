"""A member that copies a log is nice to those that serve, and claims its share again when it takes part."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import within
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.vocabulary.election_state import ElectionState as S
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.runtime.shared_machine import processor_share
from trimaran.cluster.runtime.shared_machine.processor_share import (
    COPYING_NICE,
    COPYING_SLICE_NS,
    LEAST_BYTES_PER_LOOK,
    ProcessorShare,
    set_session_nice,
    set_slice,
)


def _changed(new: S) -> fx.StateChanged:
    return fx.StateChanged(
        old=S.CANVASS,
        new=new,
        reason=Reason(ReasonKind.CAUGHT_UP),
        leadership_term_id=0,
        append_position=0,
        commit_position=0,
    )


class _Kernel:
    """Takes nice values, and refuses the first few."""

    def __init__(self, refused_count: int = 0) -> None:
        self.taken: list[int] = []
        self.has_taken = asyncio.Event()
        self._refused_count = refused_count

    def set_nice(self, nice: int) -> bool:
        if self._refused_count:
            self._refused_count -= 1
            return False
        self.taken.append(nice)
        self.has_taken.set()
        return True


def test_a_member_is_nice_while_it_copies_and_not_between_or_afterwards() -> None:
    kernel = _Kernel()
    share = ProcessorShare(kernel.set_nice)

    for state in (S.CANVASS, S.FOLLOWER_LOG_REPLICATION, S.CANVASS, S.FOLLOWER_REPLAY, S.FOLLOWER_CATCHUP_INIT):
        share.on_state_changed(_changed(state))
    for state in (S.FOLLOWER_CATCHUP_AWAIT, S.FOLLOWER_CATCHUP, S.FOLLOWER_LOG_INIT, S.FOLLOWER_READY, S.CLOSED):
        share.on_state_changed(_changed(state))

    assert kernel.taken == [COPYING_NICE, 0, COPYING_NICE, 0]


def test_a_member_that_stops_while_it_copies_claims_its_share_again() -> None:
    kernel = _Kernel()
    share = ProcessorShare(kernel.set_nice)
    share.on_state_changed(_changed(S.FOLLOWER_CATCHUP))

    share.close()

    assert kernel.taken == [COPYING_NICE, 0]


def test_a_copy_that_goes_slowly_waits_for_nobody_until_it_is_done() -> None:
    """Else the log of a busy cluster could grow faster than it is copied."""
    kernel = _Kernel()
    share = ProcessorShare(kernel.set_nice)
    share.on_state_changed(_changed(S.FOLLOWER_LOG_REPLICATION))
    share.look(0)
    share.look(LEAST_BYTES_PER_LOOK)
    assert kernel.taken == [COPYING_NICE]

    share.look(2 * LEAST_BYTES_PER_LOOK - 32)
    share.on_state_changed(_changed(S.FOLLOWER_CATCHUP))
    assert kernel.taken == [COPYING_NICE, 0]

    share.on_state_changed(_changed(S.CLOSED))
    share.on_state_changed(_changed(S.FOLLOWER_CATCHUP))
    assert kernel.taken == [COPYING_NICE, 0, COPYING_NICE]


def test_a_copy_that_has_just_begun_is_not_called_slow() -> None:
    kernel = _Kernel()
    share = ProcessorShare(kernel.set_nice)
    share.look(0)
    share.on_state_changed(_changed(S.FOLLOWER_CATCHUP))

    share.look(32)

    assert kernel.taken == [COPYING_NICE]


async def test_what_the_kernel_does_not_take_at_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_share, "_RETRY_S", 0)
    kernel = _Kernel(refused_count=2)
    share = ProcessorShare(kernel.set_nice)

    share.on_state_changed(_changed(S.FOLLOWER_CATCHUP))
    share.on_state_changed(_changed(S.FOLLOWER_LOG_INIT))
    async with within(60):
        await kernel.has_taken.wait()

    assert kernel.taken == [0]
    assert repr(share) == "<ProcessorShare nice=0>"


@pytest.mark.parametrize(("is_own", "expected"), [(True, "10\n"), (False, "00\n")])
def test_only_a_session_of_its_own_is_made_nice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_own: bool, expected: str
) -> None:
    autogroup = tmp_path / "autogroup"
    autogroup.write_text("00\n")
    slices: list[int] = []
    monkeypatch.setattr(os, "getsid", lambda pid: os.getpid() if is_own else os.getpid() + 1)
    monkeypatch.setattr(processor_share, "set_slice", slices.append)

    assert set_session_nice(10, path=autogroup)

    assert expected == autogroup.read_text()
    assert ([COPYING_SLICE_NS] if is_own else []) == slices


def test_usual_slices_come_back_with_the_usual_nice_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[int] = []
    monkeypatch.setattr(os, "getsid", lambda pid: os.getpid())
    monkeypatch.setattr(processor_share, "set_slice", slices.append)

    set_session_nice(10, path=tmp_path / "missing")
    set_session_nice(0, path=tmp_path / "missing")

    assert slices == [COPYING_SLICE_NS, 0]


def test_the_kernel_is_asked_for_slices_where_its_call_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread of its own: what a thread asks for is its own affair."""
    with ThreadPoolExecutor(1) as pool:
        is_set = pool.submit(set_slice, COPYING_SLICE_NS).result()
        assert pool.submit(set_slice, 0).result() is is_set
        monkeypatch.setattr(processor_share, "_SET_SLICE_CALLS", {})
        assert pool.submit(set_slice, COPYING_SLICE_NS).result() is False


def test_threads_that_begin_meanwhile_get_their_usual_slices_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def set_slice_of(thread: int, slice_ns: int, call: object) -> bool:
        asked.append((thread, slice_ns))
        return True

    monkeypatch.setattr(processor_share, "_SET_SLICE_CALLS", {os.uname().machine: 0})
    monkeypatch.setattr(processor_share, "_set_slice_of", set_slice_of)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(threading.get_native_id).result()
        assert set_slice(COPYING_SLICE_NS)
        assert asked == [(0, COPYING_SLICE_NS)]
        asked.clear()

        set_slice(0)

    assert {(threading.get_native_id(), 0), (other, 0)} <= set(asked)


@pytest.mark.parametrize("error", [ImportError(), PermissionError(), AttributeError()])
def test_a_system_that_does_not_let_it_costs_the_member_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(thread: int, slice_ns: int, call: object) -> bool:
        raise error

    monkeypatch.setattr(processor_share, "_set_slice_of", refuse)

    assert set_slice(COPYING_SLICE_NS) is False


def test_a_kernel_without_autogroups_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getsid", lambda pid: os.getpid())
    monkeypatch.setattr(processor_share, "set_slice", lambda slice_ns: True)

    assert set_session_nice(10, path=tmp_path / "missing")

    assert not (tmp_path / "missing").exists()
