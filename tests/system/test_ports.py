"""Every port of a real member against every kind of caller: the table in docs/security.md is what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.ports import DOCUMENT, measure, replace_table, table

pytestmark = pytest.mark.slow

NOBODYS = ("plain text", "another authority's", "member 1, expired")
"""Those whom the handshake refuses: they get nothing anywhere."""
MEMBERS_ONLY = ("consensus: speak as member 1", "log: send as member 1", "catch-up: send as member 1")


async def test_the_table_of_ports_and_callers_is_what_happens(data_dir: Path) -> None:
    data_dir.mkdir(parents=True)
    found = await measure(data_dir)

    assert not any(allowed for name in NOBODYS for allowed in found[name].values())
    assert {name for name, row in found.items() if any(row[port] for port in MEMBERS_ONLY)} == {"member 1"}
    assert all(found["member 1"][port] for port in MEMBERS_ONLY)
    text = DOCUMENT.read_text()
    assert replace_table(text, table(found)) == text, "run `python -m tests.system.ports`"
