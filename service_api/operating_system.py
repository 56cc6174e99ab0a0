"""What not every operating system has, and who needs it.

Linux and macOS run everything. Windows runs clients, the commands that read, Spark, notebooks and the simulator; it
lacks what a member builds upon. Ask for what is needed here, by its name: never for the name of the system. That is
what the tests can take away (`tests/test_platforms.py`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from .errors import ConfigurationError

_NEEDED_BY_MEMBERS: Final = ("fchmod", "pread", "pwrite", "geteuid", "O_DIRECTORY")
"""Names of `os` without which no member can keep its log and its rights."""
_MODULES_NEEDED_BY_MEMBERS: Final = ("fcntl", "resource")


def optional_module(name: str) -> Any:  # type checkers know a module of another system by no name
    """Import a module of the standard library that not every system has; None where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def optional_flag(name: str) -> int:
    """Return a flag of `os.open`; 0 where the system has none of that name."""
    flag: int = getattr(os, name, 0)
    return flag


def optional_function(name: str) -> Callable[..., Any] | None:
    """Return a function of `os`; None where the system has none of that name."""
    function: Callable[..., Any] | None = getattr(os, name, None)
    return function


def effective_user_id() -> int | None:
    """Return the number of the user that this process acts for; None on a system that numbers no users."""
    function = optional_function("geteuid")
    return None if function is None else int(function())


def expect_member_system(command: str) -> None:
    """Refuse to do on this system what takes a member, or writes as one.

    Raises:
        ConfigurationError: the user's: another system is needed.
    """
    lacking = [f"os.{name}" for name in _NEEDED_BY_MEMBERS if not hasattr(os, name)]
    lacking += [name for name in _MODULES_NEEDED_BY_MEMBERS if optional_module(name) is None]
    if lacking:
        raise ConfigurationError(
            f"`{command}` needs Linux or macOS: system={sys.platform} has no {', '.join(lacking)}; run it in a Linux "
            "container or in WSL 2. Clients, the commands that read, Spark and `trimaran sim` work here"
        )
