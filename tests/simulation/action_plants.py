"""Planted bugs in suspensions, terminations and hand-overs."""

from __future__ import annotations

from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.roles.actions import ActionControl
from trimaran.cluster.core.roles.follower import FollowerTerm
from trimaran.cluster.core.roles.termination import TerminationControl
from trimaran.cluster.core.roles.transfer import TransferControl
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.messages.transfer import TransferLeadership

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

    def on_lead(self: ActionControl, publisher: LogPublisher, first_position: int) -> None:
        if self.state is ModuleState.SUSPENDED:
            planting.ran()
            self._machine.enter(ModuleState.ACTIVE, "forgotten")
        real(self, publisher, first_position)

    planting.replace(ActionControl, "on_lead", on_lead)


def _hold_on_after_giving_up(planting: Planting) -> None:
    real = TransferControl._give_up

    def give_up(self: TransferControl, *facts: object) -> None:
        real(self, *facts)  # type: ignore[arg-type]  # passed on as it came
        planting.ran()
        self._actions.hold_for_transfer(is_asked=True)

    planting.replace(TransferControl, "_give_up", give_up)


def _obey_old_transfers(planting: Planting) -> None:
    """A request to stand is obeyed whenever it is found."""

    def on_transfer_leadership(self: FollowerTerm, message: TransferLeadership) -> Reason:
        if self._is_behind_time() or message.leadership_term_id != self._ctx.leadership_term_id:
            planting.ran()
        return _obey(message)

    planting.replace(FollowerTerm, "on_transfer_leadership", on_transfer_leadership)


def _obey(message: TransferLeadership) -> Reason:
    member_id, position = message.leader_member_id, message.log_position
    return Reason(ReasonKind.LEADERSHIP_TRANSFERRED, leader_member_id=member_id, log_position=position)


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
            (
                "hold-not-released",
                28,
                "a leader that gives a transfer up takes input again",
                _hold_on_after_giving_up,
                "hand-over",
            ),
            (
                "old-transfer-obeyed",
                15,
                "a transfer that was given up, or is of an old term, is not obeyed",
                _obey_old_transfers,
                "hand-over",
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
