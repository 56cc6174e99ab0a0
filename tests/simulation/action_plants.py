"""Planted bugs in suspensions and terminations."""

from __future__ import annotations

from trimaran.cluster.core.actions import ActionControl
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.module_state import ModuleState
from trimaran.cluster.core.termination import TerminationControl

from .plant import ACTION_HUNT_OPTIONS, Plant, Planting


def _tell_followers_once(planting: Planting) -> None:
    """As Aeron does."""

    def poll(self: TerminationControl) -> None:
        if self.position is not None and self.unacknowledged and self._ctx.now_ns >= self._next_send_ns:
            planting.ran()
            self._next_send_ns = self._ctx.now_ns + self._ctx.config.termination_timeout_ns

    planting.replace(TerminationControl, "poll", poll)


def _keep_what_did_not_commit(planting: Planting) -> None:
    """A deposed leader goes on as its action would have it."""
    real = ActionControl.roll_back

    def roll_back(self: ActionControl) -> None:
        if self._pending is not None:
            planting.ran()
            self._delivered_state = self.state
        real(self)

    planting.replace(ActionControl, "roll_back", roll_back)


def _forget_the_suspension(planting: Planting) -> None:
    """Whoever leads next begins in an ordinary state."""
    real = ActionControl.on_lead

    def on_lead(self: ActionControl, publisher: LogPublisher) -> None:
        if self.state is ModuleState.SUSPENDED:
            planting.ran()
            self._machine.enter(ModuleState.ACTIVE, "forgotten")
        real(self, publisher)

    planting.replace(ActionControl, "on_lead", on_lead)


PLANTS = (
    *(
        Plant(name, class_number, rule, break_it, scenario)
        for name, class_number, rule, break_it, scenario in (
            (
                "told-to-stop-once",
                15,
                "a leader repeats a termination until members acknowledge it",
                _tell_followers_once,
                "cluster-stops",
            ),
            (
                "action-not-undone",
                19,
                "an action that did not commit is rolled back",
                _keep_what_did_not_commit,
                "order-undone",
            ),
            (
                "suspension-forgotten",
                31,
                "a suspension outlives its leader",
                _forget_the_suspension,
                "suspended-failover",
            ),
        )
    ),
    *(
        Plant(name, class_number, rule, break_it, options=ACTION_HUNT_OPTIONS)
        for name, class_number, rule, break_it in (
            ("suspension-lost", 31, "a suspension outlives its leader, in any run", _forget_the_suspension),
        )
    ),
)
