"""The layout table of ARCHITECTURE.md: the rooms of each part, and what each is for in the words of its own docstring.

`python -m tests.layout` writes the table again. A room is a folder that the contract of the five parts lists.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.parts import LAYERS, PARTS, places
from tests.places import ROOT

BEGIN: Final = "<!-- The table is written by `python -m tests.layout`. -->\n"
END: Final = "<!-- End of the table. -->\n"


def first_sentence(package: Path) -> str:
    """Return what a package's docstring begins with, up to the first full stop or the end of the line."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return docstring.splitlines()[0].split(". ")[0].rstrip(".") if docstring else ""


def rooms() -> dict[str, list[Path]]:
    """Return the folders of each layer of the contract, the highest layer first."""
    found: dict[str, list[Path]] = {layer: [] for layer in LAYERS}
    for place, layer in places().items():
        folder = ROOT.joinpath(*place.split(".")[1:])
        if folder.is_dir():
            found[layer].append(folder)
    return found


def table() -> str:
    """Return the table: a row for each room. The first row of a part links its owner's page."""
    lines = ["| part | where | what |", "|---|---|---|"]
    for layer, folders in rooms().items():
        first = f"[{layer}](docs/parts/{layer}.md)" if layer in PARTS else layer
        for label, folder in zip([first, *[""] * len(folders)], folders, strict=False):
            name = folder.relative_to(ROOT).as_posix()
            lines.append(f"| {label} | [{name}/]({name}/__init__.py) | {first_sentence(folder)} |")
    return "\n".join([*lines, ""])


def replace_table(text: str) -> str:
    """Put the table between its marks.

    Raises:
        ValueError: a mark is missing.
    """
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    document = ROOT / "ARCHITECTURE.md"
    document.write_text(replace_table(document.read_text()))
