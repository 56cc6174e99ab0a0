"""The plots of docs/performance.md: files of SVG beside it, all of which one function draws.

The look of a file depends on the version of matplotlib; the figures in it do not. So it carries a digest of them, by
which a test sees that it is made of the stored results, without drawing it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Final

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from ...archive.report.theme import REST, SERIES, Chart, name_axes, new_chart, style, to_svg

PREFIX: Final = "performance-"
_COLORED: Final = 2 * len(SERIES)
"""So many lines have colours, solid and then dashed; further ones are grey."""


@dataclass(slots=True, frozen=True)
class Plot:
    """Lines on a logarithmic y axis."""

    name: str
    caption: str
    x: str
    y: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Labels of places on a linear x axis; without any the axis is logarithmic, with the values of the points."""

    @property
    def file_name(self) -> str:
        """Of the file beside the page."""
        return f"{PREFIX}{self.name}.svg"

    @property
    def digest(self) -> str:
        """Of the figures."""
        return hashlib.sha256(json.dumps(self.lines, sort_keys=True).encode()).hexdigest()[:16]

    def draw(self) -> Chart:
        """Draw the lines."""
        with style():
            chart, (axes,) = new_chart(4.0)
            looks = cycle([(color, look) for look in ("-", "--") for color in SERIES])
            for number, ((name, points), (color, look)) in enumerate(zip(self.lines.items(), looks, strict=False)):
                shown = [(x, y) for x, y in points if y > 0]
                axes.plot(
                    [x for x, _ in shown],
                    [y for _, y in shown],
                    color=color if number < _COLORED else REST,
                    linestyle=look,
                    marker="o" if len(points) < _COLORED else "",
                    markersize=4,
                    label=name,
                )
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            places = self.ticks or {x: f"{x:,g}" for points in self.lines.values() for x, _ in points}
            if not self.ticks:
                axes.set_xscale("log")
                axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_locator(FixedLocator(sorted(places)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: places.get(round(x, 9), "")))
            name_axes(axes, self.x, f"{self.y}, logarithmic")
            chart.legend(loc="outside lower left", ncols=2, fontsize=8, handlelength=2.0)
            return chart

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


def digest_in(path: Path) -> str:
    """Return the digest that a file carries."""
    return path.read_text(encoding="utf-8").partition("<desc>")[2].partition("</desc>")[0]
