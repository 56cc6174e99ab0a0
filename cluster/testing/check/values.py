"""The facts that the source gives about a value: its type, its elements, and the state that it is part of."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from .modules import ClassSource, ModuleSource, Project, dotted


class Owner(Enum):
    """Whose state a value is part of."""

    SERVICE = auto()
    MODULE = auto()
    CLASS = auto()
    CLUSTER = auto()
    DEFAULT = auto()
    """The function: the default of a parameter, which is made once."""


class Home(NamedTuple):
    """The place in the state that a value is part of."""

    owner: Owner
    name: str
    """The field, or the value of the module; empty for the service itself."""


@dataclass(slots=True, frozen=True)
class Value:
    """The known facts about a value. Where the source does not say what a value is, nothing is found."""

    kind: str = "?"
    parts: tuple[Value, ...] = ()
    """The elements: one value for a list or set, key and value for a dict, each one for a tuple."""
    source: ClassSource | None = None
    """The class of a user's object."""
    name: str = ""
    """The full name of a function, class, module or library."""
    home: Home | None = None

    @property
    def is_unordered(self) -> bool:
        """True if an iteration has the order of a set."""
        return self.kind in ("set", "set iterator")

    @property
    def has_view(self) -> bool:
        """True if it is a view of the log, or holds one."""
        return self.kind == "view" or any(part.has_view for part in self.parts)

    @property
    def element(self) -> Value:
        """The elements that an iteration yields."""
        return self._part(combine(self.parts) if self.kind == "tuple" else self.parts[0] if self.parts else UNKNOWN)

    def item(self, index: ast.expr) -> Value:
        """Return what `value[index]` is."""
        if isinstance(index, ast.Slice):
            return replace(self, home=None)
        return self.element if self.kind == "tuple" else self._part(self.parts[-1] if self.parts else UNKNOWN)

    def unpacked(self, count: int) -> Sequence[Value]:
        """Return what each of `count` names is that the value is assigned to."""
        if self.kind == "tuple" and len(self.parts) == count:
            return [self._part(part) for part in self.parts]
        return [self.element] * count

    def _part(self, part: Value) -> Value:
        return part if self.home is None else replace(part, home=self.home)


UNKNOWN: Final = Value()
NONE: Final = Value("None")
VIEW: Final = Value("view")
SET: Final = Value("set")
CLUSTER: Final = Value("cluster")
FLOAT: Final = Value("float")
OUTBOX: Final = Value("outbox")
"""It copies what is added to it."""

_TYPES: Final = {
    **dict.fromkeys(("set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet", "KeysView"), "set"),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "Counter", "defaultdict"), "dict"),
    **dict.fromkeys(("list", "List", "Sequence", "deque", "Iterable"), "list"),
    **dict.fromkeys(("tuple", "Tuple"), "tuple"),
    **dict.fromkeys(("Iterator", "Generator"), "iterator"),
    **{name: name for name in ("int", "bool", "float", "str", "bytes")},
    "memoryview": "view",
    "Path": "path",
    "Cluster": "cluster",
    "Outbox": "outbox",
}
_RESULTS: Final = {
    **dict.fromkeys(("iter", "map", "filter", "zip", "enumerate", "reversed"), "iterator"),
    **dict.fromkeys(("list", "sorted", "collections.deque"), "list"),
    **dict.fromkeys(("set", "frozenset"), "set"),
    **dict.fromkeys(("dict", "collections.OrderedDict", "collections.Counter", "collections.defaultdict"), "dict"),
    "dict.fromkeys": "dict",
    **dict.fromkeys(("pathlib.Path", "pathlib.PurePath"), "path"),
    **dict.fromkeys(("bytes", "bytearray"), "bytes"),
    **dict.fromkeys(("int", "len"), "int"),
    **{name: name for name in ("tuple", "float", "str", "bool")},
    "memoryview": "view",
}
"""The types of what functions of the library return, by their full names."""
LAZY: Final = frozenset({"iter", "map", "filter", "itertools.chain"})
"""Functions that return an iterator with the order of what they are given."""
_SET_METHODS: Final = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_SET_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
_WRAPPERS: Final = ("Final", "ClassVar", "Optional", "Annotated")


def combine(values: Iterable[Value]) -> Value:
    """Return what is true of each of the values; a view of the log among them is one of the result."""
    known = [value for value in values if value != NONE] or [UNKNOWN]
    first = next((value for value in known if value.has_view), known[0])
    if first.has_view or all(value == first for value in known):
        return first
    is_same_kind, is_same_home = ({getattr(value, each) for value in known} for each in ("kind", "home"))
    return Value(first.kind if len(is_same_kind) == 1 else "?", home=first.home if len(is_same_home) == 1 else None)


def annotated(project: Project, module: ModuleSource, node: ast.expr | None) -> Value:
    """Return the value that an annotation promises."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return UNKNOWN
    if isinstance(node, ast.BinOp):  # X | None
        left, right = (annotated(project, module, each) for each in (node.left, node.right))
        return right if left == UNKNOWN else left
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if _last_name(node.value) in _WRAPPERS:
            return annotated(project, module, inner[0])
        parts = tuple(annotated(project, module, each) for each in inner if ast.unparse(each) != "...")
        return replace(annotated(project, module, node.value), parts=parts)
    if not isinstance(node, ast.Name | ast.Attribute):
        return UNKNOWN
    found = project.find(dotted(node, module.names) or "")
    if isinstance(found, ClassSource):
        return Value("object", source=found)
    return Value(_TYPES.get(_last_name(node), "?"))


def result_of(name: str, arguments: Sequence[Value]) -> Value:
    """Return what a function of the library returns."""
    first = arguments[0] if arguments else UNKNOWN
    is_lazy = name.startswith("itertools.") or name in LAZY
    if is_lazy and any(argument.is_unordered for argument in arguments):
        return Value("set iterator")
    if name.startswith("trimaran.") and name.endswith(".Outbox"):
        return OUTBOX
    kind = "iterator" if is_lazy else _RESULTS.get(name, "?")
    if name == "collections.defaultdict":
        return Value(kind, (UNKNOWN, Value(_RESULTS.get(first.name, "?"))))
    if kind in ("set", "list") and first.parts:
        return Value(kind, (replace(first.element, home=None),))
    return Value(kind)


def result_of_method(receiver: Value, name: str, arguments: Sequence[Value]) -> Value:
    """Return what a method of a builtin type returns."""
    kind = receiver.kind
    if name in ("keys", "items"):
        parts = receiver.parts[:1] if name == "keys" else (Value("tuple", receiver.parts),) if receiver.parts else ()
        return Value("dict view", parts, home=receiver.home)
    if name == "values":
        return Value("list", receiver.parts[-1:], home=receiver.home)
    if name in ("get", "setdefault", "pop"):
        known = receiver.parts[-1] if kind == "dict" and receiver.parts else UNKNOWN
        given = arguments[1] if len(arguments) > 1 else UNKNOWN
        return replace(given if known == UNKNOWN else known, home=None if name == "pop" else receiver.home)
    if (kind == "set" and name in _SET_METHODS) or name == "copy":
        return replace(receiver, home=None)
    return VIEW if kind == "view" and name in ("cast", "toreadonly") else UNKNOWN


def result_of_operator(operator: ast.operator, left: Value, right: Value) -> Value:
    """Return what `left + right` and the like is."""
    if isinstance(operator, _SET_OPERATORS) and {left.kind, right.kind} & {"set", "dict view"}:
        known = next((each for each in (left, right) if each.kind == "set"), SET)
        return replace(known, home=None)
    if isinstance(operator, ast.Div) or "float" in (left.kind, right.kind):
        return FLOAT
    return replace(left, home=None) if (left.kind, left.parts) == (right.kind, right.parts) else UNKNOWN


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
