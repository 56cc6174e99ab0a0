"""What is built: a wheel and a source distribution that hold the product, whichever way they are made, byte for byte.

The wheel has one package at its top, and the module that Spark finds by its name. It works in an empty environment:
one away from the checkout, with nothing but what the wheel says it needs.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.set_up import configured_index
from tests.test_readme import run_example
from tests.waiting import patient
from trimaran.service_api.distribution import read_checked_out_commit

TOP = ("pyspark_trimaran.py", "trimaran")
SOURCE = ROOT / "src"
LINKS = ("archive", "benchmarks", "client", "cluster", "service_api")
"""The folders that `src/trimaran` links to."""
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


def build(kind: str, source: Path, directory: Path) -> Path:
    """Build a wheel or a source distribution with the build backend of this environment; files are dated alike."""
    command = (sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", directory, source)
    run(*command, cwd=directory.parent, SOURCE_DATE_EPOCH="1700000000")
    (found,) = directory.glob("trimaran-*")
    return found


def unpack(packed: Path, directory: Path) -> Path:
    """Unpack a source distribution; the directory that it holds."""
    with tarfile.open(packed) as archive:
        archive.extractall(directory, filter="data")
    return directory / packed.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from this checkout."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("build") / "wheel")


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution built from this checkout."""
    return build("sdist", ROOT, tmp_path_factory.mktemp("build") / "sdist")


@pytest.fixture(scope="module")
def unpacked(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the source distribution holds."""
    return unpack(source_distribution, tmp_path_factory.mktemp("unpacked"))


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


def test_the_wheel_through_the_source_distribution_is_the_same_byte_for_byte(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    again = build("wheel", unpacked, tmp_path / "again")

    assert again.name == wheel.name
    assert {*zipfile.ZipFile(again).namelist()} == {*zipfile.ZipFile(wheel).namelist()}
    assert again.read_bytes() == wheel.read_bytes()


def test_the_source_distribution_is_reproducible(source_distribution: Path, tmp_path: Path) -> None:
    again = build("sdist", ROOT, tmp_path / "again")

    assert again.read_bytes() == source_distribution.read_bytes()


def test_the_source_distribution_holds_the_folders_once_and_no_links(source_distribution: Path, unpacked: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        members = archive.getmembers()
    folders = {member.name.split("/")[1] for member in members}

    assert {*LINKS, "src", "tests", "docs", "examples", "pyproject.toml", "hatch_build.py"} <= folders
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    assert sorted(each.name for each in (unpacked / "src" / "trimaran").iterdir()) == [
        "__init__.py",
        "__main__.py",
        "py.typed",
    ]


def test_a_checkout_without_symbolic_links_builds_the_same_wheel(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    """Git writes a file with the target's path for each link there."""
    checkout = tmp_path / "checkout"
    shutil.copytree(unpacked, checkout)
    for name in LINKS:
        (checkout / "src" / "trimaran" / name).write_text(f"../../{name}")

    assert build("wheel", checkout, tmp_path / "wheel").read_bytes() == wheel.read_bytes()


def test_a_checkout_without_symbolic_links_refuses_to_be_installed_for_editing(unpacked: Path, tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys, hatchling.build as b; b.build_editable(sys.argv[1])", str(tmp_path))
    result = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=False)

    assert result.returncode == 1
    assert "src/trimaran/archive" in result.stderr
    assert "git config core.symlinks true" in result.stderr
    assert "Traceback" not in result.stderr
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("tag", "commit_count", "is_changed", "version"),
    [
        (None, 1, False, "0.1.0.dev1"),
        (None, 3, False, "0.1.0.dev3"),
        ("v1.2.9", 0, False, "1.2.9"),
        ("v1.2.9", 0, True, "1.2.10.dev0"),
        ("v1.2.9", 4, False, "1.2.10.dev4"),
    ],
)
def test_the_version_comes_from_the_newest_tag(
    tag: str | None, commit_count: int, is_changed: bool, version: str, tmp_path: Path
) -> None:
    def git(*arguments: str) -> None:
        names = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
        run("git", *names, "-C", tmp_path, *arguments, cwd=tmp_path)

    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    git("init", "-q")
    git("add", "hatch_build.py")
    if tag is not None:
        git("commit", "-q", "-m", "0")
        git("tag", tag)
    for number in range(commit_count):
        git("commit", "-q", "--allow-empty", "-m", str(number))
    if is_changed:
        with (tmp_path / "hatch_build.py").open("a") as file:
            file.write("\n")

    program = "import hatch_build; print(hatch_build.find_version())"
    assert run(sys.executable, "-B", "-c", program, cwd=tmp_path).strip() == version


def test_a_directory_without_git_has_a_version_all_the_same(tmp_path: Path) -> None:
    shutil.copy(ROOT / "hatch_build.py", tmp_path)

    program = "import hatch_build; print(hatch_build.find_version())"
    assert run(sys.executable, "-B", "-c", program, cwd=tmp_path).strip() == "0.1.0.dev0"


@pytest.mark.campaign
def test_the_builds_are_what_the_package_index_expects(wheel: Path, source_distribution: Path, tmp_path: Path) -> None:
    pytest.importorskip("twine")
    pytest.importorskip("check_wheel_contents")

    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source_distribution, cwd=tmp_path)
    settings = ROOT / "pyproject.toml"
    run(sys.executable, "-m", "check_wheel_contents", "--config", settings, wheel, cwd=tmp_path)


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


@pytest.mark.campaign
def test_the_readme_example_runs_from_the_installed_wheel(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)

    run_example(installed.parent, tmp_path)


def test_the_demo_runs_from_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    output = run(
        installed.parent / "trimaran", "demo", "--dir", tmp_path / "data", "--file-sync-level", "0", cwd=tmp_path
    )

    assert "FAILED" not in output
