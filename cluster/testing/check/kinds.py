"""What an expression is, as far as the source says: a set of text, a view of the log, an object of a class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .modules import ClassSource, FunctionSource, ModuleSource, Project, dotted


@dataclass(slots=True, frozen=True)
class ValueKind:
    """What is known of a value."""

    name: str
    parts: tuple[ValueKind, ...] = ()
    """Of a container: of its elements, or of its keys and values."""
    source: ClassSource | None = None
    """Of an object of the user: its class."""

    @property
    def element(self) -> ValueKind:
        """What comes out of an iteration."""
        return self.parts[0] if self.parts else UNKNOWN

    @property
    def value(self) -> ValueKind:
        """What a key or an index gives."""
        return self.parts[-1] if self.parts else UNKNOWN


UNKNOWN: Final = ValueKind("?")
VIEW: Final = ValueKind("view")
SET: Final = ValueKind("set")
CLUSTER: Final = ValueKind("cluster")
ITERATOR: Final = ValueKind("iterator")
FLOAT: Final = ValueKind("float")
PATH: Final = ValueKind("path")
DEFAULT_DICT: Final = "defaultdict"

_TYPES: Final = {
    **dict.fromkeys(("set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet", "KeysView"), "set"),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "Counter"), "dict"),
    **dict.fromkeys(("defaultdict", "DefaultDict"), DEFAULT_DICT),
    **dict.fromkeys(("list", "List", "Sequence", "deque", "Iterable"), "list"),
    **dict.fromkeys(("tuple", "Tuple"), "tuple"),
    **dict.fromkeys(("Iterator", "Generator"), "iterator"),
    **{name: name for name in ("int", "bool", "float", "str", "bytes")},
    "memoryview": "view",
    "Path": "path",
    "Cluster": "cluster",
}
_BUILDERS: Final = {
    **dict.fromkeys(("iter", "map", "filter", "zip", "enumerate", "reversed"), "iterator"),
    **dict.fromkeys(("list", "sorted"), "list"),
    **{name: name for name in ("tuple", "dict", "int", "float", "str", "bytes", "bool")},
    "len": "int",
    "set": "set",
    "frozenset": "set",
    "bytearray": "bytes",
}
_SET_METHODS: Final = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_KEY_SETS: Final = frozenset({"keys", "items"})
_SET_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)

Environment = Mapping[str, ValueKind]


class Kinds:
    """Finds the kind of expressions in one module."""

    def __init__(self, project: Project, module: ModuleSource, owner: ClassSource | None) -> None:
        self._project = project
        self._module = module
        self._owner = owner

    def of_annotation(self, node: ast.expr | None) -> ValueKind:
        """The kind that an annotation names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return UNKNOWN
        if isinstance(node, ast.BinOp):  # X | None
            left, right = self.of_annotation(node.left), self.of_annotation(node.right)
            return right if left is UNKNOWN else left
        if isinstance(node, ast.Subscript):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            outer = _last_name(node.value)
            if outer in ("Final", "ClassVar", "Optional", "Annotated", "State"):
                return self.of_annotation(inner[0])
            kind = self.of_annotation(node.value)
            return ValueKind(kind.name, tuple(map(self.of_annotation, inner)), kind.source)
        if not isinstance(node, ast.Name | ast.Attribute):
            return UNKNOWN
        full_name = dotted(node, self._module.names)
        found = None if full_name is None else self._project.find(full_name)
        if isinstance(found, ClassSource):
            return ValueKind("object", (), found)
        name = _TYPES.get(_last_name(node))
        return UNKNOWN if name is None else ValueKind(name)

    def of(self, node: ast.expr | None, environment: Environment) -> ValueKind:
        """The kind of an expression."""
        handler = _EXPRESSIONS.get(type(node))
        return UNKNOWN if handler is None else handler(self, node, environment)

    def of_attribute(self, source: ClassSource, name: str) -> ValueKind:
        """The kind of an attribute of an object: as annotated, or as first assigned in a method."""
        known = self._project.attribute_kinds
        if (source, name) not in known:
            known[source, name] = UNKNOWN  # for one that is computed of itself: self.total = self.total + 1
            known[source, name] = self._find_attribute(source, name)
        found = known[source, name]
        assert isinstance(found, ValueKind)
        return found

    def _find_attribute(self, source: ClassSource, name: str) -> ValueKind:
        for each in self._project.bases(source):
            kinds = Kinds(self._project, each.module, each)
            for statement in ast.walk(each.node):
                if isinstance(statement, ast.AnnAssign) and _names_attribute(statement.target, name):
                    return kinds.of_annotation(statement.annotation)
            for method in each.methods.values():
                annotated = {arg.arg: kinds.of_annotation(arg.annotation) for arg in method.parameters}
                for statement in ast.walk(method.node):
                    if isinstance(statement, ast.Assign) and any(
                        isinstance(target, ast.Attribute) and _names_attribute(target, name)
                        for target in statement.targets
                    ):
                        kind = kinds.of(statement.value, annotated)
                        if kind is not UNKNOWN:
                            return kind
            if name in each.methods and each.methods[name].is_property:
                return kinds.of_annotation(each.methods[name].node.returns)
            if name in each.class_values:
                return kinds.of(each.class_values[name], {})
        return CLUSTER if name.strip("_") == "cluster" else UNKNOWN

    # --- expressions

    def _of_name(self, node: ast.Name, environment: Environment) -> ValueKind:
        if node.id in environment:
            return environment[node.id]
        if node.id == "self" and self._owner is not None:
            return ValueKind("object", (), self._owner)
        full_name = self._module.names.get(node.id)
        found = None if full_name is None else self._project.find(full_name)
        if isinstance(found, tuple):
            module, name = found
            return self._of_module_value(module, name)
        return CLUSTER if node.id == "cluster" else UNKNOWN

    def _of_module_value(self, module: ModuleSource, name: str) -> ValueKind:
        known = self._project.attribute_kinds
        if (module, name) not in known:
            known[module, name] = UNKNOWN
            known[module, name] = Kinds(self._project, module, None).of(module.values[name], {})
        found = known[module, name]
        assert isinstance(found, ValueKind)
        return found

    def _of_attribute(self, node: ast.Attribute, environment: Environment) -> ValueKind:
        kind = self.of(node.value, environment)
        return UNKNOWN if kind.source is None else self.of_attribute(kind.source, node.attr)

    def _of_subscript(self, node: ast.Subscript, environment: Environment) -> ValueKind:
        kind = self.of(node.value, environment)
        if isinstance(node.slice, ast.Slice):
            return kind
        return UNKNOWN if kind is VIEW else kind.value

    def _of_set(self, node: ast.Set, environment: Environment) -> ValueKind:
        kinds = {self.of(each, environment) for each in node.elts}
        if all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in node.elts):
            return ValueKind("constant set")
        return ValueKind("set", tuple(kinds) if len(kinds) == 1 else ())

    def _of_set_comprehension(self, node: ast.SetComp, environment: Environment) -> ValueKind:
        return SET

    def _of_binary(self, node: ast.BinOp, environment: Environment) -> ValueKind:
        left, right = self.of(node.left, environment), self.of(node.right, environment)
        if isinstance(node.op, _SET_OPERATORS):
            if "set" in (left.name, right.name):
                return left if left.name == "set" else right
            if _is_key_view(node.left) or _is_key_view(node.right):
                return SET
        if isinstance(node.op, ast.Div):
            return FLOAT
        return FLOAT if FLOAT in (left, right) else left if left == right else UNKNOWN

    def _of_either(self, node: ast.IfExp, environment: Environment) -> ValueKind:
        first, second = self.of(node.body, environment), self.of(node.orelse, environment)
        return second if first is UNKNOWN else first

    def _of_boolean(self, node: ast.BoolOp, environment: Environment) -> ValueKind:
        return next((kind for each in node.values if (kind := self.of(each, environment)) is not UNKNOWN), UNKNOWN)

    def _of_constant(self, node: ast.Constant, environment: Environment) -> ValueKind:
        return ValueKind(type(node.value).__name__) if node.value is not None else UNKNOWN

    def _of_display(self, node: ast.List | ast.Tuple, environment: Environment) -> ValueKind:
        kinds = {self.of(each, environment) for each in node.elts}
        if VIEW in kinds:
            return VIEW
        return ValueKind(type(node).__name__.lower(), tuple(kinds) if len(kinds) == 1 else ())

    def _of_dict(self, node: ast.Dict, environment: Environment) -> ValueKind:
        return ValueKind("dict", (UNKNOWN, self.of(node.values[0], environment))) if node.values else ValueKind("dict")

    def _of_call(self, node: ast.Call, environment: Environment) -> ValueKind:
        called = node.func
        if isinstance(called, ast.Attribute):
            kind = self.of(called.value, environment)
            if kind.name == "set" and (called.attr in _SET_METHODS or called.attr == "copy"):
                return kind
            if called.attr in ("get", "setdefault", "pop") and kind.name in ("dict", DEFAULT_DICT):
                given = self.of(node.args[1], environment) if len(node.args) > 1 else UNKNOWN
                return given if kind.value is UNKNOWN else kind.value
            if called.attr in ("values", "items") and kind.parts:
                return ValueKind("list", (kind.value if called.attr == "values" else ValueKind("tuple", kind.parts),))
            if kind is VIEW and called.attr in ("cast", "toreadonly"):
                return VIEW
            if kind.source is not None:
                return self._of_result(self._project.find_method(kind.source, called.attr))
        full_name = dotted(called, self._module.names) if isinstance(called, ast.Name | ast.Attribute) else None
        found = None if full_name is None else self._project.find(full_name)
        if isinstance(found, ClassSource):
            return ValueKind("object", (), found)
        if isinstance(found, FunctionSource):
            return self._of_result(found)
        return self._of_builtin(node, full_name or (called.id if isinstance(called, ast.Name) else ""), environment)

    def _of_result(self, found: FunctionSource | None) -> ValueKind:
        if found is None:
            return UNKNOWN
        if _is_generator(found):
            return ITERATOR
        return Kinds(self._project, found.module, found.owner).of_annotation(found.node.returns)

    def _of_builtin(self, node: ast.Call, name: str, environment: Environment) -> ValueKind:
        first = self.of(node.args[0], environment) if node.args else UNKNOWN
        if name == "memoryview":
            return VIEW
        if name == "collections.defaultdict":
            made = _TYPES.get(_last_name(node.args[0]), "?") if node.args else "?"
            return ValueKind(DEFAULT_DICT, (UNKNOWN, ValueKind(made)))
        if name in ("pathlib.Path", "pathlib.PurePath"):
            return PATH
        if name.startswith("itertools."):
            return ITERATOR
        if name == "next":
            return first.element
        made = _BUILDERS.get(name, "?")
        if made == "?":
            return UNKNOWN
        return ValueKind(made, (first.element,) if made in ("set", "list", "tuple") and first.parts else ())

    def _of_generator(self, node: ast.GeneratorExp, environment: Environment) -> ValueKind:
        return ITERATOR


def _is_generator(found: FunctionSource) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(found.node))


def _is_key_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEY_SETS


def _names_attribute(target: ast.expr, name: str) -> bool:
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name) and target.value.id == "self" and target.attr == name
    return isinstance(target, ast.Name) and target.id == name


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


_EXPRESSIONS: Final[dict[type, Callable[[Kinds, Any, Environment], ValueKind]]] = {  # Any: the node that it is keyed by
    ast.Name: Kinds._of_name,
    ast.Attribute: Kinds._of_attribute,
    ast.Subscript: Kinds._of_subscript,
    ast.Set: Kinds._of_set,
    ast.SetComp: Kinds._of_set_comprehension,
    ast.BinOp: Kinds._of_binary,
    ast.IfExp: Kinds._of_either,
    ast.BoolOp: Kinds._of_boolean,
    ast.Constant: Kinds._of_constant,
    ast.List: Kinds._of_display,
    ast.Tuple: Kinds._of_display,
    ast.Dict: Kinds._of_dict,
    ast.Call: Kinds._of_call,
    ast.GeneratorExp: Kinds._of_generator,
}
