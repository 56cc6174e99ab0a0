"""State machines: a service beside a model, and what is told where they do not agree."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.facts import has_facts
from trimaran import (
    Command,
    ConfigurationError,
    Context,
    Query,
    ServiceError,
    TimerMessage,
    TypedService,
    answers,
    derived,
    handles,
    on_timer,
    state,
)
from trimaran.cluster.testing import ServiceModel, service_machine, strategy_for

from .counting import Counter


class Refused(ServiceError):
    amount: int


class Add(Command[int]):
    amount: int


class AddLater(Command[int]):
    amount: int
    after_s: int


class Total(Query[int]):
    pass


class Due(TimerMessage):
    amount: int


class Adder(TypedService):
    total: int = state()

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        if message.amount < 0:
            raise Refused(amount=message.amount)
        self.total += message.amount
        return self.total

    @handles(AddLater)
    def add_later(self, ctx: Context, message: AddLater) -> int:
        return ctx.schedule(Due(message.amount), after=message.after_s)

    @on_timer(Due)
    def on_due(self, ctx: Context, message: Due) -> None:
        self.total += message.amount

    @answers(Total)
    def tell_total(self, ctx: Context, message: Total) -> int:
        return self.total


class AdderModel(ServiceModel):
    """The same as lists."""

    def __init__(self) -> None:
        self.now = self.total = 0
        self.due: list[tuple[int, int]] = []

    def expect(self, message: object) -> Any:
        match message:
            case Add(amount=amount) if amount < 0:
                raise Refused(amount=amount)
            case Add(amount=amount):
                self.total += amount
            case AddLater(amount=amount, after_s=after_s):
                self.due.append((self.now + after_s, amount))
                return ANY
        return self.total

    def on_advance(self, seconds: int) -> None:
        self.now += seconds
        self.total += sum(amount for deadline, amount in self.due if deadline <= self.now)
        self.due = [timer for timer in self.due if timer[0] > self.now]

    def invariant(self, service: Adder) -> None:
        assert service.total == self.total


PHASES = Phase.generate, Phase.shrink  # to say what else would fail takes the longest
SMALL = st.integers(-3, 99)
STRATEGIES = {
    Add: strategy_for(Add, amount=SMALL),
    AddLater: strategy_for(AddLater, amount=SMALL, after_s=st.integers(1, 100_000)),
}


def run(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=15, stateful_step_count=20, database=None, derandomize=True, phases=PHASES),
    )


def told_by(machine: type[RuleBasedStateMachine]) -> str:
    with pytest.raises(AssertionError) as failed:
        run(machine)
    return "\n".join([str(failed.value), *getattr(failed.value, "__notes__", [])])


def test_a_service_that_does_what_its_model_says_passes_with_timers_and_restarts() -> None:
    run(service_machine(Adder, AdderModel, strategies=STRATEGIES))


def test_another_reply_is_told_with_the_fewest_steps() -> None:
    class Capped(Adder):
        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            return min(super().add(ctx, message), 50)

    told = told_by(service_machine(Capped, AdderModel, strategies=STRATEGIES, without=[AddLater], strict=False))

    assert has_facts(told, "Add(amount=51):", "51", "50")
    assert told.count("call_add") == 1


def test_an_error_in_place_of_a_reply_is_told() -> None:
    class Strict(Adder):
        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            if message.amount == 0:
                raise Refused(amount=0)
            return super().add(ctx, message)

    few = {Add: strategy_for(Add, amount=st.integers(0, 2))}
    told = told_by(service_machine(Strict, AdderModel, strategies=few, without=[AddLater]))

    assert has_facts(told, "Add(amount=0):", "0", "Refused(amount=0)")


def test_what_a_start_derives_otherwise_than_handlers_kept_it_is_lost_at_a_restart() -> None:
    class Hidden(Adder):
        kept: int = derived(lambda adder: 0)

        @handles(Add)
        def add(self, ctx: Context, message: Add) -> int:
            self.kept += message.amount
            return self.kept

    told = told_by(
        service_machine(
            Hidden,
            _RepliesOnly,
            strategies={Add: strategy_for(Add, amount=st.integers(1, 9))},
            without=[AddLater, Total],
            double_execution=False,  # which finds it before any reply differs
        )
    )

    assert "restart_from_snapshot" in told


class _RepliesOnly(ServiceModel):
    def __init__(self) -> None:
        self.total = 0

    def expect(self, message: Add) -> int:
        self.total += message.amount
        return self.total


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": AdderModel()}, "ServiceModel"),
        ({"service": Counter}, "service=Counter .*TypedService"),
        ({"strategies": {Due: st.nothing()}}, "Due: .*Add, AddLater, Total"),
        ({"without": [Add, AddLater, Total]}, "nothing.*Add, AddLater, Total"),
    ],
    ids=["object", "untyped", "message", "nothing"],
)
def test_wrong_use_says_what_to_do(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        service_machine(**{"service": Adder, "model": AdderModel, **settings})
