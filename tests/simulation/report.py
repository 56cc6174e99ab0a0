"""What the hunt found, as a table: on the screen while it goes on, and for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .hunt import CONTROL, Find, hunt_all
from .plant import CHECKLIST, Plant

NOT_APPLICABLE: Final = {
    7: "Of snapshots there are none yet; what is planted is copies of the log from one archive to another.",
    11: "Of snapshots there are none yet; what is planted is truncations and announcements.",
    12: "Of snapshots and compaction there are none yet; what is planted is the ends of terms, segments and copies.",
    15: "Members are not removed yet; what is planted is a member that comes back after it was cut off.",
    19: "All reads go through the log; what is planted is what shows or answers what is not committed.",
    31: "Members of mixed versions are not simulated yet; what is planted is a replay that differs from live delivery.",
}
"""Classes of which the worst form does not exist here yet, and what stands in for it."""

_LEFT_OUT: Final = """
## Tried and left out

These were planted and not found within 30 to 300 seeds, or only by one revision of the product; no whole run stands
guard over them. Marked with *, the core's own tests find them (`tests/unit/cluster/core/planted_bugs.py`).

- positions of any term count for the quorum*; the mark of a failed term is kept*; a truncation takes the mark of the
  term that it empties*; opens and closes of sessions that did not commit are not undone*
- a leader's commit position goes back; a voter's word counts for a mark; a ballot never ends; a leader is deaf to a
  canvass of a higher term; a member stops at an empty term, or at a message whose leader died in its middle
- a follower takes what it has for committed when it joins, or a commit position for its own before the logs agree; a
  copy takes one frame too many; a catch-up is never ended; a truncation is not synced; a failed recording tells nobody;
  an old leader answers, or takes messages; a client follows a leader of an older term; a timer is not armed again: all
  of these the product withstood by another rule, as far as the runs went
"""

_CONTROL_FLOOR: Final = 20
"""Seeds of the control at least; otherwise as many as the plant needs that is found last."""

_HEAD: Final = """# Planted bugs

Each line is a rule of the product, broken on purpose for the time of a simulated run, and what finds it: how many
seeds were run until one failed, and which check failed. Made by `python -m tests.simulation.plants --markdown FILE`;
the plants are in `tests/simulation/*_plants.py`. A plant counts as found only if its code ran and did wrong in the run
that failed.

"""


class Report:
    """One hunt for some plants, told as it goes on."""

    def __init__(self, plants: Sequence[Plant], seed_count: int, control_count: int | None) -> None:
        self._plants, self._seed_count, self._control_count = plants, seed_count, control_count or 0
        self._is_control_as_long = control_count is None
        self._finds: dict[str, Find] = {}
        self._control = Find(CONTROL)
        self._control_failures: list[Find] = []

    def run(self, jobs: int, markdown: Path | None) -> int:
        """Hunt, tell, and give the exit status."""
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
            f"{found} of {len(plants)} are found, the hardest in {by_seeds[0] if by_seeds else 0} seeds. The control, "
            f"the same seeds without a plant: {control.seed_count} seeds, {control.simulated_s / 3600:.1f} simulated "
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
            note = f" {NOT_APPLICABLE[number]}" if number in NOT_APPLICABLE else ""
            lines.append(f"- **{number}**, {text}: {names or 'none'}.{note}")
        return _HEAD + "\n".join(lines) + "\n" + _LEFT_OUT


def _verdict(find: Find) -> str:
    if find.rule is None:
        return "MISSED"
    return "WRONG" if find.is_wrong_reason else "found"


def _effort(find: Find) -> str:
    if find.seed_count:
        return f"{find.seed_count} seeds" if find.seed_count > 1 else "1 seed"
    return "a directed scenario"
