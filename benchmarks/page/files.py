"""Reads the JSON files of scenarios, and refuses whatever else it is given."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trimaran.service_api.errors import ConfigurationError

from ..scenarios.table import with_comparison
from ..statistics.report import Report

NEEDED: Final = {
    "aeron": ("rows", "aeron_version", "git_commit", "cores", "load_average"),
    "archive": ("environment",),
    "catchup": ("environment",),
    "codec": (),
    "compare": ("peers", "parameters", "environment", "not_measurable"),
    "compare-kv": ("peers", "parameters", "environment", "loads"),
    "compare-sessions": ("peers", "parameters", "environment", "loads", "percent_of_one_session"),
    "compiled": ("path_ns", "cpu_us_per_message", "times_python", "messages_per_s", "parameters", "environment"),
    "echo": ("throughput_msgs_per_s", "cpu_seconds_per_100k", "parameters", "environment"),
    "encryption": ("rows", "parameters", "environment"),
    "failover": ("environment",),
    "fairness": ("environment",),
    "flood": ("runs", "parameters", "environment"),
    "groups": ("parameters", "environment"),
    "opening": ("parameters", "environment"),
    "openings": ("cases", "failures", "parameters", "environment"),
    "profile": ("processes", "bound", "system_calls_per_1000_messages", "environment"),
    "query": ("environment",),
    "replay": ("environment",),
    "request": ("requests_per_s", "cpu_seconds_per_100k", "environment"),
    "scan": ("points", "failures", "parameters", "environment"),
    "snapshot": ("environment",),
    "snapshots": ("ways", "failures", "parameters", "environment"),
    "spark": ("environment",),
    "stream": ("environment",),
    "table": ("rows", "rounds", "reports", "parameters", "environment"),
    "tails": ("took_s", "stolen_percent", "parameters", "environment"),
    "time-travel": ("environment",),
    "typed": ("requests_per_s", "percent_of_bytes", "p50_us", "runs", "parameters", "environment"),
}
"""Every scenario that writes JSON, and what its page cannot do without."""

HAND_MADE: Final = frozenset({"aeron"})
"""Of these, what no command writes: see `aeron_section`."""


@dataclass(slots=True, frozen=True)
class ResultSource:
    """One file and what is in it."""

    name: str
    report: Report

    @property
    def scenario(self) -> str:
        """Who wrote it."""
        return str(self.report["scenario"])


def read_sources(paths: Iterable[Path]) -> list[ResultSource]:
    """Read files, in their order; tables take their ratios to others from the comparison that is among them.

    Raises:
        ConfigurationError: one cannot be read, or is not what a scenario writes: says which and why.
    """
    sources = [ResultSource(path.name, _read(path)) for path in paths]
    compared = next((source.report for source in sources if source.scenario == "compare"), None)
    if compared is None:
        return sources
    return [
        replace(source, report=with_comparison(source.report, compared)) if source.scenario == "table" else source
        for source in sources
    ]


def _read(path: Path) -> Report:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is not JSON, as `python -m trimaran.benchmarks SCENARIO --json` writes it"
        ) from error
    scenario = found.get("scenario") if isinstance(found, dict) else None
    if scenario not in NEEDED:
        raise ConfigurationError(
            f"{path} is not what a benchmark wrote: scenario={scenario!r} expected one of {', '.join(NEEDED)}"
        )
    missing = [name for name in NEEDED[scenario] if name not in found]
    if missing:
        raise ConfigurationError(
            f"{path} says scenario={scenario!r} and has no {', '.join(missing)}: an older version?"
        )
    report: Report = found
    return report
