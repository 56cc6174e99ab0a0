"""Makes copies of the package in which the hot paths are compiled by Cython, for a comparison.

`modules` compiles the modules of the hot paths as they are; `functions` leaves Python as it is, but for the two
functions of `hot_paths.pyx`. Needs Cython, setuptools and a C compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import trimaran
from trimaran.service_api.errors import ConfigurationError

HOT_MODULES: Final = (
    "archive.store.recording",
    "client.connection",
    "client.egress_adapter",
    "client.ingress_publisher",
    "client.protocol",
    "cluster.core.log.log_buffer",
    "cluster.core.log.log_publisher",
    "cluster.core.log.log_receiver",
    "cluster.runtime.agent",
    "cluster.runtime.links.ingress",
    "cluster.runtime.links.ingress_connection",
    "cluster.runtime.links.log_links",
    "cluster.runtime.links.member_links",
    "cluster.service.bounded_log_adapter",
    "cluster.service.client_session",
    "service_api.wire.stream",
)
"""What the profile names, on leader, follower and client."""

_BUILD: Final = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup
extensions = [Extension(name, [path], extra_compile_args=["-O3"]) for name, path in zip(sys.argv[1::2], sys.argv[2::2])]
directives = {"language_level": 3, "annotation_typing": False, "binding": True}
setup(
    name="compiled",
    packages=[],
    ext_modules=cythonize(extensions, compiler_directives=directives, build_dir="build", quiet=True),
    script_args=["--quiet", "build_ext", "--inplace", "--build-temp", "build"],
)
"""

_HOT_FUNCTIONS: Final = """

from . import hot_paths as _hot_paths
from .client_session import _EGRESS, PAYLOAD_OFFSET, ContainerClientSession

_hot_paths.set_layout(
    SessionField.CLUSTER_SESSION_ID.offset, SessionField.TIMESTAMP.offset, PAYLOAD_OFFSET, _EGRESS.pack
)
BoundedLogAdapter._deliver_run = _hot_paths.deliver_run
ContainerClientSession.offer = _hot_paths.offer
"""


def build_modules(directory: Path) -> Path:
    """Compile the modules of the hot paths as they are; give the directory to import from.

    Raises:
        ConfigurationError: it cannot be built here: says why.
    """
    _copy_package(directory)
    _compile(directory, {f"trimaran.{name}": f"trimaran/{name.replace('.', '/')}.py" for name in HOT_MODULES})
    return directory


def build_functions(directory: Path) -> Path:
    """Put the two functions of `hot_paths.pyx` in the place of those in Python; give the directory to import from.

    Raises:
        ConfigurationError: it cannot be built here: says why.
    """
    _copy_package(directory)
    folder = directory / "trimaran" / "cluster" / "service"
    shutil.copy(Path(__file__).with_name("hot_paths.pyx"), folder)
    _compile(directory, {"trimaran.cluster.service.hot_paths": "trimaran/cluster/service/hot_paths.pyx"})
    with (folder / "bounded_log_adapter.py").open("a", encoding="utf-8") as file:
        file.write(_HOT_FUNCTIONS)
    return directory


def _copy_package(directory: Path) -> None:
    shutil.copytree(
        Path(trimaran.__file__).parent, directory / "trimaran", ignore=shutil.ignore_patterns("__pycache__", "results")
    )


def _compile(directory: Path, sources: dict[str, str]) -> None:
    names_and_paths = [part for pair in sources.items() for part in pair]
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, *names_and_paths], cwd=directory, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise ConfigurationError(
            f"the compiled copy was not built: {reason[0]}; expected Cython, setuptools and a C compiler: "
            "pip install '.[bench]', and gcc of your system"
        )
