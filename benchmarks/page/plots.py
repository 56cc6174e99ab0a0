"""The plots of docs/performance.md: files of SVG beside it, each of which says what figures it was made of.

How a file looks depends on the version of matplotlib; what it shows does not. So it carries a digest of the figures, by
which a test sees that it is made of the stored results, without drawing it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from trimaran.archive.report.theme import Chart, to_svg

from ..scenarios.scan import UNITS, Dimension
from ..statistics.report import Report
from . import captions, figures
from .sections import peak_curves, scan_points

PREFIX: Final = "performance-"


@dataclass(slots=True, frozen=True)
class Plot:
    """One plot: where it is drawn, what it says, and what it is made of."""

    name: str
    caption: str
    data: object
    """The figures, as JSON."""
    draw: Callable[[], Chart]

    @property
    def file_name(self) -> str:
        """Of the file beside the page."""
        return f"{PREFIX}{self.name}.svg"

    @property
    def digest(self) -> str:
        """Of the figures."""
        return hashlib.sha256(json.dumps(self.data, sort_keys=True).encode()).hexdigest()[:16]

    def svg(self) -> str:
        """Draw it as a file of its own, which follows its reader's choice of light or dark."""
        css = files("trimaran.archive.report").joinpath("page.css").read_text(encoding="utf-8")
        colors = css[: css.index("* {")]
        look = "background: var(--paper); font-family: system-ui, 'DejaVu Sans', sans-serif"
        head, _, body = to_svg(self.draw(), self.name, self.caption).partition(">")
        return (
            f'{head} xmlns="http://www.w3.org/2000/svg" style="{look}">'
            f"<desc>{self.digest}</desc><style>{colors}</style>{body}\n"
        )


AddPlots = Callable[[Iterable[Plot]], str]
"""Shows plots on the page: gives what is written there."""


def digest_in(path: Path) -> str:
    """The digest that a file carries."""
    return path.read_text(encoding="utf-8").partition("<desc>")[2].partition("</desc>")[0]


def latency_plot(table: Report) -> Plot | None:
    """The distribution of latencies of the targets' loads."""
    curves = peak_curves(table)
    if not curves:
        return None
    return Plot("latencies", captions.latencies(curves), curves, partial(figures.latencies, curves))


def scan_plots(scan: Report, *, without: Sequence[Dimension] = ()) -> list[Plot]:
    """Throughput against messages in flight, and how cost grows with everything that was varied but some."""
    plots = []
    for dimension in Dimension:
        if dimension in without:
            continue
        points = scan_points(scan, dimension)
        if not points:
            continue
        if dimension is Dimension.INFLIGHT:
            caption = captions.throughput_by_inflight(points)
            plots.append(Plot("throughput", caption, _shown(points), partial(figures.throughput_by_inflight, points)))
        draw = partial(figures.growth, points, UNITS[dimension], start_up=dimension is Dimension.LOG)
        plots.append(Plot(f"growth-{dimension}", captions.growth(dimension, points), _shown(points), draw))
    return plots


def comparison_plot(compared: Report, depth: str) -> Plot | None:
    """Everybody at one depth."""
    peers = {name: peer for name, peer in compared["peers"].items() if depth in peer.get("depths", {})}
    if not peers:
        return None
    draw = partial(figures.comparison, peers, depth)
    return Plot(f"peers-{depth}", captions.comparison(peers, depth), peers, draw)


def profile_plots(profile: Report) -> list[Plot]:
    """Where each microsecond goes, of each process."""
    return [
        Plot(f"profile-{role}", captions.stages(role, process), process, partial(figures.stages, role, process))
        for role, process in profile["processes"].items()
    ]


def _shown(points: Sequence[Report]) -> list[Report]:
    """What the plots take of points."""
    names = (
        *("value", "throughput_msgs_per_s", "p50_us", "p99_us", "p999_us", "cpu_seconds_per_100k", "leader", "start_s"),
    )
    return [{name: point[name] for name in names if name in point} for point in points]
