"""Where the repository and the tests' data lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The top of the repository."""
DATA: Final = ROOT / "tests" / "data"
"""Golden bytes, recordings and certificates."""
AERON: Final = DATA / "aeron"
"""What real members of Aeron wrote."""
