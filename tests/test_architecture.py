"""ARCHITECTURE.md stays true: diagram and layout are generated, and links of all documents lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.layout import first_sentence, replace_table
from tests.modules import python_files
from tests.places import ROOT
from trimaran.cluster.core.vocabulary.election_state import LEGAL_TRANSITIONS, ElectionState, mermaid

DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.md"))),
]


def prose_of(document: str) -> str:
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)


def test_the_election_diagram_is_drawn_from_the_table() -> None:
    """Regenerate the diagram with `print(mermaid())`."""
    text = (ROOT / "ARCHITECTURE.md").read_text()

    (diagram,) = re.findall(r"```mermaid\n(.*?)\n```", text, flags=re.DOTALL)

    assert diagram == mermaid()


def test_every_state_can_be_reached_and_left() -> None:
    """No state of the table is dead: each follows INIT in some number of steps, and CLOSED alone ends it."""
    reached = {ElectionState.INIT}
    while True:
        following = reached.union(*(LEGAL_TRANSITIONS[state] for state in reached))
        if following == reached:
            break
        reached = following

    assert reached == set(ElectionState)
    assert [state for state in ElectionState if not LEGAL_TRANSITIONS[state]] == [ElectionState.CLOSED]


def test_the_layout_table_is_made_of_the_packages_docstrings() -> None:
    """Write it again with `python -m tests.layout`."""
    text = (ROOT / "ARCHITECTURE.md").read_text()

    assert replace_table(text) == text


def test_every_package_says_what_it_is_for() -> None:
    files = python_files("archive", "client", "cluster", "service_api", "benchmarks", "notebooks/demo")
    packages = [file.parent for file in files if file.name == "__init__.py"]

    assert len(packages) > 50
    assert [package for package in packages if not first_sentence(package)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_to_files_lead_somewhere(document: str) -> None:
    """Only links inside the repository are checked."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose_of(document))

    missing = [target for target in targets if not ((ROOT / document).parent / target).exists()]

    assert missing == []
