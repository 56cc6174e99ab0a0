"""Errors travel: through pickle to another process, through copy, and with their text as it was."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import trimaran
from trimaran import ClusterError, RequestIndeterminateError, ServiceError
from trimaran.archive.files.marks import MarkOwner
from trimaran.cluster.documents.query import Outcome

OPTIONAL = {"hypothesis", "pyspark", "duckdb", "numpy", "pyarrow", "pandas", "fsspec", "s3fs", "jinja2", "altair"}
SAMPLES = {
    "str": "some text",
    "int": 5,
    "float": 0.5,
    "bool": True,
    "bytes": b"some bytes",
    "MemberId": 2,
    "Mapping[str, str]": {"10.0.0.1:9000": "connection refused"},
    "Sequence[str]": ["10.0.0.1:9000"],
    "list[Any]": ["kv", "queue"],
    "Path": Path("data/node-0"),
    "MarkOwner": MarkOwner(Path("data/node-0/cluster/cluster-mark.dat"), 4711, 80, "stop it first", is_locked=True),
    "Outcome": Outcome.TIMED_OUT,
    "asyncio.Future[bytes] | None": None,
}


def kinds() -> list[type[ClusterError]]:
    """Find every error of the product."""
    for module in pkgutil.walk_packages(trimaran.__path__, "trimaran."):
        if "__main__" not in module.name and "benchmarks" not in module.name:
            try:
                import_module(module.name)
            except ImportError as error:
                if (error.name or "").partition(".")[0] not in OPTIONAL:
                    raise

    def below(kind: type[ClusterError]) -> Iterator[type[ClusterError]]:
        yield kind
        for each in kind.__subclasses__():
            if each.__module__.startswith("trimaran."):
                yield from below(each)

    return sorted(dict.fromkeys(below(ClusterError)), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def make(kind: type[ClusterError]) -> ClusterError:
    """Make an error with a value for each parameter that needs one."""
    arguments: list[object] = []
    named: dict[str, object] = {}
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.append("some text")
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            annotation = str(parameter.annotation).removesuffix(" | None")
            value = SAMPLES[str(parameter.annotation) if "Future" in annotation else annotation]
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                arguments.append(value)
    return kind(*arguments, **named)


def test_every_error_survives_pickle_and_copy_with_its_text_and_its_facts() -> None:
    found = kinds()
    lost = []
    for kind in found:
        error = make(kind)
        error.add_note("a note")
        facts = {name: value for name, value in vars(error).items() if "outcome" not in name}
        for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
            kept = {name: value for name, value in vars(made).items() if "outcome" not in name}
            if (type(made), str(made), made.args, kept) != (kind, str(error), error.args, facts):
                lost.append(f"{kind.__name__}: {made!r} {kept} expected {error!r} {facts}")

    assert lost == []
    assert len(found) > 40


async def test_a_copy_of_an_indeterminate_error_resolves_and_one_of_another_process_says_that_it_cannot() -> None:
    outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    error = RequestIndeterminateError("TIMEOUT", outcome)
    outcome.set_result(b"reply")

    assert await copy.copy(error).resolve() == b"reply"
    moved = pickle.loads(pickle.dumps(error))
    assert moved.is_final
    with pytest.raises(RequestIndeterminateError, match="TIMEOUT"):
        await moved.resolve()


class Overdrawn(ServiceError):
    balance: int
    notes: list[str]


class Frozen(ServiceError):
    balance: int
    notes: list[str]


def test_service_errors_compare_by_value() -> None:
    assert Overdrawn(5, ["a"]) == Overdrawn(balance=5, notes=["a"])
    assert Overdrawn(5, ["a"]) != Overdrawn(5, ["b"])
    assert Overdrawn(5, ["a"]) != Frozen(5, ["a"])
    assert hash(Overdrawn(5, ["a"])) == hash(Overdrawn(5, ["a"]))
