"""Planted bugs in what is taken from others to mend a log, and in how a member that has lost its log comes back.

Each of the rules of mending is enough alone: bytes that are committed elsewhere are right, and so are those of the same
term. So a plant leaves out all that would stop what it does wrong.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

from trimaran.archive.store import mending
from trimaran.cluster.core.log.log_repair import OtherCopy, RepairPlan, Term, plan_repair
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.repair import mender
from trimaran.cluster.runtime.repair.fetching import fetch_range
from trimaran.service_api.wire.frame import unpack_header

from .plant import Plant, Planting

_BEYOND: int = 1 << 12
"""How much of what another member has is taken, committed or not."""


def _mend_from_the_wrong_term(planting: Planting) -> None:
    """What another member has at that position is taken, whatever term it is of."""
    _take_what_is_not_committed(planting)

    def plan(position: int, *, terms: Sequence[Term], copies: Sequence[OtherCopy], **facts: Any) -> RepairPlan:
        planting.ran()
        trusted = [replace(copy, commit_position=position + _BEYOND, terms=tuple(terms)) for copy in copies]
        return plan_repair(position, terms=terms, copies=trusted, **facts)

    planting.replace(mender, "plan_repair", plan)


def _mend_from_an_uncommitted_log(planting: Planting) -> None:
    """A scrub mends what is committed here from a member that has not committed so far."""
    _take_what_is_not_committed(planting)

    def plan(position: int, *, terms: Sequence[Term], copies: Sequence[OtherCopy], **facts: Any) -> RepairPlan:
        planting.ran()
        here = [term for term in terms if term.term_base_log_position <= position]
        trusted = [
            replace(copy, commit_position=position + _BEYOND, terms=(*copy.terms[:-1], here[-1])) for copy in copies
        ]
        return plan_repair(position, terms=terms, copies=trusted, **facts)

    planting.replace(mender, "plan_repair", plan)


def _take_what_is_not_committed(planting: Planting) -> None:
    def fetch(*args: Any, **facts: Any) -> AsyncGenerator[bytes, None]:
        return fetch_range(*args, **{**facts, "is_log": False})

    def damaged_length(
        rules: object, recording_id: int, position: int, own: bytes, frames: bytes, *, replaces: bool
    ) -> int:
        return unpack_header(frames).aligned_length

    planting.replace(mender, "fetch_range", fetch)
    planting.replace(mender, "find_term_fault", lambda frames, position, terms: None)
    planting.replace(mending, "_damaged_length", damaged_length)


def _vote_at_once(planting: Planting) -> None:
    """A member that has set its log aside keeps its vote."""

    def withdraw(self: NodeStateFile, timestamp_ms: int) -> None:
        planting.ran()

    planting.replace(NodeStateFile, "withdraw_vote", withdraw)


PLANTS = (
    Plant(
        "mended-from-the-wrong-term",
        6,
        "a log is mended only with what was written in the same leadership term",
        _mend_from_the_wrong_term,
        "repair-of-a-minority",
    ),
    Plant(
        "mended-from-uncommitted",
        6,
        "a scrub mends what is committed only from what is committed",
        _mend_from_an_uncommitted_log,
        "repair-of-a-minority",
    ),
    Plant(
        "votes-at-once",
        6,
        "a member that has lost its log votes when it has caught up, and not before",
        _vote_at_once,
        "comes-back-empty",
    ),
)
