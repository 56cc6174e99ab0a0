"""`trimaran report`: what the page says is the truth, damage comes first, and a browser has nothing to complain of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.facts import has_facts
from tests.interchange.samples import Ended, link_directory, run, truth_of
from tests.spark.browser import CHROMIUM, chromium
from tests.unit.archive.streams import extract_sample
from tests.waiting import patient

pytestmark = pytest.mark.slow

NODES = ("node0", "node1", "node2")


class Tables(HTMLParser):
    """The tables of a page by name: the texts of their cells, row by row; and the text of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.text = ""
        self._rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "div" and attributes.get("class") == "scroll":
            self._rows = self.tables.setdefault(str(attributes["aria-label"]), [])
        if tag == "tr":
            self._rows.append([])
        if tag in ("th", "td"):
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("th", "td"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            self._rows[-1][-1] += data


class Made(NamedTuple):
    """A page, and how the command ended."""

    path: Path
    ended: Ended
    html: str
    content: Tables


def make(path: Path, *arguments: object) -> Made:
    ended = run("report", *arguments, "-o", path)
    html = path.read_text(encoding="utf-8")
    content = Tables()
    content.feed(html)
    return Made(path, ended, html, content)


@pytest.fixture(scope="module")
def failover(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("three-node-failover", tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def made(spark: SparkSession, failover: Path) -> Made:
    """The page of three members, one of which has another byte in a message."""
    changed = link_directory(failover / "node2", failover / "changed", copied="0-327680.rec")
    segment = changed / "archive" / "0-327680.rec"
    content = bytearray(segment.read_bytes())
    content[DIFFERENT_POSITION - 327_680 + 100] ^= 1
    segment.write_bytes(content)
    return make(failover / "page.html", failover / "node0", failover / "node1", changed, "--title", "Three <members>")


DIFFERENT_POSITION = next(
    message["position"]
    for message in truth_of("three-node-failover-node0")["recordings"][0]["messages"]
    if message["position"] > 330_000 and message["length"] > 200
)


def test_the_page_says_the_truth(made: Made) -> None:
    """What the decoders of the real Aeron said of these recordings."""
    log = truth_of("three-node-failover-node0")["recordings"][0]
    messages = log["messages"]
    terms = [message for message in messages if message["name"] == "NewLeadershipTermEvent"]
    by_term = [[m for m in messages if m["fields"].get("leadershipTermId") == term] for term in range(3)]
    kinds = {name: sum(m["name"] == name for m in messages) for name in {m["name"] for m in messages}}

    tables = made.content.tables

    assert made.ended.exit_code == 0
    assert made.ended.stdout == f"{made.path}: 9 sections, {made.path.stat().st_size:,} bytes\n"
    assert [row[:2] for row in tables["Leadership terms"][1:]] == [
        [str(term), str(event["fields"]["leaderMemberId"])] for term, event in enumerate(terms)
    ]
    assert [row[-1] for row in tables["Leadership terms"][1:]] == [str(len(found)) for found in by_term]
    assert [row[3] for row in tables["Changes of leadership term"][1:]] == [f"{e['position']:,}" for e in terms[1:]]
    lengths = {row[0]: row[1] for row in tables["Lengths by kind of message, in bytes"][1:]}
    assert lengths == {name: f"{count:,}" for name, count in kinds.items()} | {"(padding)": "0"}
    assert [row[:2] for row in tables["Sessions"][1:]] == [["1", "alice"], ["2", "bob"]]
    sent = [m["fields"]["clusterSessionId"] for m in messages if m["name"] == "SessionMessageHeader"]
    assert [row[5] for row in tables["Sessions"][1:]] == [str(sent.count(session)) for session in (1, 2)]
    assert [row[1] for row in tables["Timers"][1:]] == ["1"] * kinds["TimerEvent"]
    assert f"positions 0 to {log['scan_ended']['position']:,}" in made.content.text
    assert f">{len(messages):,}</strong> <span>messages<" in made.html


def test_a_member_that_went_astray_is_found(made: Made) -> None:
    rows = made.content.tables["Pairs of members"]

    where = f"{DIFFERENT_POSITION:,}"
    assert [[*row[:3], row[4]] for row in rows[1:]] == [
        ["node0", "node1", "equal", "–"],
        ["node0", "changed", "different", where],
        ["node1", "changed", "different", where],
    ]
    assert has_facts(made.content.text, "node0 and changed", f"position {where},", "payload")


def test_a_share_in_a_caption_is_that_of_the_table(made: Made) -> None:
    """Frame headers and padding are a part of the log: the messages alone are never all of it."""
    table = made.content.tables["Lengths by kind of message, in bytes"]
    kind, share = table[0].index("kind"), table[0].index("share of log")
    found = re.search(r"; (\w+) takes (\S+ %) of the log's bytes", made.content.text)

    assert found is not None
    assert {row[kind]: row[share] for row in table[1:]}[found[1]] == found[2]


def test_where_there_is_no_terminal_each_step_is_a_line(made: Made) -> None:
    steps = [line[8:] for line in made.ended.stderr.splitlines() if line.startswith("report: ")]

    assert steps[:3] == ["looking for damage", "comparing the members", "reading the log"]
    assert "throughput" in steps
    assert steps[-1] == "writing the page"


def test_the_title_of_a_page_is_text(made: Made) -> None:
    assert "<h1>Three &lt;members&gt;</h1>" in made.html


def test_the_python_on_the_page_gives_what_the_page_shows(spark: SparkSession, made: Made) -> None:
    section = made.html.split('<section id="leaders"')[1].split("</section>")[0]
    snippet = re.sub("<[^>]*>", "", section.split("<pre>")[1].split("</pre>")[0])
    said: list[str] = []

    exec(snippet.replace("&#39;", "'").replace("&#34;", '"'), {"print": said.append})

    assert said == [re.sub("<[^>]*>", "", section.split('<p class="caption">')[1].split("</p>")[0])]


def test_damage_comes_first_and_is_an_exit_status(spark: SparkSession, tmp_path: Path) -> None:
    """The sample with checksums: one byte of a payload is changed, on the disk of nobody who is asked."""
    node = extract_sample("checksummed", tmp_path) / "node0"
    log = truth_of("checksummed-node0")["recordings"][0]
    message = next(m for m in log["messages"] if m["position"] > 140_000 and m["length"] > 60)
    segment = node / "archive" / "0-131072.rec"
    content = bytearray(segment.read_bytes())
    content[message["position"] - 131_072 + 70] ^= 1
    segment.write_bytes(content)

    damaged = make(tmp_path / "damaged.html", node)

    assert damaged.ended.exit_code == 10
    assert damaged.ended.stdout.endswith(", DAMAGE\n")
    _, row = damaged.content.tables["Damage"]
    assert row[:3] == ["node0", "0", f"{message['position']:,}"]
    assert "checksum" in row[3]
    assert damaged.html.index('id="damage"') < damaged.html.index('id="leaders"')


def test_a_recording_without_a_message_of_a_log_has_a_page(spark: SparkSession, failover: Path) -> None:
    """A snapshot of the service: no terms, sessions or times, and messages of which the log's schema has none."""
    page = make(failover / "snapshot.html", failover / "node0", "--recording-id", 1)

    assert page.ended.exit_code == 0
    for sentence in ("The log holds no leadership term.", "No client opened a session.", "No timer fired."):
        assert sentence in page.content.text


def test_what_cannot_be_read_is_told_in_one_line(failover: Path, tmp_path: Path) -> None:
    node = failover / "node0"
    for arguments, expected in (
        ([tmp_path], "not an archive directory"),
        ([node, "--recording-id", 77], "no such recording"),
        ([node, node], "a directory is given twice"),
        ([node, "--node-log", tmp_path / "none.log"], "no such file: --node-log"),
        ([node, "-o", tmp_path / "none" / "page.html"], "the page cannot be written: no such directory"),
    ):
        ended = run("report", *arguments)
        assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended
        assert expected in ended.stderr


def test_a_missing_extra_is_named_with_the_command_that_installs_it(failover: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from trimaran.cluster.cli import main\n"
        f"main(['report', {str(failover / 'node0')!r}])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
        env=dict(os.environ),
    )

    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "trimaran: trimaran.archive.report needs duckdb, matplotlib, jinja2, pandas and pyarrow: in a checkout of "
        "Trimaran: pip install '.[report]' or `make setup-report`"
    )
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
@pytest.mark.parametrize("width", [375, 1100, 1280])
def test_a_browser_shows_the_page_and_asks_for_nothing(made: Made, tmp_path: Path, width: int) -> None:
    """`.ci/run` installs Debian's chromium, so it is not left out there."""
    with chromium(tmp_path) as browser:
        browser.open(made.path, width=width)
        sizes = browser.evaluate(
            "[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])"
        )
        overflow = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        outside = browser.evaluate(
            "[...document.querySelectorAll('svg')].flatMap(s => [...s.querySelectorAll('text')].filter(t => {"
            "const a = s.getBoundingClientRect(), b = t.getBoundingClientRect();"
            "return b.left < a.left - 2 || b.right > a.right + 2 || b.top < a.top - 2 || b.bottom > a.bottom + 2})"
            ".map(t => t.textContent))"
        )

        cut = browser.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(d => d.querySelector('table') && "
            "d.scrollWidth > d.clientWidth).map(d => [d.ariaLabel, d.scrollWidth, d.clientWidth])"
        )

    assert width < 1100 or cut == []
    assert browser.requests == [made.path.as_uri()]
    assert browser.complaints == []
    assert len(sizes) == 9
    assert all(w >= 600 and h >= 80 for w, h in sizes)
    assert overflow == 0
    assert outside == []
