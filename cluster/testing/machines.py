"""State machines of Hypothesis for typed services: a service against a model of it, step by step.

Hypothesis draws commands and queries, restarts from snapshots, and lets time pass. After each step the service must
have answered what the model expects. A failure is made smaller, and told as the steps that lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ...service_api import ConfigurationError
from ...service_api.errors import MissingExtraError
from ...service_api.typed import Query, ServiceError, TypedService
from ...service_api.typed.handlers import HandlerRole, find_handlers
from .harness import new_service
from .strategies import strategy_for
from .typed_harness import TypedHarness

try:
    from hypothesis import settings
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
except ImportError as error:
    raise MissingExtraError("state machines need Hypothesis: pip install 'trimaran[test]'") from error

_RUN_COUNT: Final = 50
_LONGEST_ADVANCE_S: Final = 86_400


class ServiceModel:
    """What a service must do, said more simply. One object is made for each run of steps.

    class BankModel(ServiceModel):
        def __init__(self):
            self.total = 0

        def expect(self, message):
            match message:
                case Deposit(amount=amount) if amount < 0:
                    raise Refused(amount=amount)
                case Deposit(amount=amount):
                    self.total += amount
                    return ANY
    """

    def expect(self, message: Any) -> Any:
        """Return the reply that a command or query must have, or raise the `ServiceError` that it must raise.

        A reply is compared with `==`: return `unittest.mock.ANY` where each reply will do.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no `def expect(self, message)`")

    def on_advance(self, seconds: int) -> None:
        """Take in that so much time has passed, in whole seconds: timers of the service that are due have fired.

        Time passes only where a model has this method.
        """

    def invariant(self, service: Any) -> None:
        """Raise if the state of the service is not what it should be; called after each step. It changes nothing."""


def service_machine(
    service: Callable[[], TypedService],
    model: type[ServiceModel],
    *,
    strategies: Mapping[Any, st.SearchStrategy[Any]] | None = None,  # Any: of classes, keys that are invariant
    without: Iterable[type] = (),
    strict: bool = True,
    double_execution: bool = True,
) -> type[RuleBasedStateMachine]:
    """Make a state machine that sends a service what it has methods for, and compares it with a model.

        TestBank = service_machine(Bank, BankModel, strategies={Deposit: strategy_for(Deposit, account=names)}).TestCase

    Its steps are the commands and queries of the service, restarts from a snapshot, and time that passes. The test case
    makes 50 runs; `TestBank.settings = settings(...)` says otherwise.

    Args:
        service: The class of a typed service, or a function that makes one.
        model: What it must do.
        strategies: How messages of a class are drawn, where not by `strategy_for`.
        without: Classes of messages that are not sent.
        strict: As for `ServiceHarness`.
        double_execution: As for `ServiceHarness`.

    Raises:
        ConfigurationError: an argument that cannot work.
    """
    made, given_model = new_service(service), _model_class(model)
    if not isinstance(made, TypedService):
        raise ConfigurationError(f"service={type(made).__qualname__} expected a TypedService")
    given, left_out = dict(strategies or {}), frozenset(without)
    known = {
        entry.message: entry.role
        for entry in find_handlers(type(made))
        if entry.role in (HandlerRole.COMMAND, HandlerRole.QUERY)
    }
    if unknown := [each for each in (*given, *left_out) if each not in known]:
        raise ConfigurationError(
            f"{type(made).__qualname__} takes no {_names(unknown)}: expected some of {_names(known)}"
        )
    steps: dict[str, Any] = {}
    for message in known:
        if message not in left_out:
            step = _sending(message)
            drawn = given[message] if message in given else strategy_for(message)
            steps[step.__name__] = rule(message=drawn)(step)
    if not steps:
        raise ConfigurationError(f"nothing is sent: {type(made).__qualname__} has {_names(known)}, without={left_out}")
    if given_model.on_advance is not ServiceModel.on_advance:
        steps["advance"] = rule(seconds=st.integers(1, _LONGEST_ADVANCE_S))(_advance)
    steps["begin"] = staticmethod(
        lambda: (TypedHarness(service, strict=strict, double_execution=double_execution), given_model())
    )
    machine: Any = type(f"{type(made).__name__}Machine", (_ServiceMachine,), steps)  # Any: `TestCase` is unknown to it
    machine.TestCase.settings = settings(max_examples=_RUN_COUNT, deadline=None)  # no step is too slow
    made_machine: type[RuleBasedStateMachine] = machine
    return made_machine


class _ServiceMachine(RuleBasedStateMachine):
    """The steps that every service has."""

    begin: Callable[[], tuple[TypedHarness[TypedService], ServiceModel]]

    def __init__(self) -> None:
        super().__init__()
        self.harness, self.model = self.begin()

    @rule()
    def restart_from_snapshot(self) -> None:
        """Go on with a new instance, from what the service wrote."""
        self.harness.restart()

    @invariant()
    def agrees_with_model(self) -> None:
        """Let the author of the model look."""
        self.model.invariant(self.harness.service)


def _sending(message_class: type) -> Callable[[Any, Any], None]:
    """Make the step that sends messages of a class."""
    is_query = issubclass(message_class, Query)

    def send(machine: _ServiceMachine, message: Any) -> None:
        expected = _outcome(machine.model.expect, message)
        actual = _outcome(machine.harness.ask if is_query else machine.harness.call, message)
        if not _are_same(expected, actual):
            raise AssertionError(f"{message!r}: the model expects {_shown(expected)}, the service: {_shown(actual)}")

    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", message_class.__name__).lower()
    send.__name__ = send.__qualname__ = f"{'ask' if is_query else 'call'}_{words}"
    return send


def _advance(machine: _ServiceMachine, seconds: int) -> None:
    machine.harness.advance(seconds)
    machine.model.on_advance(seconds)


_advance.__name__ = "advance"


def _outcome(run: Callable[[Any], Any], message: Any) -> Any:  # Any: a reply, or the error in place of it
    try:
        return run(message)
    except ServiceError as error:
        return error


def _are_same(expected: Any, actual: Any) -> bool:  # Any: as of `_outcome`
    if isinstance(expected, ServiceError) or isinstance(actual, ServiceError):
        return type(expected) is type(actual) and str(expected) == str(actual)
    return bool(expected == actual)


def _shown(outcome: Any) -> str:  # Any: as of `_outcome`
    return f"error {outcome}" if isinstance(outcome, ServiceError) else repr(outcome)


def _model_class(model: Any) -> type[ServiceModel]:  # Any: a caller may not check types
    if not (isinstance(model, type) and issubclass(model, ServiceModel)):
        raise ConfigurationError(f"model={model!r} expected a subclass of ServiceModel, not an object of it")
    return model


def _names(messages: Iterable[type]) -> str:
    return ", ".join(sorted(each.__name__ for each in messages)) or "nothing"
