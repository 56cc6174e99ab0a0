"""The style of all figures: one width, one type size, colours that colour-blind readers can tell apart, fixed bytes.

The same data gives the same SVG, wherever it is drawn: no setting of the user's matplotlib counts, and what an SVG
would make up (ids, a date) is fixed. Colours are roles: `to_svg` writes them as variables of CSS, so that a page says
what ink is in the dark; the colours below are what they are without a page, as in a notebook.

Source of the colours of series: Okabe and Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine

Frame: TypeAlias = Any
"""A `pandas.DataFrame`. Its published types know neither columns nor rows, so nothing is gained by them here."""
Column: TypeAlias = Any
"""A `pandas.Series`."""

WIDTH_INCHES: Final = 9.0
"""At 100 dots an inch, 900 pixels."""
DOTS_PER_INCH: Final = 100

INK: Final = "#1f2329"
MUTED: Final = "#5d6670"
LINE: Final = "#dbe0e6"
PAPER: Final = "#fffffe"
SERIES: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""In the order in which they are taken; who has more things than these shows the rest as one, in `REST`."""
REST: Final = "#a3abb5"
ALARM: Final = "#c1121f"

_VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    LINE: "--line",
    PAPER: "--paper",
    REST: "--rest",
    ALARM: "--alarm",
    **{color: f"--series-{number}" for number, color in enumerate(SERIES, 1)},
}
_FONT: Final = "DejaVu Sans"
"""The font that comes with matplotlib, so that it is everywhere; it is a wide one: another that a page takes, fits."""

_SETTINGS: Final[dict[Any, Any]] = {  # matplotlib types each key by its name
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": DOTS_PER_INCH,
    "figure.facecolor": PAPER,
    "font.family": [_FONT],
    "font.size": 9,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": DOTS_PER_INCH,
    "svg.fonttype": "none",
    "svg.hashsalt": "trimaran",
    "text.color": INK,
    "text.parse_math": False,  # what clients call themselves may hold dollar signs
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "xtick.labelsize": 9,
    "ytick.color": LINE,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
    "ytick.major.size": 0,
}

_SVG: Final = "{http://www.w3.org/2000/svg}"
_HREF: Final = "{http://www.w3.org/1999/xlink}href"
_COLOR: Final = re.compile("|".join(_VARIABLES))
_LABEL_LIMIT: Final = 28
_NAME_INCHES: Final = 0.2
"""Room above axes for the name of the y axis."""


class Chart(Figure):
    """A figure that looks the same however it is drawn; a notebook shows it without pyplot and without a `%` line."""

    def draw(self, renderer: Any) -> None:  # matplotlib's renderers share no public base class
        """Draw it with these settings, not with those of the calling code."""
        with style():
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", dpi=DOTS_PER_INCH)
        return stream.getvalue()


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Have matplotlib make and draw with these settings while the block runs, and then with those that were there."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_chart(height_inches: float, *, rows: int = 1) -> tuple[Chart, list[Axes]]:
    """Make a figure of the common width, with `rows` axes above each other; make it and fill it inside `style`."""
    # Names of y axes are not counted by the layout: they get room at the top, and between axes above each other.
    engine = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - _NAME_INCHES / height_inches))
    if rows > 1:
        engine.set(h_pad=_NAME_INCHES / 2)
    chart = Chart(figsize=(WIDTH_INCHES, height_inches), layout=engine)
    return chart, list(chart.subplots(rows, 1, squeeze=False)[:, 0])


def new_empty_chart(x: str, y: str) -> Chart:
    """Make the figure of a frame without rows: axes that say what there would be, and that there is nothing."""
    chart, (axes,) = new_chart(1.6)
    axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", va="center", color=MUTED)
    axes.set(xticks=[], yticks=[])
    name_axes(axes, x, y)
    return chart


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Write what the axes show, with units; the name of the y axis stands above it, where it can be read."""
    axes.set_xlabel(x, loc="left")
    axes.set_ylabel(y, rotation=0, ha="left", va="bottom")
    axes.yaxis.set_label_coords(0.0, 1.02)


def add_legend(axes: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Write a legend in one line above the right end of the axes; the name of the y axis stands at the left end."""
    found = list(handles or dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)).values())
    if isinstance(axes.figure, Chart) and axes is axes.figure.axes[0]:
        engine = axes.figure.get_layout_engine()
        assert isinstance(engine, ConstrainedLayoutEngine)
        engine.set(rect=(0, 0, 1, 1))  # the layout counts the legend, and the name of the axis is not higher
    axes.legend(
        handles=found,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(found),
        borderaxespad=0.0,
        handlelength=1.0,
        handletextpad=0.5,
        columnspacing=1.5,
    )


def use_time_axis(axes: Axes) -> None:
    """Write the x axis, whose values are those of `to_dates`, as times; the day stands at its end."""
    locator = AutoDateLocator(minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator,
        formats=["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
        zero_formats=["", "%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M:%S.%f"],
        offset_formats=["", "", "%Y", "%Y-%m", "%Y-%m-%d", "%Y-%m-%d"],
    )
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)


def to_dates(times: Column) -> np.ndarray:
    """Return a column of timestamps as matplotlib's days, in UTC where it has no time zone; NaN for missing ones."""
    moments = pd.to_datetime(np.asarray(times), utc=True).tz_localize(None)
    days = date2num(moments.to_numpy())  # type: ignore[no-untyped-call]
    return np.where(moments.isna(), np.nan, days)


def fit_label(text: object, limit: int = _LABEL_LIMIT) -> str:
    """Make a text from a log fit for a label: printable, in letters that the font has, and at most so long."""
    known = get_font(findfont(FontProperties(family=_FONT))).get_charmap()
    letters = (c if c.isprintable() and ord(c) in known else c.encode("unicode_escape").decode() for c in str(text))
    fitted = "".join(letters)
    return fitted if len(fitted) <= limit else fitted[: limit - 1] + "…"


def to_png(figure: Figure, *, dots_per_inch: int = DOTS_PER_INCH) -> bytes:
    """Draw a figure as PNG."""
    stream = io.BytesIO()
    with style():
        figure.savefig(stream, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return stream.getvalue()


def to_svg(figure: Figure, name: str, title: str) -> str:
    """Draw a figure as an `svg` element for a page of HTML.

    Colours are variables of CSS (`var(--ink, #1f2329)`), the font is the page's, ids begin with `name`, which is to be
    unlike those of the page's other figures, and `title` is what is read aloud instead of the picture.
    """
    stream = io.StringIO()
    with style():
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    root = ElementTree.fromstring(stream.getvalue())  # nosec B314  # matplotlib's own output
    for child in list(root):
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)  # who made it, and a style sheet that would hold for the whole page
    for element in root.iter():
        _adapt(element, name)
    _, _, width, height = root.attrib["viewBox"].split()
    scale = DOTS_PER_INCH / 72
    root.attrib |= {"width": f"{float(width) * scale:.0f}", "height": f"{float(height) * scale:.0f}"}
    root.attrib |= {"role": "img", "aria-label": title}
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, name: str) -> None:
    """Make what is said of one element hold in a page with other figures and in the dark."""
    attributes = element.attrib
    element.tag = element.tag.removeprefix(_SVG)
    if "id" in attributes:
        attributes["id"] = f"{name}-{attributes['id']}"
    if _HREF in attributes:
        attributes["href"] = f"#{name}-{attributes.pop(_HREF).removeprefix('#')}"
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("url(#", f"url(#{name}-")
    if "style" in attributes:
        style_text = attributes["style"].replace(f"font-family: '{_FONT}'", "font-family: inherit")
        style_text = style_text.replace("url(#", f"url(#{name}-")
        attributes["style"] = _COLOR.sub(lambda found: f"var({_VARIABLES[found[0]]}, {found[0]})", style_text)
