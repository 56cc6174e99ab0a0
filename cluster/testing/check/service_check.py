"""Checks services: follows each callback of a service through the user's code, and judges what was seen."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ....service_api import ConfigurationError
from ....service_api.service import PLAIN_CALLBACKS
from ...service.source_files import source_files_of
from ...service.strict.known_calls import rule_of_call, rule_of_name
from ...service.strict.rules import Finding, Severity
from .ignores import without_ignored
from .kinds import CLUSTER, VIEW, ValueKind
from .modules import ClassSource, FunctionSource, ModuleSource, Project, dotted
from .walk import SERVICE, Call, CallbackPlace, FunctionWalk, Walked

_WALK_LIMIT: Final = 20_000
"""Visits of functions for one service: beyond it, the rest is not looked at."""

_TYPED_CALLBACKS: Final = ("on_opened", "on_closed")
"""What a typed service may have beside the methods that it marks."""

_SNAPSHOT_CALLBACKS: Final = ("on_take_snapshot", "snapshot_messages")

_PLACES: Final[Mapping[str, CallbackPlace]] = {
    **dict.fromkeys((*PLAIN_CALLBACKS, *_TYPED_CALLBACKS), CallbackPlace.LOG),
    "state_hash": CallbackPlace.LOG,
    **dict.fromkeys(_SNAPSHOT_CALLBACKS, CallbackPlace.LOG),
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
_RUNS_LATER: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def check_targets(targets: Sequence[str], service_dir: Path) -> tuple[list[Finding], list[str]]:
    """Check services, as `module:Class`, files and directories. Returns the findings in order, and the services.

    Raises:
        ConfigurationError: a target is not there, is no Python, or has no service.
    """
    project = Project([str(service_dir.resolve()), *_roots(targets), *sys.path])
    services = list(dict.fromkeys(each for target in targets for each in _find_services(project, target)))
    found: dict[tuple[Path, int, int, str], Finding] = {}
    for service in services:
        for finding in _ServiceCheck(project, service).run():
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


@dataclass(slots=True)
class _Visit:
    """A function to look at, and how it was reached."""

    call: Call
    place: CallbackPlace
    way: tuple[str, ...]
    callback: str

    @property
    def key(self) -> tuple[object, ...]:
        kinds = tuple(sorted((name, kind.name, id(kind.source)) for name, kind in self.call.kinds.items()))
        return self.call.function, self.place, kinds, tuple(sorted(self.call.fields.items())), self.in_snapshot

    @property
    def in_snapshot(self) -> bool:
        return self.callback in _SNAPSHOT_CALLBACKS


@dataclass(slots=True)
class _Fields:
    """What callbacks do with the service's fields."""

    written: dict[str, Finding] = field(default_factory=dict)
    """By callbacks on the log path; the place is that of the first change."""
    snapshot: set[str] = field(default_factory=set)
    """That the snapshot looks at."""
    outside: dict[str, Finding] = field(default_factory=dict)
    """Changed by `on_role_change`."""
    read: set[str] = field(default_factory=set)
    """By callbacks on the log path."""


class _ServiceCheck:
    """Checks one service."""

    def __init__(self, project: Project, service: ClassSource) -> None:
        self._project = project
        self._service = service
        self._findings: list[Finding] = []
        self._fields = _Fields()
        self._seen: set[tuple[object, ...]] = set()
        self._seen_values: set[tuple[str, str]] = set()
        self._waiting: deque[_Visit] = deque()

    def run(self) -> list[Finding]:
        """Check it."""
        for name, function, place in self._callbacks():
            self._check_form(name, function)
            self._waiting.append(_Visit(self._first_call(function, name), place, (function.node.name,), name))
        while self._waiting and len(self._seen) < _WALK_LIMIT:
            visit = self._waiting.popleft()
            if visit.key not in self._seen:
                self._seen.add(visit.key)
                self._take(visit, self._walk(visit))
        self._check_class_values()
        self._check_snapshot()
        self._check_roles()
        return self._findings

    def _callbacks(self) -> Iterator[tuple[str, FunctionSource, CallbackPlace]]:
        names = dict.fromkeys(name for each in self._project.bases(self._service) for name in each.methods)
        for name in names:
            method = self._project.find_method(self._service, name)
            assert method is not None
            place = _PLACES.get(name) or self._decorated_place(method)
            if place is not None:
                yield name, method, place

    def _decorated_place(self, method: FunctionSource) -> CallbackPlace | None:
        for decorator in method.decorators:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            full_name = dotted(called, method.module.names) or ""
            if full_name.startswith("trimaran.") and full_name.rpartition(".")[2] in _DECORATORS:
                return _DECORATORS[full_name.rpartition(".")[2]]
        return None

    def _first_call(self, function: FunctionSource, name: str) -> Call:
        parameters = [arg.arg for arg in function.parameters]
        call = Call(function)
        if parameters:
            call.fields[parameters[0]] = SERVICE
            call.kinds[parameters[0]] = ValueKind("object", (), self._service)
        index = _PAYLOAD_CALLBACKS.get(name, 0)
        if 0 < index < len(parameters):
            call.kinds[parameters[index]] = VIEW
        if name == "on_start" and len(parameters) > 1:
            call.kinds[parameters[1]] = CLUSTER
        return call

    def _walk(self, visit: _Visit) -> Walked:
        call = visit.call
        return FunctionWalk(self._project, call.function, visit.place, kinds=call.kinds, fields=call.fields).walk()

    def _take(self, visit: _Visit, walked: Walked) -> None:
        module = visit.call.function.module
        for node, rule, severity, what in walked.findings:
            if rule == "event-loop" and visit.in_snapshot:
                continue
            self._add(module, node, rule, what, severity, visit.way)
        for call in walked.calls:
            way = visit.way if len(visit.way) > 8 else (*visit.way, call.function.name)
            self._waiting.append(_Visit(call, visit.place, way, visit.callback))
        if visit.place is CallbackPlace.LOG:
            for module_name, name in walked.values:
                self._look_at_value(module_name, name, visit)
        self._take_fields(visit, walked)

    def _take_fields(self, visit: _Visit, walked: Walked) -> None:
        fields, module = self._fields, visit.call.function.module
        if visit.in_snapshot:
            fields.snapshot |= walked.read
            # A method of a field's object looks at the field.
            fields.snapshot |= {name for call in walked.calls for name in call.fields.values() if name != SERVICE}
            return
        if visit.place is CallbackPlace.LOG:
            fields.read |= walked.read
        written = {CallbackPlace.LOG: fields.written, CallbackPlace.OUTSIDE: fields.outside}.get(visit.place)
        if written is not None:
            for name, node in walked.written.items():
                written.setdefault(name, self._make(module, node, "snapshot-forgets", name, Severity.HINT, visit.way))

    def _look_at_value(self, module_name: str, name: str, visit: _Visit) -> None:
        """A callback reads a value of a module: it was made when the module was imported."""
        module = self._project.find_module(module_name)
        if module is None or (module_name, name) in self._seen_values or name not in module.values:
            return
        self._seen_values.add((module_name, name))
        way = (*visit.way, name)
        for node in ast.walk(module.values[name]):
            if isinstance(node, ast.Call) and (full_name := dotted(node.func, module.names)):
                rule = rule_of_call(full_name, len(node.args) + len(node.keywords))
                if rule in ("wall-clock", "random", "environment"):
                    self._add(module, node, rule, f"{full_name}()", Severity.ERROR, way)
            elif isinstance(node, ast.Attribute) and rule_of_name(dotted(node, module.names) or "") == "environment":
                self._add(module, node, "environment", ast.unparse(node), Severity.ERROR, way)
            if isinstance(node, ast.Name) and isinstance(
                found := self._project.find(module.names.get(node.id, "")), FunctionSource
            ):
                self._waiting.append(_Visit(Call(found), CallbackPlace.LOG, (*way, found.name), visit.callback))

    # --- what is judged about the service as a whole

    def _check_form(self, name: str, function: FunctionSource) -> None:
        node = function.node
        if isinstance(node, ast.AsyncFunctionDef) and name in (*PLAIN_CALLBACKS, "snapshot_messages"):
            self._add(function.module, node, "coroutine-callback", f"async def {name}", Severity.ERROR, (name,))
        elif name in PLAIN_CALLBACKS and (found := _find_yield(node)) is not None:
            self._add(function.module, found, "coroutine-callback", f"yield in {name}", Severity.ERROR, (name,))

    def _check_class_values(self) -> None:
        """A list in the class body that callbacks change, and that no object has for itself."""
        own = {*self._assigned_by("__init__"), *self._assigned_by("on_start")}
        for each in self._project.bases(self._service):
            for name, value in each.class_values.items():
                is_mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp) or (
                    isinstance(value, ast.Call)
                    and isinstance(value.func, ast.Name | ast.Attribute)
                    and ast.unparse(value.func).rpartition(".")[2] in ("list", "dict", "set", "defaultdict", "deque")
                )
                if is_mutable and name in self._fields.written and name not in own:
                    what = f"{name} = {ast.unparse(value)[:40]} in the class body, changed by callbacks"
                    self._add(each.module, value, "class-state", what, Severity.ERROR, ())

    def _assigned_by(self, method_name: str) -> Iterator[str]:
        for each in self._project.bases(self._service):
            method = each.methods.get(method_name)
            for node in ast.walk(method.node) if method is not None else ():
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                    yield node.attr

    def _check_snapshot(self) -> None:
        taking = next((name for name in _SNAPSHOT_CALLBACKS if self._project.find_method(self._service, name)), None)
        if taking is None or SERVICE in self._fields.snapshot:
            return
        for name, finding in self._fields.written.items():
            if name not in self._fields.snapshot:
                what = f"self.{name} is changed here, and {taking} never looks at it"
                self._findings.append(replace(finding, what=what))

    def _check_roles(self) -> None:
        for name, finding in self._fields.outside.items():
            if name in self._fields.snapshot or name in self._fields.written:
                what = f"self.{name} is changed by {finding.reached_from[0]}, outside of the log's order"
                self._findings.append(replace(finding, rule="role-state", what=what, severity=Severity.ERROR))

    # --- findings

    def _add(
        self, module: ModuleSource, node: ast.AST, rule: str, what: str, severity: Severity, way: tuple[str, ...]
    ) -> None:
        self._findings.append(self._make(module, node, rule, what, severity, way))

    def _make(
        self, module: ModuleSource, node: ast.AST, rule: str, what: str, severity: Severity, way: tuple[str, ...]
    ) -> Finding:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        source = module.lines[line - 1].strip() if line <= len(module.lines) else ""
        return Finding(module.path, line, column + 1, rule, severity, what, source, way)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _find_yield(node: ast.AST) -> ast.AST | None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Yield | ast.YieldFrom):
            return child
        if not isinstance(child, _RUNS_LATER) and (found := _find_yield(child)) is not None:
            return found
    return None
