"""Runs notebooks from their text, and writes the .ipynb files that are committed: sources, outputs and pictures.

    python -m notebooks.execute              # all of them
    python -m notebooks.execute 02 07        # some

Each runs top to bottom in a Jupyter kernel of its own, in the directory `notebooks`. The .ipynb is written only if
every cell ran. What differs between two runs of the same notebook without meaning anything, ids and times, is left out.

Functions import Jupyter's libraries: that takes three seconds of a processor, and each worker of the test suite imports
this module for the names of the notebooks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DIRECTORY: Final = Path(__file__).resolve().parent
CELL_TIMEOUT_S: Final = 120
KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


def scripts(wanted: Iterable[str] = ()) -> list[Path]:
    """The notebooks' texts, in order: all of them, or those whose names begin with one of `wanted`."""
    prefixes = tuple(wanted) or ("",)
    return [path for path in sorted(DIRECTORY.glob("[0-9][0-9]_*.py")) if path.name.startswith(prefixes)]


def read_script(script: Path) -> Any:  # Any: nbformat has no types
    """A notebook without outputs, made of its text."""
    import jupytext
    import nbformat

    notebook = jupytext.read(script)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def execute(
    script: Path, *, before: Sequence[str] = (), after: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Any:  # Any: nbformat has no types
    """Run a notebook, with more code cells before and after its own; gives it with the outputs.

    `env` is the environment of its kernel; None: this process's.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised; says which, and what.
        nbclient.exceptions.CellTimeoutError: a cell took longer than two minutes.
    """
    from nbclient import NotebookClient

    notebook = read_script(script)
    notebook.cells = [*_code_cells("before", before), *notebook.cells, *_code_cells("after", after)]
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(DIRECTORY)}},
        record_timing=False,
    )
    client.execute(**({} if env is None else {"env": dict(env)}))
    return notebook


def write(script: Path) -> Path:
    """Run a notebook and write its .ipynb; gives that file."""
    import nbformat

    notebook = execute(script)
    notebook.metadata = read_script(script).metadata
    target = script.with_suffix(".ipynb")
    nbformat.write(notebook, target)
    return target


def main(wanted: Sequence[str]) -> int:
    """Write the notebooks asked for; gives the exit status."""
    found = scripts(wanted)
    if not found:
        known = [path.stem for path in scripts()]
        print(f"no such notebook: {' '.join(wanted)} expected one of {known}", file=sys.stderr)
        return 2
    for script in found:
        print(write(script).name, flush=True)
    return 0


def _code_cells(kind: str, sources: Sequence[str]) -> list[Any]:
    import nbformat

    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number, cell in enumerate(cells, start=1):
        cell.id = f"{kind}-{number}"
    return cells


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
