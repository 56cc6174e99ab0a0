"""Every decoder on inputs that chance makes, and on those that campaigns have found worth keeping."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterator
from functools import cache

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import STORED, stored_inputs
from tests.fuzz.page import PAGE, page
from tests.fuzz.quiet import be_quiet
from tests.fuzz.target import Target
from tests.fuzz.targets.every import every_target

TARGETS = every_target()
EXAMPLES = settings(
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ALLOWANCE_BYTES = 24 << 20
"""What a target may take beside its input: the disks and buffers of the member that it plays."""

VALUES = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from(
        [bytes(4), bytes(8), b"\xff" * 4, b"\xff" * 8, b"\x7f" * 4, b"\0\0\0\x80", b"\x01\0\0\0", b"[" * 9]
    ),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Log nothing, here alone: the tests after these in the same process hear loggers again."""
    configured, disabled = structlog.get_config(), logging.root.manager.disable
    be_quiet()
    yield
    structlog.configure(**configured)
    logging.disable(disabled)


@cache
def seeds_of(name: str) -> list[bytes]:
    return [*TARGETS[name].seeds()]


@st.composite
def inputs_of(draw: st.DrawFn, name: str) -> bytes:
    """Valid inputs with a few bytes changed, cut, doubled or joined; now and then any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(seeds_of(name))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 5)):
            case 0:
                del data[place:]
            case 1:
                data += draw(st.sampled_from(seeds_of(name)))[place:]
            case 2:
                del data[place : place + draw(st.integers(1, 64))]
            case _:
                value = draw(VALUES)
                data[place : place + len(value)] = value
    return bytes(data[: TARGETS[name].length_limit])


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_is_read_or_refused(name: str) -> None:
    run = TARGETS[name].run

    @EXAMPLES
    @given(inputs_of(name))
    def check(data: bytes) -> None:
        run(data)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_what_campaigns_have_kept_is_read_or_refused(name: str) -> None:
    target = TARGETS[name]
    for data in (b"", b"\0", *seeds_of(name), *stored_inputs(name)):
        target.run(data[: target.length_limit])


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_takes_memory_by_what_it_announces(name: str) -> None:
    """Lengths in an input that are as large as they can be, everywhere."""
    target, largest = TARGETS[name], bytes.fromhex("ffffff7f")
    target.run(seeds_of(name)[0])
    peak = max(_peak_bytes(target, seed[:place] + largest + seed[place + 4 :]) for seed, place in _places(name))
    assert peak < ALLOWANCE_BYTES


def _places(name: str) -> list[tuple[bytes, int]]:
    seed = min(seeds_of(name), key=len)
    return [(seed, place) for place in range(0, min(len(seed), 256), 8)]


def _peak_bytes(target: Target, data: bytes) -> int:
    tracemalloc.start()
    try:
        target.run(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_every_target_has_valid_inputs_and_says_what_it_decodes() -> None:
    for target in TARGETS.values():
        assert seeds_of(target.name), target.name
        assert target.about.endswith("."), target.name


def test_the_stored_corpus_is_small_and_of_targets_that_there_are() -> None:
    stored = [*STORED.glob("*.zip")]

    assert {path.stem for path in stored} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in stored) < 1 << 20


def test_the_page_is_what_the_stored_results_say() -> None:
    """Written by `python -m tests.fuzz page`."""
    assert PAGE.read_text(encoding="utf-8") == page()
