"""Looks at one function as a callback reaches it: statement after statement, with what each name is there.

What a name is follows from the statements before it, branch after branch as they stand: enough to see that
`names = sorted(names)` has made a list of a set. Where the source does not say what something is, nothing is found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from ...service.strict.known_calls import PATH_METHODS, rule_of_call, rule_of_name
from ...service.strict.rules import Severity
from .kinds import (
    CLUSTER,
    DEFAULT_DICT,
    FLOAT,
    ITERATOR,
    PATH,
    UNKNOWN,
    VIEW,
    Kinds,
    ValueKind,
)
from .modules import ClassSource, FunctionSource, Project, dotted


class CallbackPlace(Enum):
    """From where a function is reached."""

    LOG = auto()
    """A callback on the log path, `state_hash` or `on_take_snapshot`: all members must do the same."""
    START = auto()
    """`__init__` and `on_start`: it may read what a node is given, and keep none of it."""
    QUERY = auto()
    """`on_query`: it must change nothing."""
    OUTSIDE = auto()
    """`on_role_change` and `on_terminate`: free, but for the replicated state."""


MUTATORS: Final = frozenset(
    {
        *("append", "appendleft", "add", "extend", "insert", "remove", "discard", "pop", "popleft", "popitem", "clear"),
        *("update", "setdefault", "sort", "reverse", "difference_update", "intersection_update", "move_to_end"),
        *("symmetric_difference_update", "subtract", "rotate", "extendleft", "__setitem__"),
    }
)
_KEEPERS: Final = frozenset({"append", "appendleft", "add", "extend", "insert", "setdefault", "update", "put"})
_CLUSTER_CHANGES: Final = frozenset({"offer", "schedule_timer", "cancel_timer", "close_client_session"})
_ORDERED_CONSUMERS: Final = frozenset({"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "sum"})
_UNORDERED_CONSUMERS: Final = frozenset({"any", "all", "sorted", "set", "frozenset", "min", "max", "len", "sum"})
_MEMBER_FACTS: Final = frozenset({"role", "member_id", "is_replaying"})
_BROAD: Final = frozenset({"Exception", "BaseException", "MemoryError", "OSError", "IOError", "EnvironmentError"})
_FREE_TO_START: Final = frozenset({"file", "environment", "network", "process", "thread", "event-loop", "wall-clock"})
_GIVEN_TO_A_NODE: Final = frozenset({"file", "environment", "network"})
_ALIAS_METHODS: Final = frozenset({"get", "setdefault", "values", "items", "__getitem__"})

SERVICE: Final = ""
"""Stands for the service itself where the name of one of its fields would be."""


@dataclass(slots=True)
class Call:
    """A function of the user that the function calls or refers to."""

    function: FunctionSource
    kinds: dict[str, ValueKind] = field(default_factory=dict)
    """What its parameters are."""
    fields: dict[str, str] = field(default_factory=dict)
    """Which parameters are the state: the field of the service that each is part of."""


@dataclass(slots=True)
class Walked:
    """What was seen in a function."""

    findings: list[tuple[ast.AST, str, Severity, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    written: dict[str, ast.AST] = field(default_factory=dict)
    """Fields of the service that are changed, and where first."""
    read: set[str] = field(default_factory=set)
    """Fields of the service that are looked at; the service itself, if it is handed on as a whole."""
    values: dict[tuple[str, str], ast.AST] = field(default_factory=dict)
    """Values of modules that are looked at: module, name."""


class FunctionWalk(ast.NodeVisitor):
    """Walks over one function."""

    def __init__(
        self,
        project: Project,
        function: FunctionSource,
        place: CallbackPlace,
        *,
        kinds: Mapping[str, ValueKind],
        fields: Mapping[str, str],
    ) -> None:
        self._project = project
        self._function = function
        self._place = place
        self._module = function.module
        self._kinds = Kinds(project, function.module, function.owner)
        self._environment = {arg.arg: self._kinds.of_annotation(arg.annotation) for arg in function.parameters}
        self._environment |= {name: kind for name, kind in kinds.items() if kind is not UNKNOWN}
        self._fields = dict(fields)
        """Local names that are part of the state: the service's field."""
        self._names = {name: full for name, full in self._module.names.items() if name not in self._environment}
        self._globals: set[str] = set()
        self._unordered: set[ast.AST] = set()
        self._in_self_assignment = False
        self.walked = Walked()

    def walk(self) -> Walked:
        """Walk over the body."""
        for statement in self._function.node.body:
            self.visit(statement)
        return self.walked

    # --- what is found

    def _find(self, node: ast.AST, rule: str, what: str, severity: Severity = Severity.ERROR) -> None:
        self.walked.findings.append((node, rule, severity, what))

    def _find_call(self, node: ast.expr, rule: str, name: str) -> None:
        """A call that leaves the log; how bad it is depends on the place."""
        if self._place is CallbackPlace.OUTSIDE:
            return
        is_starting = self._place is CallbackPlace.START
        is_hint = (
            rule in ("float-libm", "pickle")
            or self._place is CallbackPlace.QUERY
            or (is_starting and rule in _FREE_TO_START and not self._in_self_assignment)
            or (is_starting and rule in _GIVEN_TO_A_NODE)
        )
        self._find(node, rule, name, Severity.HINT if is_hint else Severity.ERROR)

    # --- names and state

    def _field_of(self, node: ast.expr) -> str | None:
        """Return the field of the service that an expression is part of; None if it is none of the state."""
        if isinstance(node, ast.Name):
            return self._fields.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._field_of(node.value)
            return node.attr if base == SERVICE else base
        if isinstance(node, ast.Subscript):
            return self._field_of(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ALIAS_METHODS:
            return self._field_of(node.func.value) or None
        return None

    def _write(self, target: ast.expr, node: ast.AST, what: str) -> None:
        """Something that is part of the state, or of a module, is changed."""
        field_name = self._field_of(target)
        if field_name:
            self.walked.written.setdefault(field_name, node)
            if self._place is CallbackPlace.QUERY:
                self._find(node, "query-writes", what)
        elif self._place is not CallbackPlace.OUTSIDE and self._place is not CallbackPlace.START:
            self._write_elsewhere(target, node, what)

    def _write_elsewhere(self, target: ast.expr, node: ast.AST, what: str) -> None:
        while isinstance(target, ast.Subscript):
            target = target.value
        full_name = dotted(target, self._names) if isinstance(target, ast.Name | ast.Attribute) else None
        if full_name is None:
            return
        if isinstance(self._project.find(full_name), tuple):
            self._find(node, "module-state", what)
        elif isinstance(target, ast.Attribute) and isinstance(
            self._project.find(dotted(target.value, self._names) or ""), ClassSource
        ):
            self._find(node, "class-state", what)

    def _bind(self, target: ast.expr, kind: ValueKind, field_name: str | None, value: ast.expr | None) -> None:
        """A name, or what a tuple of names, stands for from now on."""
        if isinstance(target, ast.Starred):
            target = target.value
        if isinstance(target, ast.Tuple | ast.List):
            parts = kind.parts if len(kind.parts) == len(target.elts) else (kind.element,) * len(target.elts)
            given = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for index, (each, part) in enumerate(zip(target.elts, parts, strict=True)):
                one = None if given is None else given[index]
                self._bind(each, part if one is None else self._kind(one), field_name, one)
            return
        if not isinstance(target, ast.Name):
            return
        stands_for = dotted(value, self._names) if isinstance(value, ast.Name | ast.Attribute) else None
        self._environment[target.id] = kind
        self._names.pop(target.id, None)
        if stands_for is not None:
            self._names[target.id] = stands_for
            self._environment.pop(target.id)
        self._fields.pop(target.id, None)
        if field_name is not None:
            self._fields[target.id] = field_name

    def _kind(self, node: ast.expr) -> ValueKind:
        if isinstance(node, ast.Name) and node.id not in self._environment:
            full_name = self._names.get(node.id)
            if full_name != self._module.names.get(node.id):
                return UNKNOWN
        return self._kinds.of(node, self._environment)

    # --- statements

    def visit_Global(self, node: ast.Global) -> None:
        """Names of the module that the function assigns."""
        self._globals |= {*node.names}

    def visit_Assign(self, node: ast.Assign) -> None:
        """Targets stand for the value from now on."""
        self._assign(node, node.targets, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As an assignment, with a kind that is said."""
        if node.value is not None:
            self._assign(node, [node.target], node.value)
        if isinstance(node.target, ast.Name):
            kind = self._kinds.of_annotation(node.annotation)
            if kind is not UNKNOWN:
                self._environment[node.target.id] = kind

    def _assign(self, node: ast.stmt, targets: Sequence[ast.expr], value: ast.expr) -> None:
        self._in_self_assignment = any(self._field_of(target) for target in targets)
        self.visit(value)
        self._in_self_assignment = False
        kind, field_name = self._kind(value), self._field_of(value)
        for target in targets:
            for each in _flat(target):
                self._assign_one(node, each, value, kind)
            self._bind(target, kind, field_name, value)

    def _assign_one(self, node: ast.stmt, target: ast.expr, value: ast.expr, kind: ValueKind) -> None:
        if isinstance(target, ast.Name):
            if target.id in self._globals and self._place is CallbackPlace.LOG:
                self._find(node, "module-state", f"global {target.id}")
            return
        self._write(target, node, f"{_text(target)} = ...")
        if isinstance(target, ast.Subscript):
            self.visit(target.slice)
            self._check_kept(node, target.value, self._kind(target.slice), target.slice)
        if isinstance(target, ast.Attribute | ast.Subscript):
            self._visit_base(target.value)
            self._check_kept(node, target, kind, value)

    def _check_kept(self, node: ast.AST, where: ast.expr, kind: ValueKind, value: ast.expr) -> None:
        """Something is put into the state: not a view of the log, and nothing that a snapshot cannot hold."""
        if not self._field_of(where):
            return
        if kind is VIEW or any(self._kind(each) is VIEW for each in _parts(value)):
            self._find(node, "kept-payload", f"{_text(where)} keeps {_text(value)}")
        elif kind.name == ITERATOR.name:
            self._find(node, "kept-iterator", f"{_text(where)} = {_text(value)}")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """A change in place."""
        self.visit(node.value)
        target = node.target
        if isinstance(node.op, ast.Pow):
            self._check_power(node, target, node.value)
        if isinstance(target, ast.Name):
            if target.id in self._globals and self._place is CallbackPlace.LOG:
                self._find(node, "module-state", f"global {target.id}")
            elif self._fields.get(target.id) and self._kind(target).name in ("set", "list", "dict"):
                self._write(target, node, f"{target.id} is changed in place")
            return
        self._visit_base(target.value)
        self._write(target, node, f"{_text(target)} is changed")

    def _visit_base(self, node: ast.expr) -> None:
        """What something is assigned to a part of: `self` alone is not handed on by it."""
        if not isinstance(node, ast.Name):
            self.visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        """A part of something goes."""
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self._write(target, node, f"del {_text(target)}")
                for part in ast.iter_child_nodes(target):
                    if isinstance(part, ast.expr):
                        self._visit_base(part)

    def visit_For(self, node: ast.For) -> None:
        """An iteration."""
        self._iterate(node.iter)
        self._bind(node.target, self._kind(node.iter).element, self._field_of(node.iter), None)
        for statement in [*node.body, *node.orelse]:
            self.visit(statement)

    def visit_With(self, node: ast.With) -> None:
        """What a context gives."""
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, UNKNOWN, None, None)
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        """A branch; one that depends on the member must leave the state as it is."""
        if self._asks_member(node.test) and self._place is CallbackPlace.LOG:
            for each in (inner for statement in [*node.body, *node.orelse] for inner in ast.walk(statement)):
                what = self._state_change(each)
                if what is not None:
                    self._find(each, "role-state", f"{what} if {_text(node.test)}")
        self.generic_visit(node)

    def _asks_member(self, test: ast.expr) -> bool:
        return any(
            isinstance(each, ast.Attribute) and each.attr in _MEMBER_FACTS and self._kind(each.value) is CLUSTER
            for each in ast.walk(test)
        )

    def _state_change(self, node: ast.AST) -> str | None:
        """Say what of the state a statement or call changes by itself; None if nothing."""
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return next((f"{_text(each)} = ..." for each in targets if self._field_of(each)), None)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in MUTATORS and self._field_of(node.func.value):
                return f"{_text(node.func)}()"
            if node.func.attr in _CLUSTER_CHANGES and self._kind(node.func.value) is CLUSTER:
                return f"{_text(node.func)}()"
        return None

    def visit_Try(self, node: ast.Try) -> None:
        """Exceptions that are caught."""
        is_passed_on = False
        for handler in node.handlers:
            has_raise = any(isinstance(each, ast.Raise) for each in ast.walk(handler))
            caught = [_name_of(each) for each in _caught(handler)]
            if has_raise and {"MemoryError", "OSError"} <= {*caught}:
                is_passed_on = True
            broad = [name for name in caught if name in _BROAD] if handler.type is not None else ["everything"]
            if broad and not has_raise and not is_passed_on and self._place in (CallbackPlace.LOG, CallbackPlace.QUERY):
                severity = Severity.ERROR if self._place is CallbackPlace.LOG else Severity.HINT
                self._find(handler, "broad-except", f"except {broad[0]}", severity)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """A function within: it is looked at where it stands, as if it were called there."""
        self._visit_nested(node.args, node.body)
        self._names.pop(node.name, None)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """As any function within."""
        self._visit_nested(node.args, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """As a function within."""
        self._visit_nested(node.args, [node.body])

    def _visit_nested(self, arguments: ast.arguments, body: Sequence[ast.AST]) -> None:
        kept = dict(self._environment), dict(self._fields), dict(self._names)
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            self._bind(ast.Name(argument.arg), self._kinds.of_annotation(argument.annotation), None, None)
        for each in body:
            self.visit(each)
        self._environment, self._fields, self._names = kept

    # --- expressions

    def visit_Name(self, node: ast.Name) -> None:
        """A name that is looked at: a function of the user, a value of a module, `id`."""
        if not isinstance(node.ctx, ast.Load):
            return
        if self._fields.get(node.id) == SERVICE:
            self.walked.read.add(SERVICE)
        full_name = self._names.get(node.id)
        if full_name is not None:
            self._refer(full_name, node)
        elif node.id not in self._environment and node.id in ("id", "open"):
            self._find_call(node, rule_of_name(node.id) or "object-identity", node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """`a.b`: a name of a module, a method, a field of the service."""
        full_name = dotted(node, self._names)
        if full_name is not None:
            self._refer(full_name, node)
            return
        kind = self._kind(node.value)
        is_service = isinstance(node.value, ast.Name) and self._fields.get(node.value.id) == SERVICE
        method = None if kind.source is None else self._project.find_method(kind.source, node.attr)
        if method is not None:
            self.walked.calls.append(self._call_of(method, node.value, None))
        elif is_service:
            self.walked.read.add(SERVICE if node.attr == "__dict__" else node.attr)
        if not is_service:
            self.visit(node.value)

    def _refer(self, full_name: str, node: ast.expr) -> None:
        rule = rule_of_name(full_name)
        if rule is not None:
            self._find_call(node, rule, full_name)
            return
        found = self._project.find(full_name)
        if isinstance(found, FunctionSource):
            self.walked.calls.append(Call(found))
        elif isinstance(found, tuple):
            self.walked.values[found[0].name, found[1]] = node

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """`a[b]`: in a query, one that makes the entry that it looks for."""
        kind = self._kind(node.value)
        if self._place is CallbackPlace.QUERY and kind.name == DEFAULT_DICT and self._field_of(node.value):
            self._find(node, "query-writes", f"{_text(node)} makes the entry where it is missing (a defaultdict)")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """`a ** b` of floats."""
        if isinstance(node.op, ast.Pow):
            self._check_power(node, node.left, node.right)
        self.generic_visit(node)

    def _check_power(self, node: ast.AST, left: ast.expr, right: ast.expr) -> None:
        if FLOAT in (self._kind(left), self._kind(right)) and self._place is not CallbackPlace.OUTSIDE:
            self._find(node, "float-libm", "** of a float", Severity.HINT)

    def visit_Starred(self, node: ast.Starred) -> None:
        """`*a`: an iteration."""
        self._iterate(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text with values in it."""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self._check_repr(part.value)
        self.generic_visit(node)

    def _check_repr(self, node: ast.expr) -> None:
        source = self._kind(node).source
        if source is None or self._place in (CallbackPlace.OUTSIDE, CallbackPlace.START):
            return
        for each in self._project.bases(source):
            is_plain = all(dotted(base, each.module.names) is not None or _is_object(base) for base in each.node.bases)
            has_text = any(name in each.methods for name in ("__repr__", "__str__", "__format__"))
            if has_text or each.node.decorator_list or not is_plain or _has_foreign_base(self._project, each):
                return
        self._find(node, "default-repr", f"the text of {_text(node)}, a {source.node.name}")

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """A list of an iteration."""
        self._comprehend(node.generators, [node.elt], is_ordered=True)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        """A set of an iteration: its order is lost."""
        self._comprehend(node.generators, [node.elt], is_ordered=False)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        """A dict keeps the order of the iteration."""
        self._comprehend(node.generators, [node.key, node.value], is_ordered=True)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """An iteration by whatever consumes the generator."""
        self._comprehend(node.generators, [node.elt], is_ordered=node not in self._unordered)

    def _comprehend(
        self, generators: Sequence[ast.comprehension], results: Sequence[ast.expr], *, is_ordered: bool
    ) -> None:
        kept = dict(self._environment), dict(self._fields), dict(self._names)
        for generator in generators:
            if is_ordered:
                self._iterate(generator.iter)
            else:
                self.visit(generator.iter)
            self._bind(generator.target, self._kind(generator.iter).element, self._field_of(generator.iter), None)
            for condition in generator.ifs:
                self.visit(condition)
        for result in results:
            self.visit(result)
        self._environment, self._fields, self._names = kept

    def _iterate(self, node: ast.expr) -> None:
        """The elements of something are taken in its order."""
        self._check_order(node, node, f"iteration over {_text(node)}")
        self.visit(node)

    def _check_order(self, node: ast.AST, iterated: ast.expr, what: str) -> None:
        kind = self._kind(iterated)
        if kind.name != "set" or self._place is CallbackPlace.OUTSIDE:
            return
        is_number = kind.element.name in ("int", "bool")
        is_hint = is_number or self._place is CallbackPlace.QUERY
        self._find(node, "set-order", what, Severity.HINT if is_hint else Severity.ERROR)

    # --- calls

    def visit_Call(self, node: ast.Call) -> None:
        """A call of the standard library, of a builtin, of the user's code, or of a method."""
        called = node.func
        full_name = dotted(called, self._names) if isinstance(called, ast.Name | ast.Attribute) else None
        if full_name is not None:
            self._visit_named_call(node, full_name)
        elif isinstance(called, ast.Name):
            self._visit_builtin(node, called.id)
        elif isinstance(called, ast.Attribute):
            self._visit_method(node, called)
        else:
            self.visit(called)
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.visit(argument)

    def _visit_named_call(self, node: ast.Call, full_name: str) -> None:
        argument_count = len(node.args) + len(node.keywords)
        rule = rule_of_call(full_name, argument_count)
        if rule is not None:
            self._find_call(node, rule, f"{full_name}()")
            return
        found = self._project.find(full_name)
        if isinstance(found, ClassSource):
            for name in ("__init__", "__post_init__", "__new__"):
                method = self._project.find_method(found, name)
                if method is not None:
                    self.walked.calls.append(self._call_of(method, None, node))
        elif isinstance(found, FunctionSource):
            self.walked.calls.append(self._call_of(found, None, node))
        elif isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            self._write_elsewhere(node.func.value, node, f"{_text(node.func)}()")
            if isinstance(found, tuple):
                self.walked.values[found[0].name, found[1]] = node

    def _visit_builtin(self, node: ast.Call, name: str) -> None:
        if name in self._environment:
            return
        first = node.args[0] if node.args else None
        rule = rule_of_call(name, len(node.args))
        if rule is not None:
            self._find_call(node, rule, f"{name}()")
        if name in _UNORDERED_CONSUMERS and isinstance(first, ast.GeneratorExp | ast.Call):
            self._unordered.add(first)
        if first is None:
            return
        if name == "hash" and self._kind(first).name not in ("int", "bool", "float"):
            self._find_call(node, "hash", f"hash({_text(first)})")
        elif name in ("str", "repr", "format") and len(node.args) == 1:
            self._check_repr(first)
        elif name == "next":
            self._check_next(node, first)
        if name in _ORDERED_CONSUMERS and (name != "sum" or self._kind(first).element is FLOAT):
            for argument in node.args:
                if node not in self._unordered:
                    self._check_order(node, argument, f"{name}({_text(argument)})")
        elif name in ("sorted", "min", "max") and any(keyword.arg == "key" for keyword in node.keywords):
            self._check_ties(node, first, name)

    def _check_ties(self, node: ast.Call, first: ast.expr, name: str) -> None:
        if self._kind(first).name == "set" and self._place is CallbackPlace.LOG:
            self._find(node, "set-order", f"{name}() by a key leaves ties in the order of the set", Severity.HINT)

    def _check_next(self, node: ast.Call, first: ast.expr) -> None:
        full_name = dotted(first, self._names) if isinstance(first, ast.Name | ast.Attribute) else None
        found = None if full_name is None else self._project.find(full_name)
        if isinstance(found, tuple) and self._place is CallbackPlace.LOG:
            self._find(node, "module-state", f"next({_text(first)})")

    def _visit_method(self, node: ast.Call, called: ast.Attribute) -> None:
        receiver, kind = called.value, self._kind(called.value)
        if isinstance(receiver, ast.Call) and _name_of(receiver.func) == "super" and self._function.owner is not None:
            self._visit_super(node, called.attr)
            return
        if called.attr in MUTATORS and kind.source is None:
            self._write(receiver, node, f"{_text(called)}()")
        if called.attr in _KEEPERS:
            for argument in node.args:
                self._check_kept(node, receiver, self._kind(argument), argument)
        if called.attr == "pop" and not node.args:
            self._check_order(node, receiver, f"{_text(called)}()")
        if called.attr in ("join", "extend", "fromkeys") and node.args:
            self._check_order(node, node.args[0], f"{_text(called)}({_text(node.args[0])})")
        if called.attr in PATH_METHODS and kind is PATH:
            self._find_call(node, "file", f"{_text(called)}()")
        if kind is CLUSTER and called.attr in _CLUSTER_CHANGES and self._place is CallbackPlace.QUERY:
            self._find(node, "query-writes", f"{_text(called)}()")
        method = None if kind.source is None else self._project.find_method(kind.source, called.attr)
        if method is None:
            self.visit(called)
            return
        self.walked.calls.append(self._call_of(method, receiver, node))
        if not isinstance(receiver, ast.Name):
            self.visit(receiver)

    def _visit_super(self, node: ast.Call, name: str) -> None:
        assert self._function.owner is not None
        for each in [*self._project.bases(self._function.owner)][1:]:
            if name in each.methods:
                self.walked.calls.append(self._call_of(each.methods[name], ast.Name("self", ast.Load()), node))
                return

    def _call_of(self, function: FunctionSource, receiver: ast.expr | None, node: ast.Call | None) -> Call:
        """Note what a function of the user is given."""
        call, parameters = Call(function), [arg.arg for arg in function.parameters]
        if function.owner is not None and not function.is_static and parameters:
            own = parameters.pop(0)
            field_name = None if receiver is None else self._field_of(receiver)
            if field_name is not None:
                call.fields[own] = field_name
            if receiver is not None:
                call.kinds[own] = self._kind(receiver)
        if node is None:
            return call
        given = [*zip(parameters, node.args, strict=False)]
        given += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg is not None]
        for name, argument in given:
            kind, field_name = self._kind(argument), self._field_of(argument)
            if kind is not UNKNOWN:
                call.kinds[name] = kind
            if field_name is not None:
                call.fields[name] = field_name
        return call


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _flat(each)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def _parts(node: ast.expr) -> Sequence[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else ()


def _caught(handler: ast.ExceptHandler) -> Sequence[ast.expr]:
    if handler.type is None:
        return ()
    return handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_object(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "object"


def _has_foreign_base(project: Project, source: ClassSource) -> bool:
    """Whether a class derives from one that may have a text of its own; a service of Trimaran has none."""
    for base in source.node.bases:
        full_name = dotted(base, source.module.names) or ""
        if full_name.startswith("trimaran.") or _is_object(base):
            continue
        if not isinstance(project.find(full_name), ClassSource):
            return True
    return False


def _text(node: ast.AST, limit: int = 60) -> str:
    text = ast.unparse(node)
    return text if len(text) <= limit else f"{text[:limit]}..."
