"""One import package: the rules of pyproject.toml hold, and a user's own modules may have any name."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def test_every_import_rule_is_kept() -> None:
    result = subprocess.run(
        [str(LINT_IMPORTS), "--no-cache"],
        cwd=ROOT,
        env={"NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["archive", "benchmarks", "client", "cluster", "service_api"])
def test_a_users_module_may_have_the_name_of_one_of_our_folders(tmp_path: Path, name: str) -> None:
    """A `client.py` in the working directory is the user's: it is imported, and it is in nobody's way."""
    for other in ("archive", "benchmarks", "client", "cluster", "service_api"):
        (tmp_path / f"{other}.py").write_text(f"WHOSE = 'the user of {other}'\n")
    program = (
        f"import {name}\n"
        "from trimaran import ClusterClient, ClusteredService, SyncClusterClient\n"
        "from trimaran.archive import Archive, ArchiveClient, ArchiveServer, frames\n"
        "from trimaran.cluster.node import run_node\n"
        f"print({name}.WHOSE)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, f"the user of {name}\n", "")


def test_nothing_but_the_package_is_on_the_import_path(tmp_path: Path) -> None:
    """An installed or editable package brings `trimaran` and the module by whose name Spark finds it, nothing else."""
    names = ("archive", "benchmarks", "client", "cluster", "service_api", "tests", "notebooks", "examples")
    program = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert result.stdout == "[]\n"
    assert find_spec("trimaran") is not None


def test_no_module_of_a_running_node_is_loaded_twice() -> None:
    """In the checkout itself the folders are importable by their own names, too: nobody does."""
    program = (
        "import sys\n"
        "import trimaran.cluster.node, trimaran.archive.tool.app, trimaran.client\n"
        "from pathlib import Path\n"
        "files = [Path(m.__file__).resolve() for m in list(sys.modules.values()) if getattr(m, '__file__', None)]\n"
        "ours = [f for f in files if Path.cwd() in f.parents and '.venv' not in f.parts]\n"
        "assert len(ours) > 100, len(ours)\n"
        "print(len(ours) - len(set(ours)))\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (result.stdout, result.stderr) == ("0\n", "")


def test_what_spark_finds_by_its_name_imports_the_data_source_only() -> None:
    tree = ast.parse((ROOT / "src" / "pyspark_trimaran.py").read_text(encoding="utf-8"))

    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported == ["trimaran.archive.spark.source.data_source"]
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
