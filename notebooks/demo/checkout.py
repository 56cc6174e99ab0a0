"""Where the checkout is: notebooks, nodes and kernels import `examples` from it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
