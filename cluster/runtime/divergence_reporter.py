"""Tells what members' digests have shown: a log event with all values, and the error that a minority stops with."""

from __future__ import annotations

from pathlib import Path

import structlog

from trimaran.archive.errors import REFILL_ADVICE
from trimaran.service_api import ServiceDivergedError

from ..core import effects as fx
from ..core.digests.divergence import Divergence
from ..messages.digests import DigestKind

logger = structlog.get_logger()


class DivergenceReporter:
    """Tells of divergence with the commands that show it, for one member's directory and services."""

    def __init__(self, directory: Path, service: str) -> None:
        self._directory = directory
        self._service = service

    def __repr__(self) -> str:
        return f"<DivergenceReporter {self._directory}>"

    def on_differed(self, effect: fx.DigestsDiffered) -> None:
        """Tell where members differ, and stop this one if the core says so.

        Raises:
            ServiceDivergedError: this member differs from a majority.
        """
        divergence = effect.divergence
        what_to_do = "this member stops" if effect.is_stopping else self._what_to_do(divergence)
        logger.error("service.digests_differed", **_facts(divergence), detail=f"{divergence}; {what_to_do}")
        if effect.is_stopping:
            raise ServiceDivergedError(self._why_it_stops(divergence))

    def on_mended(self, effect: fx.DivergenceMended) -> None:
        """Tell that the members which differed agree with the others again."""
        logger.info("service.digests_agreed", **_facts(effect.divergence))

    def _why_it_stops(self, divergence: Divergence) -> str:
        return (
            f"this member differs from a majority of members: {divergence}. It stops, and its snapshots from that "
            f"position on no longer count. {self._commands(divergence)}. When the service is mended, {REFILL_ADVICE}: "
            f"directory={self._directory}"
        )

    def _what_to_do(self, divergence: Divergence) -> str:
        if divergence.has_majority:
            differing = sorted(divergence.differing)
            return f"members {differing} differ from a majority: {self._commands(divergence)}"
        return f"no majority agrees, so nobody can say who is right: {self._commands(divergence)}"

    def _commands(self, divergence: Divergence) -> str:
        where, service = self._directory, self._service
        return (
            f"To look: `trimaran replay {where} --service {service} --position {divergence.log_position}` and "
            f"`trimaran replay {where} --service {service} --verify-snapshots`, on the directory of each member; "
            f"`trimaran snapshot verify {where}`; `trimaran archive diff` of two members' archives"
        )


def kind_name(kind: int) -> str:
    """Return the word for a kind of digest."""
    known = {each.value: each.name.lower() for each in DigestKind}
    return known.get(kind, f"kind {kind}")


def _facts(divergence: Divergence) -> dict[str, object]:
    return {
        "kind": kind_name(divergence.kind),
        "service_id": divergence.service_id,
        "log_position": divergence.log_position,
        "values": {str(member_id): value for member_id, value in sorted(divergence.values.items())},
        "differing_members": sorted(divergence.differing),
        "has_majority": divergence.has_majority,
    }
