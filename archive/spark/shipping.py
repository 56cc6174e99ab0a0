"""`ship`: sends this package to executors that have not installed it.

Spark sends classes to executors by name, so an executor imports the data source before it reads a row. Where Trimaran
is not installed there, the driver sends a zip of the packages, which Spark puts on the path of every worker.

Python keeps no byte code of what it imports from a zip and compiles it whenever a worker starts. So the zip holds the
byte code, too, of the kind that is used without a look at the source (PEP 552); another Python passes over it and
compiles.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import marshal
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...service_api.errors import ConfigurationError
from .source.data_source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES: Final = ("pyspark_trimaran", "trimaran")
"""What the wheel installs."""

_UNCHECKED: Final = (0b01).to_bytes(4, "little")
_ANY_DATE: Final = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession, *modules: str) -> None:
    """Send Trimaran to the executors of a session, of Spark Connect or not, and register the data source.

    Call it once for a session, before the first read. `modules` are names of other packages or modules to send along,
    such as that of a decoder. Executors need numpy, pyarrow, and the driver's versions of Python (minor) and Spark;
    what is shipped may have its own needs: `cluster` those of `pip install trimaran`.

    Raises:
        ConfigurationError: a module cannot be found, is part of a package, or is not made of Python files.
    """
    spark.addArtifacts(str(_pack(tuple(sorted({*PACKAGES, *modules})))), pyfile=True)
    register(spark)


@cache
def _pack(names: tuple[str, ...]) -> Path:
    """Make the zip of these packages, once for each choice of them; it is gone when the process is."""
    directory = Path(tempfile.mkdtemp(prefix="trimaran-ship-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    digest = hashlib.sha256()
    working = directory / "working"
    with zipfile.ZipFile(working, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            for module, source in _files(name):
                text = source.read_bytes()
                digest.update(module.encode() + b"\0" + text)
                packed.writestr(zipfile.ZipInfo(module, _ANY_DATE), text, zipfile.ZIP_DEFLATED)
                byte_code = _byte_code(source, text)
                packed.writestr(zipfile.ZipInfo(f"{module}c", _ANY_DATE), byte_code, zipfile.ZIP_DEFLATED)
    # Connect refuses other bytes under a name that it has seen.
    return working.rename(directory / f"trimaran-{digest.hexdigest()[:16]}.zip")


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield (name in the zip, file) of a module or of all in a package."""
    if "." in name:
        raise ConfigurationError(
            f"a part of a package is not shipped, expected the name of a whole package: module={name!r}"
        )
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ConfigurationError(f"no such module to ship: module={name!r}")
    if spec.submodule_search_locations:
        root = Path(next(iter(spec.submodule_search_locations)))
        found = [(file.relative_to(root.parent).as_posix(), file) for file in _python_files(root)]
    else:
        found = [(f"{name}.py", Path(spec.origin or ""))]
    if not found or not all(file.suffix == ".py" and file.is_file() for _, file in found):
        raise ConfigurationError(f"not made of Python files, so it cannot be shipped: module={name!r}")
    yield from found


def _python_files(root: Path) -> list[Path]:
    """List a package's modules in order; in a checkout some of its folders are links, which `rglob` does not follow."""
    walk = os.walk(root, followlinks=True)
    return sorted(Path(folder, name) for folder, _, names in walk for name in names if name.endswith(".py"))


def _byte_code(source: Path, text: bytes) -> bytes:
    """Make what a .pyc file holds that is taken without a look at the source, from the one that is cached if any."""
    code = SourceFileLoader(source.stem, str(source)).get_code(source.stem)
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + importlib.util.source_hash(text) + marshal.dumps(code)
