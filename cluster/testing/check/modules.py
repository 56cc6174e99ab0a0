"""The user's modules as source: their names, functions and classes. Nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from ....service_api import ConfigurationError
from ...service.source_files import import_base, is_foreign, is_installed, source_files_of

Function = ast.FunctionDef | ast.AsyncFunctionDef

_SERVICE_BASES: Final = ("ClusteredService", "TypedService")
_BASE_LIMIT: Final = 64
"""Classes that one class may derive from, and names that an import may pass through."""
_MUTABLE: Final = frozenset({"list", "dict", "set", "defaultdict", "deque"})


@dataclass(eq=False)
class FunctionSource:
    """A function or method of the user."""

    module: ModuleSource
    node: Function
    owner: ClassSource | None

    def __repr__(self) -> str:
        return f"<FunctionSource {self.name}>"

    @property
    def name(self) -> str:
        """What it is called where it stands."""
        return self.node.name if self.owner is None else f"{self.owner.node.name}.{self.node.name}"

    @property
    def parameters(self) -> list[ast.arg]:
        """All that can be given by position or name, in order."""
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @cached_property
    def global_names(self) -> set[str]:
        """The names of the module that it assigns."""
        return {name for each in ast.walk(self.node) if isinstance(each, ast.Global) for name in each.names}

    @cached_property
    def local_names(self) -> set[str]:
        """The names that it binds, as do functions within it."""
        names: set[str | None] = set()
        for each in ast.walk(self.node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                names.add(each.id)
            elif isinstance(each, ast.arg):
                names.add(each.arg)
            elif isinstance(each, ast.ExceptHandler | ast.MatchAs | ast.MatchStar | Function):
                names.add(each.name)
        return {name for name in names - self.global_names if name is not None}

    @property
    def own_parameter(self) -> str:
        """The name of `self`; empty if there is none."""
        return self.parameters[0].arg if self.owner is not None and self.parameters and not self.is_static else ""

    @property
    def is_static(self) -> bool:
        """Whether a method has no `self` or `cls`."""
        return self._is_decorated("staticmethod")

    @property
    def is_property(self) -> bool:
        """Whether to read the attribute calls it."""
        return self._is_decorated("property", "cached_property", "setter")

    def _is_decorated(self, *names: str) -> bool:
        return any(ast.unparse(each).rpartition(".")[2] in names for each in self.node.decorator_list)


@dataclass(slots=True, eq=False)
class ClassSource:
    """A class of the user."""

    module: ModuleSource
    node: ast.ClassDef
    methods: dict[str, FunctionSource] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    """The types of attributes, from the class body and from methods."""
    class_values: dict[str, ast.expr] = field(default_factory=dict)
    """The values that stand in the class body."""
    assigned: dict[str, list[tuple[FunctionSource | None, ast.expr]]] = field(default_factory=dict)
    """The values that attributes are given, by which method; None is the class body, which is last."""

    def __repr__(self) -> str:
        return f"<ClassSource {self.node.name}>"


@dataclass(slots=True, eq=False)
class ModuleSource:
    """A module of the user."""

    name: str
    path: Path
    tree: ast.Module
    lines: Sequence[str]
    names: dict[str, str] = field(default_factory=dict)
    """What a name of the module stands for, in full: imports, functions, classes and values."""
    functions: dict[str, FunctionSource] = field(default_factory=dict)
    classes: dict[str, ClassSource] = field(default_factory=dict)
    values: dict[str, ast.expr] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<ModuleSource {self.name}>"


Found = FunctionSource | ClassSource | ModuleSource | tuple[ModuleSource, str] | None


class Project:
    """The modules of the user, read when something in them is asked for."""

    def __init__(self, search_path: Sequence[str]) -> None:
        self._search_path = search_path
        self._modules: dict[str, ModuleSource | None] = {}
        self._by_path: dict[Path, ModuleSource] = {}
        self._found: dict[str, Found] = {}

    def __repr__(self) -> str:
        return f"<Project modules={len(self._by_path)}>"

    @property
    def modules(self) -> list[ModuleSource]:
        """Those that were read."""
        return [*self._by_path.values()]

    def read(self, name: str, path: Path) -> ModuleSource:
        """Read a module.

        Raises:
            ConfigurationError: it cannot be read, or is no Python.
        """
        path = path.resolve()
        if path in self._by_path:
            return self._by_path[path]
        try:
            data = path.read_bytes()
            tree = ast.parse(data, filename=str(path))
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            raise ConfigurationError(f"not Python: {path}:{line}: {error}") from error
        except OSError as error:
            raise ConfigurationError(f"cannot be read: path={path} reason={error.strerror}") from error
        module = ModuleSource(name, path, tree, data.decode(errors="replace").splitlines())
        _collect(module)
        self._modules[name] = self._by_path[path] = module
        return module

    def find_module(self, name: str) -> ModuleSource | None:
        """Find a module of the user by its full name; None if there is none, or it is not the user's."""
        if name not in self._modules:
            self._modules[name] = None
            if not is_foreign(name):
                found = dict(source_files_of(name, self._search_path)).get(name)
                if found is not None and not is_installed(found):
                    self._modules[name] = self.read(name, found)
        return self._modules[name]

    def find(self, full_name: str) -> Found:
        """Find what a full name stands for; a pair is a value of a module. None where it is not the user's."""
        if full_name not in self._found:
            self._found[full_name] = None  # for a name that stands for a part of itself: limits = limits.all
            self._found[full_name] = self.find_module(full_name) or self._find_part(*full_name.rpartition("."))
        return self._found[full_name]

    def _find_part(self, parent: str, _: str, name: str) -> Found:
        found = self.find(parent) if parent else None
        if isinstance(found, ClassSource):
            return found.methods.get(name)
        if not isinstance(found, ModuleSource):
            return None
        if name in found.functions or name in found.classes:
            return found.functions.get(name) or found.classes[name]
        stands_for = found.names.get(name, "")
        if name in found.values and stands_for == f"{found.name}.{name}":
            return found, name
        return self.find(stands_for)

    def bases(self, source: ClassSource) -> Iterator[ClassSource]:
        """Yield the class and those of the user that it derives from, nearest first."""
        waiting, seen = [source], set[int]()
        while waiting and len(seen) < _BASE_LIMIT:
            current = waiting.pop(0)
            if id(current) in seen:
                continue
            seen.add(id(current))
            yield current
            for base in current.node.bases:
                full_name = dotted(base, current.module.names)
                found = None if full_name is None else self.find(full_name)
                if isinstance(found, ClassSource):
                    waiting.append(found)

    def find_method(self, source: ClassSource, name: str) -> FunctionSource | None:
        """Find a method where Python would."""
        return next((each.methods[name] for each in self.bases(source) if name in each.methods), None)

    def is_service(self, source: ClassSource, *names: str) -> bool:
        """Return whether a class is a service of a cluster, or derives from one of these classes of Trimaran."""
        for each in self.bases(source):
            for base in each.node.bases:
                full_name = dotted(base, each.module.names) or ""
                if full_name.startswith("trimaran.") and full_name.rpartition(".")[2] in (names or _SERVICE_BASES):
                    return True
        return False

    def has_unknown_base(self, source: ClassSource) -> bool:
        """Return whether a class derives from one that is neither the user's nor of Trimaran."""
        names = [dotted(base, source.module.names) or "" for base in source.node.bases]
        return any(not name.startswith("trimaran.") and self.find(name) is None for name in names)


def dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return the full name of `a.b.c`, where `names` says what `a` stands for; None where it says nothing."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Subscript) and not parts:  # a base such as Command[Balance]
        return dotted(node.value, names)
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


def _collect(module: ModuleSource) -> None:
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                module.names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            base = import_base(node, package)
            for alias in node.names:
                module.names[alias.asname or alias.name] = f"{base}.{alias.name}"
    for statement in _statements(module.tree.body):
        if isinstance(statement, Function):
            module.functions[statement.name] = FunctionSource(module, statement, None)
            module.names[statement.name] = f"{module.name}.{statement.name}"
        elif isinstance(statement, ast.ClassDef):
            source = module.classes[statement.name] = ClassSource(module, statement)
            _collect_class(source)
            module.names[statement.name] = f"{module.name}.{statement.name}"
    for name, value in _values([*_statements(module.tree.body)]):
        module.values[name] = value
        stands_for = dotted(value, module.names) if isinstance(value, ast.Name | ast.Attribute) else None
        module.names[name] = stands_for or f"{module.name}.{name}"


def _collect_class(source: ClassSource) -> None:
    for part in _statements(source.node.body):
        if isinstance(part, Function) and part.name not in source.methods:
            source.methods[part.name] = FunctionSource(source.module, part, source)
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            source.annotations[part.target.id] = part.annotation
    for method in source.methods.values():
        for node in ast.walk(method.node):
            for target in _targets(node):
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == method.own_parameter:
                    if isinstance(node, ast.AnnAssign):
                        source.annotations.setdefault(target.attr, node.annotation)
                    elif isinstance(node, ast.Assign):
                        source.assigned.setdefault(target.attr, []).append((method, node.value))
    source.class_values.update(_values(source.node.body))
    for name, value in source.class_values.items():
        source.assigned.setdefault(name, []).append((None, value))


def _targets(node: ast.AST) -> Sequence[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else ()


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those under `if` and `try`, not those in functions and classes."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)


def _values(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield from ((each.id, statement.value) for each in statement.targets if isinstance(each, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def is_mutable(node: ast.expr) -> bool:
    """Whether an expression makes an object that can be changed in place, as far as its form says."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in _MUTABLE
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)


def mutable_defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a function whose default is an object that can be changed in place."""
    by_position = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(by_position), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    yield from ((each.arg, default) for each, default in pairs if default is not None and is_mutable(default))
