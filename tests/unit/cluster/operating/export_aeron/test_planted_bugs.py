"""Random logs are exported, and a model says what Aeron's service must be given; what is broken on purpose is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.unit.cluster.operating.export_aeron.hand_made_log import MTU, HandMadeLog
from tests.unit.cluster.operating.export_aeron.test_rewriting import delivered, rewrite
from trimaran.cluster.operating.export_aeron import rewriting
from trimaran.cluster.operating.export_aeron.request_decisions import RequestDecisions, RequestOutcome
from trimaran.cluster.operating.export_aeron.rewriting import LogRewriter
from trimaran.service_api.wire.frame import encode_padding, stamp_checksums, unpack_header
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH

SEEDS = range(8)

Delivered = list[tuple[int, bytes]]


def make(directory: Path, seed: int) -> tuple[HandMadeLog, Delivered]:
    """Make a log of messages and requests, some of which come again, too early, or are skipped.

    Gives what is to be delivered, and where each of it ends.
    """
    rng, made = Random(seed), HandMadeLog(directory)
    expected: Delivered = []
    sequence, last = 0, b""
    for _ in range(60):
        payload = rng.randbytes(rng.choice((0, rng.randrange(200), MTU - rng.randrange(100), 2_700)))
        match rng.randrange(8):
            case 0 | 1:
                expected.append((made.message(payload), payload))
            case 2 if sequence:
                made.request(sequence, last, acknowledged=sequence - 1)
            case 3:
                made.request(sequence + 2, payload, acknowledged=sequence)
            case 4:
                made.skip(made.message(payload))
            case _:
                sequence, last = sequence + 1, payload
                expected.append((made.request(sequence, payload, acknowledged=sequence - 1), payload))
    return made, expected


def find_fault(directory: Path, seed: int) -> str | None:
    made, expected = make(directory / str(seed), seed)
    try:
        rewritten, _ = rewrite(made.close())
        found = delivered(rewritten)
    except AssertionError:
        return "a frame is not valid"
    return None if found == expected else "Aeron's service is given something else"


def run_again(patch: pytest.MonkeyPatch) -> None:
    """Rule: a request that came again is left out."""
    real = RequestDecisions.on_request

    def on_request(self: RequestDecisions, *facts: Any, **more: Any) -> RequestOutcome:  # passed on
        real(self, *facts, **more)
        return RequestOutcome.RAN

    patch.setattr(RequestDecisions, "on_request", on_request)


def keep_the_header(patch: pytest.MonkeyPatch) -> None:
    """Rule: a request's own fields are no part of the payload."""
    patch.setattr(rewriting, "REQUEST_HEADER_LENGTH", SESSION_HEADER_LENGTH)


def pad_behind(patch: pytest.MonkeyPatch) -> None:
    """Rule: a message ends where it ended, so that what a message loses is padding before it."""
    real = LogRewriter._message_at_end

    def message_at_end(self: LogRewriter, length: int, first_frame: bytes, message: bytes) -> bytes:
        header = unpack_header(first_frame)
        frames = bytearray(self._frames_of(message, header, header.term_offset))
        if length == len(frames):
            return real(self, length, first_frame, message)
        stamp_checksums(frames, self._log.descriptor.checksum_kind)
        after = header._replace(term_offset=header.term_offset + len(frames))
        padding = encode_padding(
            length - len(frames),
            stream_id=after.stream_id,
            session_id=self._log.descriptor.session_id,
            term_id=after.term_id,
            term_offset=after.term_offset,
        )
        return bytes(frames) + padding

    patch.setattr(LogRewriter, "_message_at_end", message_at_end)


def deliver_what_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """Rule: what an operator had skipped is left out."""
    patch.setattr(LogRewriter, "_rewrite_skipped", lambda self, position, raw, encoded: raw)


def stamp_nothing(patch: pytest.MonkeyPatch) -> None:
    """Rule: what is rewritten has the checksums that the log has."""
    patch.setattr(rewriting, "stamp_checksums", lambda frames, kind: 0)


PLANTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    run_again,
    keep_the_header,
    pad_behind,
    deliver_what_is_skipped,
    stamp_nothing,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_aeron_is_given_what_ran_where_it_ended(tmp_path: Path, seed: int) -> None:
    assert find_fault(tmp_path, seed) is None


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)

    assert any(find_fault(tmp_path, seed) is not None for seed in SEEDS)
