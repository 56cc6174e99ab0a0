"""Each analysis has its place in the page about them."""

from __future__ import annotations

import re

from tests.places import ROOT
from trimaran.archive.spark import analyses

PAGE = ROOT / "docs" / "analyses.md"


def test_every_analysis_has_its_place_in_the_page_about_them() -> None:
    """Functions are public here by being imported into the package."""
    public = {name for name, value in vars(analyses).items() if callable(value) and not name.startswith("_")}

    assert set(re.findall(r"^#+ `(\w+)\(", PAGE.read_text(), flags=re.MULTILINE)) == public
