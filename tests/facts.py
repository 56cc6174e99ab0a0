"""Compare what a command or an error says by its facts, so that a better sentence breaks no test."""

from __future__ import annotations


def has_facts(said: object, *facts: str) -> bool:
    """Return True if a text, or the text of an error, has every one of the facts: values, names, key words."""
    return all(fact in str(said) for fact in facts)
