"""docs/performance.md and its plots, written from the JSON of the benchmarks: no figure in them is typed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...service_api.errors import ConfigurationError
from ..statistics.report import Report
from .markdown import table
from .plots import PREFIX, Plot
from .sections import SECTIONS, environment_text, targets_table, with_comparison

_PROJECT_DIR: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _PROJECT_DIR / "benchmarks" / "results"
PAGE: Final = _PROJECT_DIR / "docs" / "performance.md"
IMAGES: Final = "images"
"""Where the plots are, beside the page."""

_PROFILES: Final = {1: "profile.json", 1_000: "profile-1000.json", 10_000: "profile-10000.json"}

_INTRODUCTION: Final = """# Performance

`python -m trimaran.benchmarks performance` writes this page from `benchmarks/results/*.json`: change the benchmarks,
not this page. `make bench` measures the targets, how cost grows and the profile; `make bench-many` measures many
sessions, groups and a big state. Each of the other sections names its command. The comparisons need `make peers`.
Other runs, at another hour or on another machine, are in directories below, with a table of the targets for each.
The benchmarks `backup` and `restore` are on the page of [backups](backup.md#what-a-loss-costs).

Members, client and harness share the cores of one machine. An echo is a message of a client that a majority has
recorded, that the service of every member has been given, and that the leader's service has sent back. *Level* is the
file sync level: 0 page cache, 1 fdatasync before anything is acknowledged. Checksums are on. On one
machine the follower that no majority needs syncs up to 20 ms later than the others (`shared_machine`). *CPU* is
user and system time, by the kernel's count.
"""


def performance() -> None:
    """Write the page and its plots again."""
    write_page()
    print(PAGE)


def write_page(results: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page and its plots again, and remove plots that it has no more.

    Raises:
        ConfigurationError: there are no results.
    """
    text, plots = make_page(results)
    images = page.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for path in images.glob(f"{PREFIX}*.svg"):
        if path.name not in {plot.file_name for plot in plots}:
            path.unlink()
    for plot in plots:
        (images / plot.file_name).write_text(plot.svg(), encoding="utf-8")
    page.write_text(text, encoding="utf-8")


def make_page(results: Path) -> tuple[str, list[Plot]]:
    """Make the page of a directory with `table.json`, and files of other benchmarks where they were run.

    Directories in it are of other runs: each with a table, and its comparison if there is one.

    Raises:
        ConfigurationError: there are no results.
    """
    reports = _load(results)
    if "table.json" not in reports:
        raise ConfigurationError(f"no results: expected {results / 'table.json'}, which `make bench` writes")
    parts, plots = [_INTRODUCTION, _summary(reports)], list[Plot]()
    for section in SECTIONS:
        if section.file_name not in reports:
            continue
        parts.append(f"## {section.title}\n")
        for block in section.write(reports[section.file_name]):
            if isinstance(block, Plot):
                plots.append(block)
                block = f"{block.caption}\n\n![{block.name}]({IMAGES}/{block.file_name})\n"
            parts.append(block)
        if section.file_name == "table.json":
            parts += _other_runs(results)
    return "\n".join(parts), plots


def _load(directory: Path) -> dict[str, Report]:
    """Read the reports by file name; the table has the ratios of the comparison, and profiles are one report."""
    reports: dict[str, Report] = {path.name: json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))}
    if "table.json" in reports:
        tabled = reports["table.json"]["reports"].get("compare", [])
        if "compare.json" in reports:
            reports["table.json"] = with_comparison(reports["table.json"], reports["compare.json"])
        elif tabled:
            reports["compare.json"] = tabled[0]
    profiles = {count: reports[name] for count, name in _PROFILES.items() if name in reports}
    if profiles:
        reports["profiles"] = {"profiles": profiles, "environment": profiles[min(profiles)]["environment"]}
    return reports


def _other_runs(results: Path) -> list[str]:
    parts = []
    for directory in sorted(path for path in results.iterdir() if path.is_dir()):
        other = _load(directory).get("table.json")
        if other is not None:
            parts += [f"## Targets in another run, {directory.name}\n", environment_text(other), targets_table(other)]
    return parts


def _summary(reports: Mapping[str, Report]) -> str:
    """Write a row for each section that is there, those measured last first; undated ones come last."""
    found = [(section, reports[section.file_name]) for section in SECTIONS if section.file_name in reports]
    found.sort(key=lambda pair: str(_facts(pair[1]).get("date") or ""), reverse=True)
    rows = [
        (
            f"[{section.title}](#{anchor_of(section.title)})",
            section.say(report),
            _facts(report).get("date") or f"commit {_facts(report)['git_commit']}",
        )
        for section, report in found
    ]
    return "What is on this page, measured last first:\n\n" + table(("what", "in a line", "measured"), rows)


def _facts(report: Report) -> Report:
    facts: Report = report.get("environment", report)
    return facts


def anchor_of(title: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
