"""The tables of docs/spark.md say what the code says."""

from __future__ import annotations

import re

from tests.places import ROOT
from trimaran.archive.spark.source.options import OPTIONS, ReadMode

TEXT = (ROOT / "docs" / "spark.md").read_text()


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_every_option_has_a_row_in_order_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| [^|]+ \|$", section("Options"), flags=re.MULTILINE)

    assert rows == [(name, rule.default) for name, rule in OPTIONS.items()]


def test_every_mode_has_a_row() -> None:
    assert re.findall(r"^\| `([A-Z]+)` \|", section("Damage"), flags=re.MULTILINE) == [mode.value for mode in ReadMode]
