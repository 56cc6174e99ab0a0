"""The pytest plugin in a pytest of its own, in an empty directory, as an author of services meets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import patient

PLUGIN = "trimaran.cluster.testing.plugin"
TIMEOUT_S = 120

SERVICE = """
from trimaran import ClusteredService


class Counter(ClusteredService):
    def __init__(self):
        self.total = 0

    def on_request(self, session, timestamp, payload):
        self.total += int(bytes(payload))
        return str(self.total).encode()
"""

TESTS = """
import asyncio

import pytest
from counter import Counter

pytestmark = pytest.mark.trimaran(service=Counter)


async def test_coroutine(cluster):
    client = await cluster.connect()
    cluster.kill_leader()
    assert await client.request(b"5") == b"5"


def test_plain(cluster):
    client = cluster.run(cluster.connect())
    assert cluster.run(client.request(b"5")) == b"5"


@pytest.fixture
def client(cluster):
    return cluster.run(cluster.connect())


@pytest.mark.parametrize("number", [1, 2])
async def test_through_a_fixture(client, number):
    assert await client.request(b"%d" % number) == b"%d" % number


class TestClass:
    @pytest.fixture(autouse=True)
    def prepared(self):
        self.number = 3

    @pytest.mark.trimaran(service=Counter, members=5)
    async def test_method(self, cluster):
        assert len(cluster.services) == 5
        assert self.number == 3
        self.number = 4

    async def test_next_method(self, cluster):
        assert self.number == 3


async def test_skipped(cluster):
    await cluster.advance(1)
    pytest.skip("by the test")
"""

WRONG = """
import asyncio

import pytest
from counter import Counter


async def test_without_marker(cluster):
    pass


@pytest.mark.trimaran(Counter, members=3)
async def test_positional(cluster):
    pass


@pytest.mark.trimaran(service=Counter)
async def test_fails(cluster):
    client = await cluster.connect()
    assert await client.request(b"5") == b"6"


@pytest.mark.trimaran(service=Counter)
async def test_hangs(cluster):
    await asyncio.Event().wait()


@pytest.mark.trimaran(service=Counter, members=0)
def test_members(cluster):
    pass
"""

FOREIGN = """
import pytest


@pytest.fixture
def cluster():
    return "another product's"


def test_of_somebody_else(cluster):
    assert cluster == "another product's"


def test_is_cheap():
    import sys

    assert "trimaran.cluster.testing.memory_cluster" not in sys.modules
    assert "pydantic" not in sys.modules
"""


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory, with the plugin alone unless `arguments` name others."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(TIMEOUT_S),
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "counter.py").write_text(SERVICE)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "no:asyncio", "--strict-markers", "-W", "error"),
        ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
    ],
    ids=["no other plugin", "auto"],
)
def test_coroutines_and_plain_functions_run_with_and_without_pytest_asyncio(
    directory: Path, arguments: tuple[str, ...]
) -> None:
    (directory / "test_counter.py").write_text(TESTS)

    result = run_pytest(directory, *arguments)

    assert re.search(r"^6 passed, 1 skipped in ", result.stdout, re.MULTILINE), result.stdout


def test_wrong_use_says_what_to_do_and_others_pay_nothing(directory: Path) -> None:
    """The file of somebody who uses nothing of it comes first: nothing was imported for it."""
    (directory / "test_a_foreign.py").write_text(FOREIGN)
    (directory / "test_counter.py").write_text(WRONG)

    result = run_pytest(directory, "-p", "no:asyncio")

    assert "2 failed, 2 passed, 3 errors" in result.stdout, result.stdout
    for told in (
        "the fixture `cluster` needs to know the service: @pytest.mark.trimaran(service=MyService)",
        "the marker trimaran takes names, and needs the service",
        "assert b'5' == b'6'",
        "test_counter.py:25: await asyncio.Event().wait()",
        "members=0 expected a whole number from 1 to 9",
    ):
        assert told in result.stdout, result.stdout
    assert "memory_cluster.py" not in result.stdout, result.stdout
