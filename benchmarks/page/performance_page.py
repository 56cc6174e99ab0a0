"""docs/performance.md, the page with all figures and their plots, written from the JSON of the benchmarks.

No figure in them is typed by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
FIGURES: Final = RESULTS / "README.md"
IMAGES: Final = "images"
"""Where the plots are, beside docs/performance.md."""
_SUMMARY_PLOTS: Final = ("latencies", "many-sessions")

_PROFILES: Final = {1: "profile.json", 1_000: "profile-1000.json", 10_000: "profile-10000.json"}

_FIGURES_INTRODUCTION: Final = """# All figures of the benchmarks

`python -m trimaran.benchmarks performance` writes this page and its summary,
[performance.md](../../docs/performance.md), from the files of JSON in this directory: change the benchmarks, not the
pages. `make bench` measures the targets, how cost grows and the profile; `make bench-many` measures many sessions,
groups and a big state. Each of the other sections names its command. The comparisons need `make peers`. Other runs, at
another hour or on another machine, are in directories below, with a table of the targets for each. The benchmarks
`backup` and `restore` are on the page of [backups](../../docs/backup.md#what-a-loss-costs).

Members, client and harness share the cores of one machine. An echo is a message of a client that a majority has
recorded, that the service of every member has been given, and that the leader's service has sent back. *Level* is the
file sync level: 0 page cache, 1 fdatasync before anything is acknowledged. Checksums are on. On one
machine the follower that no majority needs syncs up to 20 ms later than the others (`shared_machine`). *CPU* is
user and system time, by the kernel's count.
"""

_SUMMARY_INTRODUCTION: Final = """# Performance

Three members, their client and the harness share one machine with two cores. Every message is on the disk of a majority
before it is acknowledged (file sync level 1), unless a row says level 0. Rates depend on the machine and on its
interpreter ([which Python](deploying.md#which-python)): compare the ratios, and measure your own machine.

| to measure | run |
|---|---|
| a first figure, half a minute | `python -m trimaran.benchmarks echo` |
| every target, ten minutes | `make bench` |
| beside etcd, ZooKeeper, NATS JetStream, PySyncObj, Redis | `make peers`, `python -m trimaran.benchmarks compare` |
| beside Aeron's own Java | `AERON_RIG=DIRECTORY python -m trimaran.benchmarks aeron` |
"""

_SUMMARY_END: Final = """Each title leads to its table, with the machine, the load and the command that measures it
again: [all figures](../benchmarks/results/README.md). The benchmarks write both pages: change the benchmarks, not the
pages.
"""


@dataclass(slots=True, frozen=True)
class PerformancePages:
    """Both pages, and the plots that they show."""

    summary: str
    """docs/performance.md, which is read in two minutes."""
    figures: str
    """Every table."""
    plots: list[Plot]


def performance() -> None:
    """Write the pages and their plots again."""
    write_pages()
    print(PAGE)
    print(FIGURES)


def write_pages(results: Path = RESULTS, page: Path = PAGE, figures: Path = FIGURES) -> None:
    """Write the pages and their plots again, and remove plots that no page shows any more.

    Raises:
        ConfigurationError: there are no results.
    """
    pages = make_pages(results)
    images = page.parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for path in images.glob(f"{PREFIX}*.svg"):
        if path.name not in {plot.file_name for plot in pages.plots}:
            path.unlink()
    for plot in pages.plots:
        (images / plot.file_name).write_text(plot.svg(), encoding="utf-8")
    page.write_text(pages.summary, encoding="utf-8")
    figures.write_text(pages.figures, encoding="utf-8")


def make_pages(results: Path) -> PerformancePages:
    """Make the pages of a directory with `table.json`, and files of other benchmarks where they were run.

    Directories in it are of other runs: each with a table, and its comparison if there is one.

    Raises:
        ConfigurationError: there are no results.
    """
    reports = _load(results)
    if "table.json" not in reports:
        raise ConfigurationError(f"no results: expected {results / 'table.json'}, which `make bench` writes")
    parts, plots = [_FIGURES_INTRODUCTION], list[Plot]()
    for section in SECTIONS:
        if section.file_name not in reports:
            continue
        parts.append(f"## {section.title}\n")
        for block in section.write(reports[section.file_name]):
            if isinstance(block, Plot):
                plots.append(block)
                block = _shown(block, f"../../docs/{IMAGES}")
            parts.append(block)
        if section.file_name == "table.json":
            parts += _other_runs(results)
    return PerformancePages(_summary(reports, plots), "\n".join(parts), plots)


def _shown(plot: Plot, directory: str) -> str:
    return f"{plot.caption}\n\n![{plot.name}]({directory}/{plot.file_name})\n"


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


def _summary(reports: Mapping[str, Report], plots: Iterable[Plot]) -> str:
    """Write a row for each section that is there, then the targets."""
    rows = [
        (
            f"[{section.title}](../benchmarks/results/README.md#{anchor_of(section.title)})",
            section.say(report),
            _facts(report).get("date") or f"commit {_facts(report)['git_commit']}",
        )
        for section in SECTIONS
        if (report := reports.get(section.file_name)) is not None
    ]
    parts = [
        _SUMMARY_INTRODUCTION,
        "## In a line each\n",
        table(("what", "in a line", "measured"), rows),
        _SUMMARY_END,
        "## Targets\n",
        environment_text(reports["table.json"]),
        targets_table(reports["table.json"]),
        *(_shown(plot, IMAGES) for plot in plots if plot.name in _SUMMARY_PLOTS),
    ]
    return "\n".join(parts)


def _facts(report: Report) -> Report:
    facts: Report = report.get("environment", report)
    return facts


def anchor_of(title: str) -> str:
    """Return the anchor that renderers of Markdown give a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
