"""The form of a rule of the simulation, and the error that is raised when it does not hold."""

from __future__ import annotations


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
