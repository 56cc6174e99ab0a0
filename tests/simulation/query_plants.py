"""Planted bugs in reads without a log entry: who confirms a leader, when, and from what state the answer is."""

from __future__ import annotations

from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.events import ReadsWanted
from trimaran.cluster.core.roles import leadership_probe
from trimaran.cluster.core.roles.leadership_probe import LeaderReads
from trimaran.cluster.messages.reads import LeadershipProbe
from trimaran.cluster.runtime.turns.queries import QueryHandler, _Query

from .plant import QUERY_HUNT_OPTIONS, Plant, Planting


def _confirm_alone(planting: Planting) -> None:
    """The leader takes its own word for it."""

    def is_confirmed(self: LeaderReads, current: object) -> bool:
        planting.ran()
        return True

    planting.replace(LeaderReads, "_is_confirmed", is_confirmed)


def _use_the_round_under_way(planting: Planting) -> None:
    """What was asked for while a round was under way is answered by it: its acknowledgements may be older."""
    real = LeaderReads.on_wanted

    def on_wanted(self: LeaderReads, event: ReadsWanted) -> None:
        if self._round is not None:
            planting.ran()
            self._round.through = self._covered = event.through
        real(self, event)

    planting.replace(LeaderReads, "on_wanted", on_wanted)


def _acknowledge_anybody(planting: Planting) -> None:
    """A member says yes to every query, while it elects another leader, and when it follows one."""
    real = ConsensusModule._dispatch

    def dispatch(self: ConsensusModule, event: object) -> None:
        if not isinstance(event, LeadershipProbe):
            real(self, event)
            return
        if self.follower is None or not leadership_probe.may_acknowledge(self.ctx, event):
            planting.ran()
        leadership_probe.acknowledge(self.ctx, event)

    planting.replace(ConsensusModule, "_dispatch", dispatch)


def _answer_before_delivery(planting: Planting) -> None:
    real = QueryHandler._confirm

    def confirm(self: QueryHandler, query: _Query, confirmed: fx.ReadConfirmed) -> None:
        if confirmed.log_position > self._delivery.position:
            planting.ran()
            confirmed = fx.ReadConfirmed(confirmed.through, 0, confirmed.as_of_ns)
        real(self, query, confirmed)

    planting.replace(QueryHandler, "_confirm", confirm)


PLANTS = tuple(
    Plant(name, 19, rule, break_it, scenario=scenario, options=QUERY_HUNT_OPTIONS)
    for name, rule, break_it, scenario in (
        (
            "query-not-confirmed",
            "a majority confirms a leader before it answers a query",
            _confirm_alone,
            "deposed-leader",
        ),
        (
            "query-earlier-round",
            "a query waits for a probe that began after the query came",
            _use_the_round_under_way,
            "deposed-leader",
        ),
        (
            "query-ack-anybody",
            "a member that elects or follows another leader does not confirm",
            _acknowledge_anybody,
            "deposed-leader-asks",
        ),
        (
            "query-before-delivery",
            "the answer to a query reflects the log up to its read position",
            _answer_before_delivery,
            None,
        ),
    )
)
