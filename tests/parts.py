"""The five parts of the product, and the tests of each: `python -m tests.parts kernel` prints paths for pytest.

The contract "Five parts" in pyproject.toml lists the folders and modules of each part. `tests/unit` mirrors the
packages, so a test there belongs to the part of the folder that it mirrors. `OTHER_TESTS` names the folders that mirror
nothing. Tests of no part are in neither: real processes (`tests/system`), the repository itself (`tests/test_*.py`),
benchmarks, examples and notebooks.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.places import ROOT

LAYERS: Final = ("cli", "lab", "operating", "data", "services", "kernel")
"""Layers of the contract, the highest first. The commands (`cli`) are no part: the owner of operating checks them."""
PARTS: Final = ("kernel", "lab", "operating", "data", "services")
UNIT: Final = ROOT / "tests" / "unit"
APART: Final = ("benchmarks", "examples")
"""Folders of `tests/unit` whose tests belong to no part."""
OTHER_TESTS: Final = {
    "kernel": ("tests/scenarios", "tests/fuzz"),
    "lab": ("tests/simulation",),
    "operating": ("tests/interchange", "tests/deploy"),
    "data": tuple(
        f"tests/spark/test_{name}.py"
        for name in (
            "reading",
            "filters_of_queries",
            "stream",
            "decoders",
            "messages",
            "typed_messages",
            "hybrid",
            "session",
        )
    ),
    "services": (),
}
"""Places outside `tests/unit` whose fast tests a part runs, too; of Spark, which has one JVM, those that read."""


@cache
def places() -> dict[str, str]:
    """Return each folder and module that the contract lists, by its dotted name, with its layer.

    Raises:
        ValueError: a name is listed twice.
    """
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    (contract,) = (each for each in tools["importlinter"]["contracts"] if each["name"].startswith("Five parts"))
    layers = zip(LAYERS, contract["layers"], strict=True)
    listed = [(place, layer) for layer, names in layers for place in names.split(" : ")]
    if len(dict(listed)) < len(listed):
        raise ValueError("a name is listed twice")
    return dict(listed)


def part_of(test: Path) -> str:
    """Return the part of a file below `tests/unit`. Tests of a whole package, such as the client, are the kernel's."""
    mirrored = ("trimaran", *test.parent.relative_to(UNIT).parts, test.stem.removeprefix("test_"))
    names = [".".join(mirrored[:length]) for length in range(len(mirrored), 1, -1)]
    layer = next((places()[name] for name in names if name in places()), "kernel")
    return "operating" if layer == "cli" else layer


def paths_of(part: str, folder: Path = UNIT) -> Iterator[Path]:
    """Find the tests of a part below a folder: whole folders where all tests in them are of the part."""
    if {part_of(test) for test in folder.rglob("test_*.py")} == {part}:
        yield folder
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in APART:
            yield from paths_of(part, path)
        elif path.match("test_*.py") and part_of(path) == part:
            yield path


if __name__ == "__main__":
    (chosen,) = sys.argv[1:]
    print(*(path.relative_to(ROOT) for path in paths_of(chosen)), *OTHER_TESTS[chosen])
