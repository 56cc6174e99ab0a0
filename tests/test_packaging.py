"""The wheel: one package at its top and the module that Spark finds by its name; it works in an empty environment.

That is one away from the checkout, with nothing but what the wheel says it needs.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.set_up import configured_index
from tests.waiting import patient
from trimaran.service_api.distribution import read_checked_out_commit

TOP = ("pyspark_trimaran.py", "trimaran")
SOURCE = ROOT / "src"
COMMIT = "trimaran/service_api/commit.txt"
"""Made by the build."""
NEEDING_AN_EXTRA = (
    *(
        "trimaran.archive.report",
        "trimaran.archive.spark",
        "trimaran.archive.files.vector",
        "trimaran.archive.reading.vector",
        "trimaran.benchmarks",
        "trimaran.cluster.testing.machines",
        "trimaran.cluster.testing.plugin",
        "trimaran.cluster.testing.strategies",
        "pyspark_trimaran",
    ),
)
"""What a plain installation cannot import, and nothing else imports before it is used."""

DATA_FILES = ("*.c", "*.css", "*.jinja", "*.json")
"""What packages hold besides modules: the page of the report, and what benchmarks count and preload."""

pytestmark = pytest.mark.slow


def run(*arguments: str | Path, cwd: Path, **settings: str) -> str:
    """Run a command without this checkout on the import path; its output, or a failure that shows it.

    Python keeps bytecode, also where the machine tells it not to: the new environment has none, and each process of it
    would compile every package again.
    """
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    result = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env={**environment, **settings},
        capture_output=True,
        text=True,
        timeout=patient(170),
        check=False,
    )
    assert result.returncode == 0, f"{arguments}\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from this checkout, with the build backend of this environment."""
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT, cwd=directory)
    (found,) = directory.glob("trimaran-*.whl")
    return found


def installer(python: Path) -> tuple[str | Path, ...]:
    """The command that installs into an environment: uv, or pip where uv has no release for the machine."""
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        return uv, "pip", "install", "--quiet", "--python", python, "--system-certs"
    pip = (sys.executable, "-m", "pip", "--python", python)
    return *pip, "install", "-qq", "--no-compile", "--disable-pip-version-check"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the wheel, what it declares to need, and nothing else."""
    directory = tmp_path_factory.mktemp("installed")
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    run(*installer(python), wheel, cwd=directory, **configured_index())
    return python


def source_files(*patterns: str) -> Iterator[Path]:
    """Files of the package as they are imported; the links to the folders of the checkout are followed."""
    for folder, _, names in os.walk(SOURCE / "trimaran", followlinks=True):
        for name in sorted(names):
            if any(fnmatch(name, pattern) for pattern in patterns):
                yield Path(folder, name)


def public_names() -> Iterator[tuple[str, str]]:
    """(module, name) of every name that a package re-exports, and (module, "") of every other module."""
    for file in source_files("*.py"):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        if module.endswith("__main__") or module.startswith(NEEDING_AN_EXTRA):
            continue
        yield module, ""
        if file.name == "__init__.py":
            body = ast.parse(file.read_text(encoding="utf-8")).body
            lazy = [line for node in body if isinstance(node, ast.If) for line in node.body]
            for node in [*body, *lazy]:
                home = f"{module}.{node.module}" if isinstance(node, ast.ImportFrom) else ""
                if isinstance(node, ast.ImportFrom) and not home.startswith(NEEDING_AN_EXTRA):
                    yield from ((module, alias.asname or alias.name) for alias in node.names)


def test_the_wheel_has_one_package_at_its_top(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == set(TOP)
    assert len(top) == len(TOP) + 1
    assert "trimaran/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_holds_every_module_and_nothing_else_of_the_checkout(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    files = source_files("*.py", "*.pyi", "py.typed", *DATA_FILES)
    results = SOURCE / "trimaran" / "benchmarks" / "results"
    modules = {file.relative_to(SOURCE).as_posix() for file in files if results not in file.parents}
    examples = {name for name in names if name.startswith("trimaran/cluster/_examples/")}
    assert len(modules) > 400
    assert names - examples - {"pyspark_trimaran.py", COMMIT} == modules
    assert "trimaran/cluster/_examples/access_quota.py" in examples
    assert "trimaran/cluster/_examples/data/nasa-http-1995-08-01.tsv.gz" in examples


def test_a_wheel_can_be_made_of_the_source_distribution(wheel: Path, tmp_path: Path) -> None:
    """It holds every module and stub, where the build expects them."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (packed,) = tmp_path.glob("trimaran-*.tar.gz")
    run("tar", "-xzf", packed, cwd=tmp_path)
    unpacked = tmp_path / packed.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, unpacked, cwd=tmp_path)

    again = zipfile.ZipFile(tmp_path / wheel.name)
    assert {*again.namelist()} == {*zipfile.ZipFile(wheel).namelist()}
    assert again.read(COMMIT) == zipfile.ZipFile(wheel).read(COMMIT)


def test_every_public_name_imports_in_an_empty_environment(installed: Path, tmp_path: Path) -> None:
    program = "import importlib\n" + "\n".join(
        f"m = importlib.import_module({module!r})" + (f"; m.{name}" if name else "") for module, name in public_names()
    )
    script = tmp_path / "imports.py"
    script.write_text(program)

    run(installed, "-W", "error", script, cwd=tmp_path)


def test_the_installed_command_says_where_its_package_is(installed: Path, tmp_path: Path) -> None:
    lines = run(installed.parent / "trimaran", "--version", cwd=tmp_path).splitlines()

    assert [line.split()[0] for line in lines] == ["trimaran", "commit", "package", "python"]
    assert lines[1].split()[1].removesuffix("+") == read_checked_out_commit(ROOT)
    assert lines[2].endswith("site-packages/trimaran")
    assert str(ROOT) not in "\n".join(lines)


def test_the_demo_runs_from_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed.parent / "trimaran", "demo", "--dir", tmp_path / "data", "--file-sync-level", "0", cwd=tmp_path
    )

    assert "FAILED" not in output
