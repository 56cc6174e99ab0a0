"""The style that a machine can check: leftovers, task owners, clocks, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.modules import parsed, python_files
from tests.places import ROOT

PACKAGES = ("service_api", "archive", "client", "cluster", "src")
EVERYTHING = (*PACKAGES, "benchmarks", "examples", "notebooks", "tests")

TASK_OWNERS = {
    "archive/store/whole_jobs.py": "awaits the executor's future itself, shielded, so that file work is never left",
    "archive/store/recording.py": "owns the task that prepares the next segment; stop() and failure join it",
    "archive/net/server/replication_session.py": "outlives connections; stop() joins it, and so the server's aclose()",
    "client/conductor.py": "owns its dials; closing cancels and joins them",
    "client/shared/session_pool.py": "waits for requests of cancelled callers; aclose() cancels and joins it",
    "client/shared/shared_link.py": "owns its dial; SharedConnection.aclose() joins it",
    "client/reopening.py": "opens the next session; close() cancels and joins it",
    "client/ready_made/ending_calls.py": "what ends something goes on when nobody waits; it ends with the session",
    "client/ready_made/locks.py": "renewals, which release() joins, and releases; both end with the session",
    "service_api/net/transport.py": "makes a connection of what it accepted; ends by itself, wait_closed() joins it",
    "benchmarks/guard/stand_ins.py": "a loop, whose create_task this is",
    "benchmarks/guard/request_paths.py": "the callers of a chunk, whose results it takes before the next one",
    "cluster/testing/simulation/world/machine.py": "the main task of a simulated process, which dies with it, unjoined",
}
"""Who may make tasks without a TaskGroup or an ActivityScope, and why."""

CLOCK_OWNERS = {
    "archive/tool/commands/offline.py": "a command's entry: how long ago an Aeron archive was active",
    "archive/tool/commands/serve.py": "a command's entry: the time of day that recordings start and stop at",
    "archive/store/conductor.py": "the default of a parameter: how long a sync takes",
    "archive/spark/streaming/stream_planner.py": "the default of a parameter: how often a stream looks at directories",
    "cluster/cli/demo/request_stream.py": "the default of a parameter: latencies of the demo",
    "cluster/runtime/ground/system_clock.py": "the clock itself",
    "service_api/tls/certificates.py": "the default of a parameter: whether a certificate is valid now",
}
"""Who may read the time, and why. Everyone else is given it."""

LEFTOVERS = tuple("".join(parts) for parts in (("TO", "DO"), ("FIX", "ME"), ("X", "XX"), ("HA", "CK")))


def test_nothing_is_left_to_do_in_the_code() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in [*python_files(*EVERYTHING), ROOT / "Makefile", ROOT / "pyproject.toml"]
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if any(word in line for word in LEFTOVERS)
    ]

    assert found == []


def dotted(node: ast.expr) -> str:
    """`a.b().c` as text, as far as it is names, attributes and calls."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return "?"


def makes_loose_task(call: ast.Call) -> bool:
    """Whether a call makes a task that no group owns: on asyncio or on a loop."""
    receiver, _, name = dotted(call.func).rpartition(".")
    if name == "ensure_future":
        return True
    if name == "Task":
        return receiver == "asyncio"
    return name == "create_task" and (receiver == "asyncio" or "loop" in receiver.rpartition(".")[2])


def test_tasks_belong_to_someone() -> None:
    loose = {
        name
        for name, tree in parsed(*PACKAGES, "benchmarks")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and makes_loose_task(node)
    }

    assert loose == set(TASK_OWNERS)


def test_work_on_files_waits_in_one_way() -> None:
    """`aiofiles.os.wrap` in the cluster; the loop's executor below it, which reads logs with the standard library."""
    threads = {
        (name, node.attr)
        for name, tree in parsed(*PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"to_thread", "run_in_executor"}
    }

    found = {name for name, attribute in threads if attribute == "to_thread" or name.startswith("cluster/")}
    assert found == set()


def reads_clock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "time"
    if isinstance(node, ast.Attribute):
        text = dotted(node)
        return text.startswith("time.") or text.endswith(("datetime.now", "datetime.utcnow", "date.today"))
    return False


def test_time_is_a_parameter() -> None:
    readers = {name for name, tree in parsed(*PACKAGES) for node in ast.walk(tree) if reads_clock(node)}

    assert readers == set(CLOCK_OWNERS)


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Public functions and classes of a module, and the public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                        yield f"{node.name}.{inner.name}", inner


def says_by_what_it_has(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """In an example, a message says what it is by its fields, and a marked method by the message that it takes."""
    if not name.startswith("examples/"):
        return False
    if isinstance(node, ast.ClassDef):
        return all(isinstance(line, ast.AnnAssign | ast.Assign) for line in node.body)
    return bool(node.decorator_list)


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Say whether it is one of several signatures of a function, which has the docstring."""
    return any(isinstance(by, ast.Name) and by.id == "overload" for by in node.decorator_list)


def test_every_public_name_says_what_it_is() -> None:
    silent = []
    for name, tree in parsed(*PACKAGES, "benchmarks", "examples"):
        if not ast.get_docstring(tree):
            silent.append(name)
        for qualified, node in public_definitions(tree):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if not (ast.get_docstring(node) or says_by_what_it_has(name, node) or is_overload(node)):
                silent.append(f"{name}:{qualified}")

    assert silent == []


@pytest.mark.parametrize("package", [*(f"{name}" for name in PACKAGES if name != "src"), "src/trimaran"])
def test_a_packages_init_only_exports(package: str) -> None:
    """What is exported is imported at once, or said to type checkers and imported when it is asked for."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))

    others = [
        ast.unparse(node)
        for outer in tree.body
        for node in ([*outer.body, *outer.orelse] if isinstance(outer, ast.If) else [outer])
        if not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    assert others in ([], ["__getattr__, __dir__ = lazy_exports(__name__)"])


def test_every_folder_is_a_room_of_the_package() -> None:
    """`src/trimaran` holds a link to each folder of the checkout that is imported."""
    links = {link.name: link.resolve() for link in (ROOT / "src" / "trimaran").iterdir() if link.is_symlink()}

    assert links == {name: ROOT / name for name in (*PACKAGES, "benchmarks") if name != "src"}


def test_a_public_class_name_means_one_thing() -> None:
    """Readers and `grep` find one class by a name."""
    places: dict[str, list[str]] = {}
    for name, tree in parsed(*PACKAGES, "benchmarks"):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)

    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_unit_tests_lie_as_the_modules_do() -> None:
    """Who knows where a module is knows where its tests are."""
    unit = ROOT / "tests" / "unit"
    folders = {file.parent.relative_to(unit) for file in python_files("tests/unit")}

    assert folders
    assert {folder.as_posix() for folder in folders if not (ROOT / folder).is_dir()} == set()


def test_a_public_function_name_means_one_thing() -> None:
    """But for entry points, and an analysis: its figure, its caption and its section in the report have its name."""
    places: dict[str, list[str]] = {}
    for name, tree in parsed(*PACKAGES):
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name != "main" and not node.name.startswith("_"):
                room = "analyses" if name.startswith(("archive/report/", "archive/spark/analyses/")) else name
                places.setdefault(node.name, []).append(room)

    assert {name: rooms for name, rooms in places.items() if len(set(rooms)) > 1} == {}


def test_every_directory_of_a_package_is_a_package() -> None:
    bare = {
        file.parent.relative_to(ROOT).as_posix()
        for file in python_files(*PACKAGES)
        if file.parent != ROOT / "src" and not (file.parent / "__init__.py").is_file()
    }

    assert bare == set()
