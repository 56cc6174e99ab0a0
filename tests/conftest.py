"""Options of the whole suite."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import structlog
import typer.main
from hypothesis import settings

from tests.runner import plugin

# A shell that starts the suite in the background has Ctrl-C ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# `nohup` has the end of a terminal ignored, which members leave as it is. This process goes on ignoring it, by a
# handler, since a program that it starts has handlers no more.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
# xdist tells its workers a width of 80 columns, and commands then cut their tables, as in a narrow terminal.
os.environ.pop("COLUMNS", None)
# Hypothesis gives an example 200 ms, which are over at once on a busy machine; a test has a limit of its own.
settings.register_profile("trimaran", deadline=None)
settings.load_profile("trimaran")


TESTS: Final = Path(__file__).parent
LONGEST_FIRST: Final = ("spark", "notebooks", "simulation", "system")
"""Folders whose tests several workers begin with, so that none is left with a long one at the end."""


pytest_configure = plugin.pytest_configure
pytest_xdist_make_scheduler = plugin.pytest_xdist_make_scheduler


def pytest_addoption(parser: pytest.Parser) -> None:
    plugin.pytest_addoption(parser)
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the text scenarios again instead of comparing with them; look at the difference before you commit",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several workers run the suite: begin with the longest tests.

    A test whose name holds an address has another name in each worker, and xdist then runs nothing.

    Raises:
        pytest.UsageError: the name of a test holds an address.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: the name holds an address; give its parameters ids")
    if hasattr(config, "workerinput"):
        ranks = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: ranks.get(folder_of(item), len(ranks)))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect the tests as fast as can be: every worker collects all of them.

    Without Python's garbage collector, and what was collected is kept from it afterwards: eleven thousand tests stay
    until the end. pytest keeps the assertions that it has rewritten, also where Python is told to keep no bytecode.
    """
    keeps_no_bytecode = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    gc.disable()
    try:
        _import_share(session.config)
        yield
    finally:
        gc.freeze()
        gc.enable()
        sys.dont_write_bytecode = keeps_no_bytecode


def _import_share(config: pytest.Config) -> None:
    """In a worker, import a share of the tests before all others: what one worker has rewritten, the others read."""
    if not hasattr(config, "workerinput"):
        return
    number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    roots = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    files = [file for file in sorted(TESTS.rglob("test_*.py")) if any(file.is_relative_to(root) for root in roots)]
    for file in files[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # collection tells of it
            importlib.import_module(".".join(file.relative_to(TESTS.parent).with_suffix("").parts))


def folder_of(item: pytest.Item) -> str:
    """The folder of `tests/` that a test is in."""
    return item.path.relative_to(TESTS).parts[0]


@pytest.fixture(scope="session", autouse=True)
def _commands_built_once() -> Iterator[None]:
    """Build the command of a typer app once: reading its functions' signatures takes longer than most commands run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Let no test change what the next one sees of the log: commands that run in this process set its level."""
    kept = structlog.get_config() if structlog.is_configured() else None
    yield
    if kept is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**kept)
