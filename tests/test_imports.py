"""One import package: the rules of pyproject.toml hold, and a user's own modules may have any name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Set
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.modules import python_files, tree_of
from tests.parts import places
from tests.places import ROOT
from tests.waiting import patient

FOLDERS = ("archive", "benchmarks", "client", "cluster", "service_api")
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def test_every_import_rule_is_kept() -> None:
    result = subprocess.run(
        [str(LINT_IMPORTS), "--no-cache"],
        cwd=ROOT,
        env={"NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        timeout=patient(120),
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
        "from trimaran.cluster.node.member_process import run_node\n"
        f"print({name}.WHOSE)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=patient(60), check=False
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, f"the user of {name}\n", "")


def test_nothing_but_the_package_is_on_the_import_path(tmp_path: Path) -> None:
    """An installed or editable package brings `trimaran` and the module by whose name Spark finds it, nothing else."""
    names = ("archive", "benchmarks", "client", "cluster", "service_api", "tests", "notebooks", "examples")
    program = f"from importlib.util import find_spec; print([n for n in {names} if find_spec(n)])"

    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=patient(60), check=True
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
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=False
    )

    assert (result.stdout, result.stderr) == ("0\n", "")


def test_what_reads_certificates_is_not_loaded_without_tls() -> None:
    """It takes as long as everything else of a small command; who runs in plain text does not pay for it."""
    code = (
        "import sys, trimaran.cluster.node, trimaran.cluster.cli.node, trimaran.client, trimaran.archive.net.client\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'cryptography'])\n"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_what_spark_finds_by_its_name_imports_the_data_source_only() -> None:
    tree = ast.parse((ROOT / "src" / "pyspark_trimaran.py").read_text(encoding="utf-8"))

    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported == ["trimaran.archive.spark.source.data_source"]
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))


def test_every_module_of_the_product_is_in_one_part() -> None:
    """The contract of the five parts knows each file; only the faces, which hand on names, stand in none."""
    modules = [name for folder in FOLDERS if folder != "benchmarks" for name, _ in modules_of(folder)]

    holders = {name: [place for place in places() if f"{name}.".startswith(f"{place}.")] for name in modules}
    assert [name for name, found in holders.items() if len(found) != 1] == [
        "trimaran.archive",
        "trimaran.client",
        "trimaran.cluster",
        "trimaran.service_api",
    ]
    assert [place for place in places() if not any(f"{name}.".startswith(f"{place}.") for name in modules)] == []


def test_imports_inside_the_distribution_are_relative() -> None:
    """Whoever reads the checkout without installing it, such as an editor, finds what each import means."""
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in FOLDERS
        for path in python_files(folder)
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "trimaran")
        or (isinstance(node, ast.Import) and any(alias.name.startswith("trimaran.") for alias in node.names))
    ]

    assert absolute == []


def test_no_import_circles_including_type_checking() -> None:
    """A module that another module needs to be understood is read before that one."""
    modules = {name: path for folder in FOLDERS for name, path in modules_of(folder)}
    imports = {name: {*imports_of(name, path, modules)} for name, path in modules.items()}

    assert [sorted(group) for group in circles_in(imports)] == []


def modules_of(folder: str) -> Iterator[tuple[str, Path]]:
    """Every module of a folder: its dotted name, and where it lies."""
    for path in python_files(folder):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(("trimaran", *(parts[:-1] if parts[-1] == "__init__" else parts))), path


def imports_of(name: str, path: Path, known: Container[str]) -> Iterator[str]:
    """Modules of ours that a module imports, anywhere in it. What a package gives on is an import of the package."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            named = {f"{origin}.{alias.name}" for alias in node.names}
            yield from (each if each in known else origin for each in named if each in known or origin in known)


def circles_in(imports: Mapping[str, Set[str]]) -> Iterator[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components of more than one)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(name: str) -> Iterator[list[str]]:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(imports[name] - {name}):
            if other not in order:
                yield from visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                yield group

    for name in imports:
        if name not in order:
            yield from visit(name)


def test_a_circle_is_found_also_through_a_third_module() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "d"}}

    assert [sorted(group) for group in circles_in(imports)] == [["a", "b", "c"]]
