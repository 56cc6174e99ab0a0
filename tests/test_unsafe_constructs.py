"""Nothing of the product runs what it was sent: no pickle, no eval, no shell, no YAML."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.modules import parsed

PACKAGES: Final = ("archive", "client", "cluster", "service_api", "benchmarks", "examples", "src")
UNSAFE_MODULES: Final = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "telnetlib"}
UNSAFE_CALLS: Final = {"eval", "exec", "compile", "__import__"}
UNSAFE_NAMES: Final = {
    *("getoutput", "getstatusoutput", "create_subprocess_shell", "subprocess_shell"),
    *("read_pickle", "unsafe_load", "mktemp", "extractall"),
}
"""Of whatever module: shells, code in data, names that somebody else can take first, archives that climb out."""
ALLOWED: Final = {
    ("service_api/wire/codec.py", "exec"): "runs functions that it writes itself from the fields of a model",
    ("service_api/wire/codec.py", "compile"): "as above",
    (
        "service_api/typed/value_checks.py",
        "exec",
    ): "runs checks that it writes itself from types of a class",
    ("service_api/typed/codec.py", "exec"): "runs readers that it writes itself from the fields of a class",
    ("service_api/typed/messages.py", "exec"): "runs constructors that it writes itself from the fields of a class",
    ("archive/spark/shipping.py", "marshal"): "writes byte code into the zip of our own packages; reads none",
}


def uses(tree: ast.AST) -> Iterator[str]:
    """What a module imports, calls or asks a process for that is unsafe with foreign data."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (root for name in names if (root := name.name.split(".")[0]) in UNSAFE_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNSAFE_MODULES:
                yield module.split(".")[0]
            case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
                yield name
            case ast.ImportFrom(module="os", names=names):
                yield from (f"os.{name.name}" for name in names if name.name in ("system", "popen"))
            case ast.ImportFrom(names=names):
                yield from (name.name for name in names if name.name in UNSAFE_NAMES)
            case ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen" as name):
                yield f"os.{name}"
            case ast.Attribute(attr=name) if name in UNSAFE_NAMES:
                yield name
            case ast.Attribute(value=ast.Name(id="builtins"), attr=name) if name in UNSAFE_CALLS:
                yield name
            case ast.keyword(arg="allow_pickle"):
                yield "allow_pickle"
            case ast.keyword(arg="shell", value=ast.Constant(value=False)):
                pass
            case ast.keyword(arg="shell"):
                yield "shell"


def test_nothing_runs_what_it_was_sent() -> None:
    assert {(module, use) for module, tree in parsed(*PACKAGES) for use in uses(tree)} == set(ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "import yaml.loader",
        "eval(x)",
        "exec(x)",
        "os.system(x)",
        "from os import system",
        "from subprocess import getoutput as run",
        "asyncio.create_subprocess_shell(x)",
        "builtins.eval(x)",
        "np.load(x, allow_pickle=True)",
        "pd.read_pickle(x)",
        "tempfile.mktemp()",
        "run(x, shell=True)",
        "run(x, shell=y)",
    ],
)
def test_the_test_itself_sees_each(text: str) -> None:
    assert [*uses(ast.parse(text))]
