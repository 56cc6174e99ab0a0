"""Planted bugs in the comparison of members' digests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trimaran.cluster.core.digests import digest_comparison
from trimaran.cluster.core.digests.digest_comparison import DigestComparison
from trimaran.cluster.core.log import log_comparison
from trimaran.cluster.core.vocabulary.divergence import Divergence
from trimaran.cluster.messages.digests import DigestKind, ServiceDigest
from trimaran.cluster.runtime.files.copy_notes import CopyNotes
from trimaran.cluster.runtime.repair import comparing
from trimaran.cluster.runtime.repair.comparing import LogComparer, LogComparison
from trimaran.cluster.runtime.turns.divergence_reporter import DivergenceReporter
from trimaran.service_api import ServiceDivergedError
from trimaran.service_api.types import MemberId

from .plant import Plant, Planting


def _digest_what_is_not_committed(planting: Planting) -> None:
    """A digest depends on how far the log is appended here, which may never commit."""
    real = DigestComparison.on_replay_digest

    def on_replay_digest(
        self: DigestComparison, kind: int, service_id: int, log_position: int, digest: bytes, value: str
    ) -> None:
        append_position = self._ctx.log_buffer.append_position
        if kind == DigestKind.STATE and append_position > log_position:
            planting.ran()
            digest = append_position.to_bytes(16, "little")
        real(self, kind, service_id, log_position, digest, value)

    planting.replace(DigestComparison, "on_replay_digest", on_replay_digest)


def _compare_nothing(planting: Planting) -> None:
    """What other members tell is thrown away."""

    def on_digest(self: DigestComparison, message: ServiceDigest) -> None:
        planting.ran()

    planting.replace(DigestComparison, "on_digest", on_digest)


def _go_on_in_a_minority(planting: Planting) -> None:
    """A member that differs from a majority says so and goes on."""
    real = DigestComparison._on_difference

    def on_difference(self: DigestComparison, place: Any, found: Any) -> None:
        real(self, place, found)
        for effect in self._ctx.effects:
            if getattr(effect, "is_stopping", False):
                planting.ran()
                effect.is_stopping = False  # type: ignore[union-attr]  # only one kind has it

    planting.replace(DigestComparison, "_on_difference", on_difference)


def _stop_without_comparing(planting: Planting) -> None:
    """A member that differs from a majority blames its service, and looks at no log."""

    async def compare_and_stop(self: DivergenceReporter, divergence: Divergence) -> None:
        planting.ran()
        raise ServiceDivergedError(str(divergence))

    planting.replace(DivergenceReporter, "_compare_and_stop", compare_and_stop)


def _count_copies(planting: Planting) -> None:
    """Each member has a vote, whatever its log is a copy of."""

    def count(member_ids: Iterable[MemberId], copies: object, position: int, stop_position: int) -> int:
        planting.ran()
        return len(set(member_ids))

    for module in (digest_comparison, comparing, log_comparison):
        planting.replace(module, "count_independent", count)


def _forget_the_source(planting: Planting) -> None:
    """A member copies a range, and notes nothing."""

    async def begin(self: CopyNotes, source_id: MemberId, position: int, stop_position: int = 0) -> None:
        planting.ran()

    planting.replace(CopyNotes, "begin", begin)


def _stop_one_of_two(planting: Planting) -> None:
    """Where nobody can say whose log is valid, a member stops."""

    async def hold(self: LogComparer, found: LogComparison) -> None:
        planting.ran()
        raise ServiceDivergedError(str(found.difference))

    planting.replace(LogComparer, "hold", hold)


def _go_on_at_one_against_one(planting: Planting) -> None:
    """Where nobody can say whose log is valid, a member says so and delivers its own."""

    async def act(self: DivergenceReporter, found: LogComparison) -> bool:
        if found.difference is None:
            return await real(self, found)
        planting.ran()
        return False

    real = DivergenceReporter._act
    planting.replace(DivergenceReporter, "_act", act)


PLANTS = (
    Plant(
        "stop-without-comparing",
        31,
        "a member compares its log with the others' before it stops",
        _stop_without_comparing,
        scenario="log-differs",
    ),
    Plant(
        "copies-have-votes",
        31,
        "a majority of copies of one source is no majority",
        _count_copies,
        scenario="copied-difference",
    ),
    Plant(
        "copy-without-source",
        31,
        "a copied range records its source",
        _forget_the_source,
        scenario="copied-difference",
    ),
    Plant(
        "one-of-two-stops",
        31,
        "at one against one nobody is stopped for good",
        _stop_one_of_two,
        scenario="copied-difference",
    ),
    Plant(
        "one-of-two-goes-on",
        31,
        "at one against one nobody acknowledges",
        _go_on_at_one_against_one,
        scenario="copied-difference",
    ),
    Plant(
        "digest-of-uncommitted",
        31,
        "a digest is a function of committed entries",
        _digest_what_is_not_committed,
    ),
    Plant(
        "digests-not-compared",
        31,
        "members find that a service differs",
        _compare_nothing,
        scenario="one-differs",
    ),
    Plant(
        "minority-goes-on",
        31,
        "a member that differs from a majority stops",
        _go_on_in_a_minority,
        scenario="one-differs",
    ),
)
