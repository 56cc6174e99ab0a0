"""The cells of docs/testing.md, in a Jupyter kernel: a cluster in memory where an event loop runs already."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from notebooks.execute import KERNEL
from tests.places import ROOT
from tests.waiting import patient


@pytest.mark.slow
def test_a_notebook_awaits_a_cluster_in_memory(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    counter = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]
    (tmp_path / "counter.py").write_text(counter)
    page = (ROOT / "docs/testing.md").read_text()
    cells = [
        *re.findall(r"```ipython\n(.*?)```", page, flags=re.DOTALL),
        "%autoawait asyncio\nimport asyncio\nawait asyncio.sleep(0)\ncluster.close()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])

    NotebookClient(
        notebook,
        timeout=round(patient(60)),
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()

    outputs = [
        [output.get("text") or output["data"]["text/plain"] for output in cell.outputs] for cell in notebook.cells
    ]
    assert outputs == [["b'7'"], ["b'10'"], [], ["b'14'"], []]
