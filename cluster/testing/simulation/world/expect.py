"""The form of a rule of the simulation, and the error that is raised when it does not hold."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ....service.agent import ClusteredServiceAgent

STRICT_RULE: Final = "callbacks of a service stay in the log"
INVARIANT_RULE: Final = "an invariant of the service holds"
AT_REST_RULE: Final = "what must hold of services at rest holds"


class RuleBroken(Exception):
    """A rule that must always hold does not: a bug, or one planted on purpose."""

    def __init__(self, rule: str, **facts: object) -> None:
        super().__init__(f"{rule}: " + " ".join(f"{name}={value!r}" for name, value in facts.items()))
        self.rule = rule


def expect(condition: object, rule: str, **facts: object) -> None:
    """Raise `RuleBroken` unless the condition holds.

    Raises:
        RuleBroken: the condition does not hold; it carries the rule and the facts.
    """
    if not condition:
        raise RuleBroken(rule, **facts)


class FoundInside:
    """The first rule that was broken inside a callback of the product, which would take it for a fault of its own."""

    def __init__(self) -> None:
        self.broken: RuleBroken | None = None

    def __repr__(self) -> str:
        return f"<FoundInside {self.broken!r}>"

    def keep(self, broken: RuleBroken) -> None:
        """Keep it until the next look, unless another one came before."""
        self.broken = self.broken or broken

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what the block raises, which ends there."""
        try:
            yield
        except RuleBroken as broken:
            self.keep(broken)

    def tell(self) -> None:
        """Raise what was found.

        Raises:
            RuleBroken: something was.
        """
        if self.broken is not None:
            raise self.broken


@dataclass(slots=True, frozen=True)
class ServiceChecks:
    """What must hold of the services of each member; what a check raises is a broken rule."""

    invariant: Callable[[Any], object] | None = None  # Any: of the service's own class
    """Called with a service of a member after each entry that is delivered to it."""
    at_rest: Callable[[Sequence[Any]], object] | None = None
    """Called in the end with the service of each member that has everything, or a tuple of its services where a member
    runs several: they are at one position."""
    equip: Callable[[ClusteredServiceAgent, Callable[[str], None]], None] | None = None
    """Called with the container of each node before it starts, to put watches into it; and with what takes a place of
    the service that left the log, where one is met."""

    def look(self, service: object, describe: Callable[[], dict[str, object]] = dict, **facts: object) -> None:
        """Look at a service after an entry; `describe` gives more facts, where the rule is broken.

        Raises:
            RuleBroken: the invariant does not hold.
        """
        if self.invariant is not None:
            _expect_no_error(INVARIANT_RULE, self.invariant, service, describe, **facts)

    def look_at_rest(self, services: Sequence[object]) -> None:
        """Look at services that are at one position.

        Raises:
            RuleBroken: what must hold then does not.
        """
        if self.at_rest is not None:
            _expect_no_error(AT_REST_RULE, self.at_rest, services, dict)


NO_CHECKS: Final = ServiceChecks()


def _expect_no_error(
    rule: str,
    check: Callable[[Any], object],
    subject: object,
    describe: Callable[[], dict[str, object]],
    **facts: object,
) -> None:
    try:
        check(subject)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise RuleBroken(rule, **facts, **describe(), error=error, file=place.filename, line=place.lineno) from error
