"""The page of a report: its contents, written as one file of HTML that needs no other file.

Nothing is fetched and nothing runs: the figures are SVG in the page, the style sheet is in its head, and a content
security policy forbids the rest. Whatever comes from a log is escaped by Jinja; only figures are passed as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .theme import Chart, to_svg


@dataclass(slots=True, frozen=True, kw_only=True)
class PageTable:
    """A small table: rows of texts, as many in each as there are headings."""

    name: str
    """For who has it read aloud."""
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[str] = frozenset()
    """The headings of columns that are flush right."""
    note: str | None = None
    """Such as how many rows there would be."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Section:
    """One analysis: a sentence, a figure, a table, and how to have the same."""

    anchor: str
    title: str
    caption: str
    snippet: str
    """How to have the same; `snippet_name` says what it is."""
    snippet_name: str = "In Python"
    chart: Chart | None = None
    table: PageTable | None = None
    note: str | None = None

    @property
    def figure(self) -> Markup | None:
        """The figure as SVG; None without one."""
        if self.chart is None:
            return None
        return Markup(to_svg(self.chart, self.anchor, f"{self.title}. {self.caption}"))  # nosec B704  # it escapes


@dataclass(slots=True, frozen=True, kw_only=True)
class Damage:
    """What cannot be read, shown before everything else."""

    caption: str
    table: PageTable


@dataclass(slots=True, frozen=True)
class Fact:
    """A number at the top of the page."""

    name: str
    value: str
    is_alarming: bool = False


@dataclass(slots=True, frozen=True, kw_only=True)
class Page:
    """All that the page says, in its order."""

    title: str
    sources: Sequence[tuple[str, str]]
    facts: Sequence[Fact]
    sections: Sequence[Section]
    damage: Damage | None = None
    remarks: Sequence[str] = field(default=())
    """What a reader should know of how the page was made: at its end."""
    maker: str = "Trimaran report"
    """What the page is, above its title."""


def render_page(page: Page) -> str:
    """Make the HTML of a page; the same page gives the same text."""
    environment = Environment(
        loader=PackageLoader(__package__, ""), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    css = Markup(files(__package__).joinpath("page.css").read_text(encoding="utf-8"))  # nosec B704  # ours, not of a log
    return environment.get_template("page.html.jinja").render(page=page, css=css)
