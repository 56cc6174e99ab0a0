"""The pytest plugin: the fixture `cluster`, the marker `trimaran`, and tests that are coroutines on virtual time.

It is there in every run of pytest once the distribution is installed, so it imports nothing until a test uses it.

A test that is a coroutine and uses `cluster` becomes a plain function as soon as it is collected. So it needs no other
plugin, and pytest-asyncio, in its strict and in its auto mode, lets it alone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .memory_cluster import MemoryCluster

MARKER: Final = "trimaran"
FIXTURE: Final = "cluster"
_USAGE: Final = (
    "@pytest.mark.trimaran(service=MyService), or pytestmark = pytest.mark.trimaran(service=MyService) for a whole file"
)


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker is for."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(service=..., members=3, seed=0, term_length_bytes=..., strict=True, double_execution=False, "
        f"logs=False): the service that the members of the fixture `{FIXTURE}` run: its class, or a function that "
        "makes one",
    )


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[MemoryCluster]:
    """A cluster in memory and on virtual time, which runs the service of the marker `trimaran`."""
    from ...service_api import ConfigurationError
    from .memory_cluster import MemoryCluster

    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        pytest.fail(f"the fixture `{FIXTURE}` needs to know the service: {_USAGE}", pytrace=False)
    if marker.args or "service" not in marker.kwargs:
        pytest.fail(f"the marker {MARKER} takes names, and needs the service: {_USAGE}", pytrace=False)
    try:
        made = MemoryCluster(**marker.kwargs)
    except (TypeError, ConfigurationError) as error:
        pytest.fail(f"the marker {MARKER}: {error}", pytrace=False)
    try:
        made.run(made.wait_for_leader())
        yield made
    finally:
        made.close()


@pytest.hookimpl(trylast=True, wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Any, Any]:
    """Make plain functions of coroutines that use the fixture, before another plugin takes them."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj) and _uses_cluster(item):
            item.obj = _driven(item, item.obj)
    return made


def _uses_cluster(item: pytest.Function) -> bool:
    """Whether it is our fixture that the test uses, itself or through another one, and not one of that name."""
    definitions: Sequence[Any] = item._fixtureinfo.name2fixturedefs.get(FIXTURE, ())  # pytest keeps them private
    return bool(definitions) and definitions[-1].func.__module__ == __name__


def _driven(item: pytest.Function, test: Callable[..., Any]) -> Callable[..., None]:
    """Make a plain test of a coroutine: the cluster drives it."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        __tracebackhide__ = True
        from .waiting import StillWaitingError

        # A test of a class belongs to an instance that is new for each run.
        method = test if item.instance is None else getattr(item.instance, test.__name__)
        made: Any = item.funcargs[FIXTURE]
        try:
            made.run(method(**arguments))
        except StillWaitingError as error:
            told = str(error)
        else:
            return
        pytest.fail(told, pytrace=False)

    return run
