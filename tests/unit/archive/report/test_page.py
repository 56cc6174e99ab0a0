"""The page: everything is in it, and nothing of what a log holds becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.unit.archive.report import frames
from trimaran.archive.report import figures
from trimaran.archive.report.page import Damage, Fact, Page, PageTable, Section, render_page
from trimaran.archive.report.theme import fit_label

EVIL = "\"><script>alert('1')</script><img src=x onerror=alert(2)>&amp;]]>"


class Elements(HTMLParser):
    """All elements of a page with their attributes, and its texts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def parse(html: str) -> Elements:
    elements = Elements()
    elements.feed(html)
    return elements


def page_of(text: str) -> Page:
    lives = frames.lives().assign(encoded_principal=text.encode())
    table = PageTable(name=text, headings=(text, "b"), rows=[(text, text)], numbers=frozenset({"b"}), note=text)
    section = Section(
        anchor="sessions",
        title=text,
        caption=text,
        snippet=text,
        chart=figures.session_lives(lives),
        table=table,
        note=text,
    )
    other = Section(anchor="terms", title="t", caption="c", snippet="s", chart=figures.term_timeline(frames.terms()))
    return Page(
        title=text,
        sources=[(text, text)],
        facts=[Fact(text, text, True)],
        sections=[section, other],
        damage=Damage(caption=text, table=table),
        remarks=[text],
    )


def test_nothing_of_a_log_becomes_markup() -> None:
    plain, evil = (parse(render_page(page_of(text))) for text in ("harmless", EVIL))

    assert [tag for tag, _ in evil.found] == [tag for tag, _ in plain.found]
    assert not any(name.startswith("on") for _, attributes in evil.found for name in attributes)
    assert sum(EVIL in text for text in evil.texts) >= 12
    assert f"{'4, ' + fit_label(EVIL, 18)}" in evil.texts


def test_everything_is_in_the_page() -> None:
    html = render_page(page_of("harmless"))

    elements = parse(html)
    assert elements.named("script") == elements.named("iframe") == elements.named("img") == []
    assert {a["href"] for a in elements.named("link")} == {"data:,"}
    urls = re.findall(r"""(?:src|href)=["']?([^"'\s>]*)|url\(([^)]*)\)""", html)
    assert {found[0] or found[1] for found in urls if not (found[0] or found[1]).startswith("#")} == {"data:,"}
    (policy,) = (meta["content"] for meta in elements.named("meta") if "http-equiv" in meta)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_ids_are_unique_and_every_reference_leads_to_one() -> None:
    elements = parse(render_page(page_of("harmless")))

    ids = [attributes["id"] for _, attributes in elements.found if "id" in attributes]
    references = {str(a["href"])[1:] for tag, a in elements.found if str(a.get("href", "")).startswith("#")}
    clips = {str(a["clip-path"])[5:-1] for _, a in elements.found if "clip-path" in a}
    assert len(ids) == len(set(ids))
    assert references | clips <= set(ids)
    assert {"sessions", "terms"} <= references


def test_figures_have_a_size_a_description_and_colours_that_the_page_decides() -> None:
    html = render_page(page_of("harmless"))

    for svg in parse(html).named("svg"):
        assert svg["role"] == "img"
        assert svg["aria-label"]
        assert svg["width"] == "900"
        assert int(svg["height"] or 0) > 100
    drawn = html[html.index("<figure>") :]
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", drawn)) <= {"none"} | set(re.findall(r"var\(--[^)]+\)", drawn))


def test_the_same_page_gives_the_same_text() -> None:
    assert render_page(page_of("harmless")) == render_page(page_of("harmless"))


def test_what_is_damaged_comes_before_everything_else() -> None:
    html = render_page(page_of("harmless"))

    assert html.index('id="damage"') < html.index("<nav") < html.index('id="sessions"')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("alice", "alice"),
        ("zoë", "zoë"),
        ("a\x00\n\u202eb", "a\\x00\\n\\u202eb"),
        ("日本", "\\u65e5\\u672c"),
        ("x" * 40, "x" * 27 + "…"),
    ],
)
def test_a_label_is_printable_and_short(text: str, expected: str) -> None:
    """matplotlib would warn of letters that its font does not have."""
    assert fit_label(text) == expected
