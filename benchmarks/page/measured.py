"""The words that every section says of where its figures come from, and of a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def measured_at(environment: Mapping[str, Any]) -> str:
    """Say at what commit and when figures were measured, and what else the machine did before."""
    when = f" on {environment['date']}" if environment.get("date") else ""
    load = environment["load_average"][0]
    return (
        f"at commit {environment['git_commit']}{when}, with a load average of {load:g} on {environment['cores']} cores"
    )


def reached_words(target: str, is_reached: bool) -> str:
    """Say a target, and whether it is reached."""
    return f"{target}: {'reached' if is_reached else '**not reached**'}"
