"""The plugins of the runner, for a `conftest.py` to import."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.remote import Producer

from .limit import TEST_LIMIT_S, TestLimit
from .outcomes import OPTION, OutcomeFile
from .scheduling import FilesOfOneWorker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings that `python -m tests.runner` and its tests use."""
    parser.addoption(OPTION, type=Path, help="file to write how each test ended, one JSON line each")
    parser.addini("test_limit_s", "limit for one test on a quiet machine, in seconds", default=str(TEST_LIMIT_S))


def pytest_configure(config: pytest.Config) -> None:
    """Limit tests in the processes that run them, and write outcomes in the one that reports them."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", default=None):
        config.pluginmanager.register(TestLimit(float(config.getini("test_limit_s"))))
    if not is_worker and (path := config.getoption(OPTION)) is not None:
        config.pluginmanager.register(OutcomeFile(path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesOfOneWorker:
    """Give a file, or a folder of `ONE_WORKER`, to one worker."""
    return FilesOfOneWorker(config, log)
