"""The build of the interpreter: one that was compiled without a profile takes a quarter more processor time, or more.

CPython's `--enable-optimizations` compiles the interpreter twice, the second time with a profile of the first. Official
images, the installers of python.org, uv and Fedora do so; `pyenv install` and a plain `./configure && make` do not.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from typing import Final

_PROFILE_OPTION: Final = "--enable-optimizations"
_DISTRIBUTION_PREFIX: Final = "/usr"


def is_slow_build() -> bool:
    """Return True if this interpreter was compiled without a profile, as far as its settings tell.

    Settings of a Python that a Linux distribution ships say nothing: Debian builds with a profile by means of its own.
    Builds for Windows keep no settings. Both count as quick.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS")
    if options is None or sys.base_prefix == _DISTRIBUTION_PREFIX:
        return False
    return _PROFILE_OPTION not in options


def describe_python() -> str:
    """Name the interpreter and its build, as "CPython 3.11.7, compiled without a profile"."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name}, compiled without a profile" if is_slow_build() else name
