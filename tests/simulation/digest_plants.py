"""Planted bugs in the comparison of members' digests."""

from __future__ import annotations

from typing import Any

from trimaran.cluster.core.digests.digest_comparison import DigestComparison
from trimaran.cluster.messages.digests import DigestKind, ServiceDigest

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


PLANTS = (
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
