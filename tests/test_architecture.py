"""ARCHITECTURE.md stays true: the diagram is the table's, and what it links to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimaran.cluster.core.election_state import LEGAL_TRANSITIONS, ElectionState, mermaid

ROOT = Path(__file__).parent.parent


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


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(document: str) -> None:
    """Only links inside the repository are checked."""
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text())

    missing = [target for target in targets if not (ROOT / target).exists()]

    assert missing == []
