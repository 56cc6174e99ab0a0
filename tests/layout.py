"""The layout table of ARCHITECTURE.md: what each package is for, in the words of its own docstring.

`python -m tests.layout` writes the table again.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.places import ROOT

BEGIN: Final = "<!-- The table is written by `python -m tests.layout`. -->\n"
END: Final = "<!-- End of the table. -->\n"
_DEPTHS: Final = {"service_api": 3, "archive": 2, "client": 1, "cluster": 2, "benchmarks": 1, "notebooks": 2}
"""The packages at the top level in the order of their imports, and how many levels of each the table shows."""


def first_sentence(package: Path) -> str:
    """What a package's docstring begins with, up to the first full stop or the end of the line."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return docstring.splitlines()[0].split(". ")[0].rstrip(".") if docstring else ""


def packages() -> list[Path]:
    """The packages that the table shows, each before those in it."""
    return [
        found.parent
        for top, depth in _DEPTHS.items()
        for found in sorted((ROOT / top).rglob("__init__.py"), key=lambda path: path.parent.parts)
        if len(found.parent.relative_to(ROOT).parts) <= depth
    ]


def table() -> str:
    """The table, a row for each package."""
    rows = [(package.relative_to(ROOT).as_posix(), first_sentence(package)) for package in packages()]
    lines = [f"| [{name}/]({name}/__init__.py) | {sentence} |" for name, sentence in rows]
    return "\n".join(["| where | what |", "|---|---|", *lines, ""])


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
