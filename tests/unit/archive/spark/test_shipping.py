"""The zip that executors get: all of the packages, with byte code that Python takes, and the user's own modules."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trimaran.archive.spark import shipping
from trimaran.service_api.errors import ConfigurationError


class NotingSession:
    """Stands for a Spark session: notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bool]] = []
        self.registered: list[type] = []
        self.dataSource = self

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802  # the name is Spark's
        self.sent.append((path, pyfile))

    def register(self, source: type) -> None:
        self.registered.append(source)


def ship(*modules: str) -> Path:
    session = NotingSession()
    shipping.ship(session, *modules)  # type: ignore[arg-type]
    ((path, is_pyfile),) = session.sent
    assert is_pyfile
    assert [source.__name__ for source in session.registered] == ["AeronArchiveDataSource"]
    return Path(path)


def test_each_module_is_there_with_byte_code_that_python_imports(tmp_path: Path) -> None:
    path = ship()

    names = set(zipfile.ZipFile(path).namelist())
    sources = {name for name in names if name.endswith(".py")}
    assert {name.split("/")[0].removesuffix(".py") for name in sources} == set(shipping.PACKAGES)
    assert names == sources | {f"{name}c" for name in sources}
    program = (
        "from trimaran.archive.format import layout; from trimaran.service_api import types;"
        " print(layout.__file__, types.__file__)"
    )
    command = [sys.executable, "-S", "-c", program]
    environment = {"PYTHONPATH": str(path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        f"{path}/trimaran/{module}.pyc" for module in ("archive/format/layout", "service_api/types")
    ]


def test_the_users_own_module_goes_along_under_another_name_of_the_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_decoders.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)

    path = ship("my_decoders")

    assert zipfile.ZipFile(path).read("my_decoders.py") == b"ANSWER = 42\n"
    assert path.name != ship().name
    assert ship() == ship()


@pytest.mark.parametrize(
    ("module", "reason"),
    [("no_such_module", "no such module to ship"), ("math", "not made of Python files"), ("sys", "not made of")],
)
def test_what_cannot_be_shipped_is_refused_by_name(module: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{reason}.*module={module!r}"):
        ship(module)


def test_a_module_in_a_package_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"package.*module='os\.path'"):
        ship("os.path")
