"""Every target there is."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tests.fuzz.target import TARGETS, Target


def every_target() -> dict[str, Target]:
    """Import the modules beside this one; give their targets by name, in alphabetical order."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"tests.fuzz.targets.{module.name}")
    return dict(sorted(TARGETS.items()))
