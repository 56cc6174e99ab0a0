"""The results of a hunt as a table: on the screen while it runs, and as docs/planted-bugs.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .hunt import CONTROL, Find, hunt_all
from .plant import CHECKLIST, Plant

NOTES: Final = {
    31: "Every member of a run has the same version; versions are not mixed.",
}
"""What the plants of a class do not cover."""

NOT_PLANTED: Final = {
    "20": "leader leases: Trimaran has none; a leader asks a majority before it answers a query.",
    "24": "sessions that time out at different positions: the end of a session is a log entry.",
    "30": "a service that is not deterministic: a fault of the user's code; `trimaran sim --service` finds it.",
    "34": "gaps in the egress of a session: outside of requests a change of leader may lose replies.",
}
"""The classes of the checklist without plants, and why."""

_LEFT_OUT: Final = """
## Tried and left out

These bugs were planted too. The runs found none of them within 30 to 300 seeds, or found them in one version of the
product only. So no whole run tests for them. Where a * stands, the core's own tests find the bug
(`tests/unit/cluster/core/planted_bugs.py`).

- The leader counts positions of any term for the quorum.*
- A member keeps the mark of a failed term.*
- A truncation removes the mark of the term that it empties.*
- A member keeps opens and closes of sessions that did not commit.*
- A leader's commit position goes back.
- A vote counts as a mark of the term.
- A ballot never ends.
- A leader ignores a canvass of a higher term.
- A member stops at a term without entries, or at a message whose leader died in the middle of it.

In the runs, another rule of the product made each of these bugs harmless:

- A follower takes its whole log for committed when it joins.
- A follower takes the leader's commit position for its own before their logs agree.
- A copy has one frame too many.
- A catch-up never ends.
- A truncation is not synced.
- A member does not report a recording that failed.
- An old leader answers, or accepts messages.
- A client follows a leader of an older term.
- A timer is not set again.
"""

_CONTROL_FLOOR: Final = 20
"""Seeds of the control at least; otherwise as many as the plant needs that is found last."""

_HEAD: Final = """# Planted bugs

A planted bug breaks one rule of the product on purpose, for the time of one simulated run. Each row names the rule, the
check that found the bug, and how many seeds were run until one failed. A plant counts as found only if its code ran in
the run that failed.

`python -m tests.simulation.plants --markdown FILE` writes this page. The plants are in `tests/simulation/*_plants.py`.

"""


class Report:
    """One hunt for some plants; prints its progress."""

    def __init__(self, plants: Sequence[Plant], seed_count: int, control_count: int | None) -> None:
        self._plants, self._seed_count, self._control_count = plants, seed_count, control_count or 0
        self._is_control_as_long = control_count is None
        self._finds: dict[str, Find] = {}
        self._control = Find(CONTROL)
        self._control_failures: list[Find] = []

    def run(self, jobs: int, markdown: Path | None) -> int:
        """Hunt, print the results, and return the exit status."""
        self._hunt(self._plants, 0, jobs)
        if self._is_control_as_long:
            self._control_count = max(_CONTROL_FLOOR, *(find.seed_count for find in self._finds.values()))
        self._hunt([], self._control_count, jobs)
        print("\n" + self._table())
        if markdown is not None:
            markdown.write_text(self._markdown(), encoding="utf-8")
        missed = [plant.name for plant in self._plants if not self._finds[plant.name].is_found]
        if missed:
            print(f"\nnot found: {', '.join(missed)}")
        for find in self._control_failures:
            print(f"\nthe control broke a rule: seed={find.seed} {find.message[:400]}")
        return 1 if missed or self._control_failures else 0

    def _hunt(self, plants: Sequence[Plant], control_count: int, jobs: int) -> None:
        hunt_all(
            plants,
            self._seed_count,
            control_count=control_count,
            jobs=jobs,
            on_find=self._on_find,
            on_wait=self._on_wait,
        )

    def _on_find(self, find: Find) -> None:
        if find.name == CONTROL:
            self._control.seed_count += find.seed_count
            self._control.simulated_s += find.simulated_s
            if find.rule is not None:
                self._control_failures.append(find)
                print(f"{CONTROL:26} BROKEN   seed={find.seed} {find.rule}", flush=True)
            return
        self._finds[find.name] = find
        print(f"{find.name:26} {_verdict(find):8} {_effort(find):24} {find.rule or ''}", flush=True)

    def _on_wait(self, elapsed_s: float, running_count: int) -> None:
        done, all_count = len(self._finds), len(self._plants)
        control = f", control {self._control.seed_count}/{self._control_count}" if self._control_count else ""
        print(f"  {elapsed_s:6.0f} s  plants {done}/{all_count}{control}, {running_count} left", flush=True)

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for plant in self._plants:
            find = self._finds[plant.name]
            rule = find.rule or "**not found**"
            rows.append((str(plant.class_number), plant.name, rule, _effort(find), f"{find.simulated_s:.0f}"))
        return rows

    def _table(self) -> str:
        head = ("class", "plant", "rule that caught it", "found by", "simulated s")
        rows = [head, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        control = self._control
        told = f"control: {control.seed_count} seeds, {control.simulated_s:.0f} simulated s"
        return "\n".join([*lines, f"{told}, {len(self._control_failures)} broke a rule"])

    def _markdown(self) -> str:
        finds, plants = self._finds, self._plants
        found = sum(finds[plant.name].is_found for plant in plants)
        by_seeds = sorted((finds[plant.name].seed_count for plant in plants if not plant.scenario), reverse=True)
        control = self._control
        lines = [
            f"{found} of {len(plants)} plants are found; the hardest takes {by_seeds[0] if by_seeds else 0} seeds. The "
            f"control runs without a plant: {control.seed_count} seeds, {control.simulated_s / 3600:.1f} simulated "
            f"hours, {len(self._control_failures)} broke a rule.",
            "",
            "| class | plant | the rule it breaks | what caught it | found by | simulated s |",
            "|---|---|---|---|---|---|",
        ]
        for plant, row in zip(plants, self._rows(), strict=True):
            lines.append(f"| {row[0]} | {plant.name} | {plant.rule} | {row[2]} | {row[3]} | {row[4]} |")
        lines += ["", "## Classes", ""]
        for number, text in CHECKLIST.items():
            names = ", ".join(plant.name for plant in plants if plant.class_number == number)
            note = f" {NOTES[number]}" if number in NOTES else ""
            lines.append(f"- **{number}**, {text}: {names or 'none'}.{note}")
        lines += ["", "Classes of the checklist without plants:", ""]
        lines += [f"- **{numbers}**, {reason}" for numbers, reason in NOT_PLANTED.items()]
        return _HEAD + "\n".join(lines) + "\n" + _LEFT_OUT


def _verdict(find: Find) -> str:
    if find.rule is None:
        return "MISSED"
    return "WRONG" if find.is_wrong_reason else "found"


def _effort(find: Find) -> str:
    if find.seed_count:
        return f"{find.seed_count} seeds" if find.seed_count > 1 else "1 seed"
    return "a directed scenario"
