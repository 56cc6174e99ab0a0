"""Checks services: follows each callback of a service through the user's code, and judges what was seen."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ....service_api import ConfigurationError
from ....service_api.service import PLAIN_CALLBACKS
from ...service.source_files import source_files_of
from ...service.strict.rules import Finding
from .ignores import without_ignored
from .modules import ClassSource, FunctionSource, Project, dotted
from .rules import SNAPSHOT_CALLBACKS, judge
from .seen import CallbackPlace
from .values import CLUSTER, VIEW, Value
from .walk import SERVICE, Tracer

_TYPED_CALLBACKS: Final = ("on_opened", "on_closed")
"""What a typed service may have beside the methods that it marks."""

_PLACES: Final[Mapping[str, CallbackPlace]] = {
    **dict.fromkeys((*PLAIN_CALLBACKS, *_TYPED_CALLBACKS), CallbackPlace.LOG),
    "state_hash": CallbackPlace.LOG,
    **dict.fromkeys(SNAPSHOT_CALLBACKS, CallbackPlace.SNAPSHOT),
    "__init__": CallbackPlace.START,
    "on_start": CallbackPlace.START,
    "on_query": CallbackPlace.QUERY,
    "on_role_change": CallbackPlace.OUTSIDE,
    "on_terminate": CallbackPlace.OUTSIDE,
}
_DECORATORS: Final[Mapping[str, CallbackPlace]] = {
    **dict.fromkeys(("handles", "on_timer"), CallbackPlace.LOG),
    "answers": CallbackPlace.QUERY,
}
"""Decorators of typed services, whatever module of Trimaran they are from."""

_PAYLOAD_CALLBACKS: Final = {"on_session_message": 3, "on_request": 3, "on_service_message": 3, "on_query": 1}
"""Which parameter is the payload."""

_SKIPPED_DIRECTORIES: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


def check_targets(targets: Sequence[str], service_dir: Path) -> tuple[list[Finding], list[str]]:
    """Check services, as `module:Class`, files and directories. Returns the findings in order, and the services.

    Raises:
        ConfigurationError: a target is not there, is no Python, or has no service.
    """
    project = Project([str(service_dir.resolve()), *_roots(targets), *sys.path])
    services = list(dict.fromkeys(each for target in targets for each in _find_services(project, target)))
    found: dict[tuple[Path, int, int, str], Finding] = {}
    for service in services:
        for finding in judge(project, service, _trace(project, service).seen):
            key = finding.path, finding.line, finding.column, finding.rule
            if key not in found or finding.severity < found[key].severity:  # "error" is before "hint"
                found[key] = finding
    kept = []
    for module in project.modules:
        kept += without_ignored(module, (each for each in found.values() if each.path == module.path))
    return sorted(kept), [f"{each.module.name}:{each.node.name}" for each in services]


def _roots(targets: Sequence[str]) -> Iterator[str]:
    for target in targets:
        path = Path(target)
        if path.suffix == ".py" or path.is_dir():
            yield str(_root_of(path.resolve()))


def _root_of(path: Path) -> Path:
    """The directory that has to be on the import path for this file or directory."""
    directory = path if path.is_dir() else path.parent
    while (directory / "__init__.py").is_file():
        directory = directory.parent
    return directory


def _find_services(project: Project, target: str) -> Iterator[ClassSource]:
    path = Path(target)
    if ":" in target and not path.exists():
        yield _named_service(project, target)
        return
    if not path.exists():
        raise ConfigurationError(f"not found: {target} expected module:Class, a file or a directory")
    files = [path] if path.is_file() else [*_python_files(path)]
    services = [each for file in files for each in _services_in(project, file.resolve())]
    if not services:
        raise ConfigurationError(
            f"no service there: path={target} expected a class that derives from trimaran.ClusteredService"
        )
    yield from services


def _named_service(project: Project, target: str) -> ClassSource:
    module_name, _, class_name = target.partition(":")
    module = project.find_module(module_name)
    if module is None:
        # Named, it is checked wherever it lies: installed, or of Trimaran itself.
        path = dict(source_files_of(module_name)).get(module_name)
        if path is None:
            raise ConfigurationError(f"service module not found: module={module_name} (set --service-dir)")
        module = project.read(module_name, path)
    found = project.find(f"{module_name}.{class_name}") or module.classes.get(class_name)
    if not isinstance(found, ClassSource):
        raise ConfigurationError(f"service class not found: {target} expected one of {[*module.classes]}")
    if not project.is_service(found):
        raise ConfigurationError(f"not a service: {target} expected a class that derives from ClusteredService")
    return found


def _python_files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.name.startswith(".") or path.name in _SKIPPED_DIRECTORIES or (path / "pyvenv.cfg").exists():
            continue
        if path.is_dir():
            yield from _python_files(path)
        elif path.suffix == ".py":
            yield path


def _services_in(project: Project, path: Path) -> Iterator[ClassSource]:
    relative = path.relative_to(_root_of(path)).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" else relative.parts
    module = project.read(".".join(parts), path)
    yield from (each for each in module.classes.values() if project.is_service(each))


def _trace(project: Project, service: ClassSource) -> Tracer:
    """Follow each callback of a service."""
    tracer = Tracer(project)
    names = dict.fromkeys(name for each in project.bases(service) for name in each.methods)
    for name in names:
        method = project.find_method(service, name)
        assert method is not None
        place = _PLACES.get(name) or _decorated_place(method)
        if place is not None:
            tracer.enter(method, _arguments_of(service, method, name), place)
    return tracer


def _decorated_place(method: FunctionSource) -> CallbackPlace | None:
    for decorator in method.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        full_name = dotted(called, method.module.names) or ""
        if full_name.startswith("trimaran.") and full_name.rpartition(".")[2] in _DECORATORS:
            return _DECORATORS[full_name.rpartition(".")[2]]
    return None


def _arguments_of(service: ClassSource, callback: FunctionSource, name: str) -> dict[str, Value]:
    """Return what is known of the arguments of a callback."""
    given = {0: Value("object", source=service, home=SERVICE), _PAYLOAD_CALLBACKS.get(name): VIEW}
    if name == "on_start":
        given[1] = CLUSTER
    return {each.arg: given[index] for index, each in enumerate(callback.parameters) if index in given}
