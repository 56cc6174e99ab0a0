"""What a fuzz target is: a decoder of the product as a plain function of bytes, and valid inputs to begin with.

A target returns for every input that its decoder reads, and for every input that the decoder refuses as documented.
Anything else that it raises is a finding. It holds what can be held about what was read: encoded and decoded again it
is the same, in pieces it is the same as whole, and another reader of the same bytes agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

Run = Callable[[bytes], None]
Seeds = Callable[[], Iterable[bytes]]


@dataclass(slots=True, frozen=True)
class Target:
    """One decoder."""

    name: str
    run: Run
    """Decodes some bytes. What it lets pass is a finding."""
    seeds: Seeds
    """Gives valid inputs, most of them small."""
    length_limit: int
    """The longest input that is tried."""

    @property
    def about(self) -> str:
        """What is decoded, in one sentence."""
        return (self.run.__doc__ or "").strip().splitlines()[0]


TARGETS: Final[dict[str, Target]] = {}
"""Every target that has been imported; `tests.fuzz.targets.every` imports them all."""


def target(seeds: Seeds, *, name: str | None = None, length_limit: int = 4096) -> Callable[[Run], Run]:
    """Make a target of a function; its name is the function's."""

    def add(run: Run) -> Run:
        found = Target(run.__name__ if name is None else name, run, seeds, length_limit)
        if found.name in TARGETS:
            raise ValueError(f"two targets of one name: {found.name}")
        TARGETS[found.name] = found
        return run

    return add


def expect(condition: bool, what: str, **facts: object) -> None:
    """Report a finding unless something holds that has to."""
    if not condition:
        raise AssertionError(f"{what}: {facts}")
