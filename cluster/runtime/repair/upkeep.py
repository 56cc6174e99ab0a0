"""Keeps what a member has recorded whole: a scrub that finds damage, and a repairer that mends it."""

from __future__ import annotations

from ....archive import Archive
from ....archive.store.damage import DamagedPlace, DamageTracker
from ....archive.store.scrub import Scrub, ScrubProgress
from ....service_api.cluster_id import ClusterId
from ...core.context import ConsensusContext
from ...settings.config import NodeConfig
from ..files.log_copies_file import LogCopiesFile
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from ..ground.host import Host
from .fetching import RepairPeer
from .mender import Mender, RepairCounts, RepairFacts
from .repairer import Repairer


class Upkeep:
    """The scrub and the repairer of one member."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        config: NodeConfig,
        *,
        host: Host,
        copies: LogCopiesFile,
        agent: AgentDoor,
    ) -> None:
        self._archive = archive
        self._mender = Mender(
            archive, network=host.network, facts=lambda: describe_facts(ctx), copies=copies, on_failed=agent.terminate
        )
        self._repairer = Repairer(ctx, archive, self._mender, agent)
        self.mender = self._mender
        self._scrub = Scrub(
            archive,
            host.file_system,
            rate_limit_bytes_per_s=config.scrub_bytes_per_s,
            interval_s=config.scrub_interval_ms / 1e3,
            bound=lambda recording_id: (
                ctx.commit_position if recording_id == ctx.log_recording_id else archive.recorded_position(recording_id)
            ),
            on_damage=self._mender.mend,
            clock_ms=host.clock.epoch_time,
        )

    def __repr__(self) -> str:
        return f"<Upkeep {self._scrub!r} {self._repairer!r}>"

    @property
    def progress(self) -> ScrubProgress:
        """Where the scrub is, and what it has found."""
        return self._scrub.progress

    @property
    def counts(self) -> RepairCounts:
        """What was mended, and what nobody can mend."""
        return self._mender.counts

    @property
    def damage(self) -> DamageTracker:
        """What is known to be damaged."""
        return self._archive.damage

    def lost(self, place: DamagedPlace) -> str | None:
        """Return why no member can give what belongs in a damaged place; None while that is not known."""
        return self.counts.lost.get((place.recording_id, place.position))

    def ask(self) -> None:
        """Have a pass of the scrub begin now, if none runs."""
        self._scrub.ask()

    def start(self, tasks: ActivityScope) -> None:
        """Find and mend, for as long as the member runs."""
        tasks.create_task(self._scrub.run(), name="scrub")
        tasks.create_task(self._repairer.run(), name="repair")


def describe_facts(ctx: ConsensusContext) -> RepairFacts:
    """Describe what a running member knows of its log, and of who can give parts of it."""
    others = {member.member_id for member in ctx.others}
    return RepairFacts(
        log_recording_id=ctx.log_recording_id,
        commit_position=ctx.commit_position,
        recording_log=ctx.recording_log,
        peers={
            member_id: RepairPeer(member_id, address.consensus, address.archive)
            for member_id, address in ctx.roster.addresses.items()
            if member_id in others
        },
        cluster_id=ClusterId(ctx.cluster_id),
    )
