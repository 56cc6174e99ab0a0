"""A node's part in entries at which its service fails, and in those that an operator has skipped.

A callback that fails for a reason of this member alone ends its process. Started again, the member tries the entry
again: what it lacked may be there. If it fails there again, it holds: it starts again in the same process, delivers up
to that entry and stands still before it. It goes on to record, to vote, and to lead while no other member can, so that
an operator has somebody to ask. See `service.skipped_entries` for how an entry is skipped.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog

from ....archive.errors import REFILL_ADVICE
from ....service_api import ClusterError, ServiceFailedError
from ....service_api.types import Role
from ....service_api.wire.log.messages import EntrySkip
from ...core.context import ConsensusContext
from ...core.vocabulary.held_entry import HELD_ADVICE, HeldEntry
from ...core.vocabulary.reluctance import Reluctance
from ...service.bounded_log_adapter import BoundedLogAdapter
from ..files.member_files import MemberFiles
from ..ground.agent_door import NodeEnd
from .agent import ConsensusModuleAgent

_LEADER_DELAY_S: Final = 0.25
"""A leader that starts again waits for so long: what the operator is told, and the commit position, go out before."""

logger = structlog.get_logger()


class EntrySkips:
    """What one node knows and learns of such entries."""

    def __init__(
        self,
        ctx: ConsensusContext,
        files: MemberFiles,
        adapter: BoundedLogAdapter,
        agent: ConsensusModuleAgent,
        *,
        directory: Path,
    ) -> None:
        self._ctx, self._files, self._adapter, self._agent = ctx, files, adapter, agent
        self._directory = directory
        self._learned: EntrySkip | None = None

    def __repr__(self) -> str:
        return f"<EntrySkips held={self._ctx.held} skipped={self._ctx.skipped_entries} learned={self._learned}>"

    def attach(self, *, holds: bool) -> None:
        """Tell delivery which entries to pass over, and to hold before the entry that failed last if it `holds`."""
        ctx, notes = self._ctx, self._files.notes
        ctx.skipped_entries = notes.skipped_entries
        ctx.held = notes.difference or (notes.failed if holds else None)
        if ctx.held is not None:
            ctx.note_reluctance(Reluctance.SERVICE_HELD, f"its service stands before {ctx.held}")
        if notes.difference is not None:
            ctx.note_reluctance(Reluctance.LOG_DIFFERS, str(notes.difference))
        self._adapter.know_skips(ctx.skipped_entries, held=ctx.held)
        self._adapter.on_skip = self._on_skip

    def note_failure(self, failure: ServiceFailedError) -> None:
        """Note where a callback failed; return if it is the second time there, and the node is to hold.

        Raises:
            ServiceFailedError: it is the first time, or belongs to no entry: the process ends.
        """
        if failure.log_position is None:
            raise failure
        before, now = self._files.notes.failed, HeldEntry(failure.log_position, failure.callback, failure.failure)
        self._files.notes.note_failure(now)
        if before is None or before.log_position != now.log_position:
            raise failure
        logger.error(
            "entry.held",
            log_position=now.log_position,
            callback=now.callback,
            error=now.failure,
            reason="the service failed there again: this member records the log and votes, and delivers nothing more",
            advice=HELD_ADVICE,
            exc_info=failure,
        )

    def note_skip(self, log_start_position: int) -> None:
        """Once everything is closed: note durably the skip that was learned, when no snapshot is left without it.

        Raises:
            ClusterError: nothing is left from before the entry to start from.
        """
        skip = self._learned
        if skip is None:
            return
        skipped_position, file = skip.skipped_log_position, self._files.recording_log
        snapshots = file.recording_log.complete_snapshots(self._ctx.config.service_count)
        if log_start_position > 0 and not any(one[0].log_position < skipped_position for one in snapshots):
            raise ClusterError(
                f"an operator had the entry skipped that ends at log_position={skipped_position}, and this member has "
                f"no state from before it: log_start_position={log_start_position} directory={self._directory}; "
                f"{REFILL_ADVICE}"
            )
        if file.recording_log.invalidate_snapshots(skipped_position, skip.log_position):
            file.persist()
        self._files.notes.note_skip(skipped_position, skip_log_position=skip.log_position)

    def _on_skip(self, skip: EntrySkip) -> None:
        """An entry is skipped that this member holds before, or has delivered: start again, and pass it over."""
        if self._learned is not None:
            return
        self._learned = skip
        logger.warning(
            "entry.skip_learned",
            log_position=skip.skipped_log_position,
            skip_log_position=skip.log_position,
            reason="this member starts again from before that entry, and passes it over",
        )
        delay_s = _LEADER_DELAY_S if self._ctx.role is Role.LEADER else 0.0
        asyncio.get_running_loop().call_later(delay_s, self._agent.restart, NodeEnd.ENTRY_SKIPPED)
