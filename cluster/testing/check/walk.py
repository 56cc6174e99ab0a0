"""Follows a callback through the user's functions, as an interpreter that knows types instead of values.

What a name is follows from the statements before it, branch after branch as they stand: enough to see that
`names = sorted(names)` has made a list of a set. A call is followed with what is known of its arguments, and its result
is what the function returns. The walk judges nothing: it notes what is done, and the rules look at that.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from .modules import ClassSource, Function, FunctionSource, ModuleSource, Project, mutable_defaults
from .seen import ASSIGNED, Act, CallbackPlace, Seen, Where
from .values import (
    CLUSTER,
    LAZY,
    NONE,
    OUTBOX,
    UNKNOWN,
    Home,
    Owner,
    Value,
    annotated,
    combine,
    result_of,
    result_of_method,
    result_of_operator,
)

_MUTATORS: Final = frozenset(
    {
        *("append", "appendleft", "add", "extend", "insert", "remove", "discard", "pop", "popleft", "popitem", "clear"),
        *("update", "setdefault", "sort", "reverse", "difference_update", "intersection_update", "move_to_end"),
        *("symmetric_difference_update", "subtract", "rotate", "extendleft", "__setitem__"),
    }
)
_KEEPERS: Final = frozenset({"append", "appendleft", "add", "extend", "insert", "setdefault", "update", "put"})
_CLUSTER_CHANGES: Final = frozenset({"offer", "schedule_timer", "cancel_timer", "close_client_session"})
_TAKING_METHODS: Final = frozenset({"join", "extend", "fromkeys"})
_ORDERLESS: Final = frozenset(
    {
        *("any", "all", "sorted", "set", "frozenset", "min", "max", "len", "sum"),
        *("math.fsum", "heapq.nsmallest", "heapq.nlargest", *LAZY),
    }
)
"""Functions that leave the order of their arguments alone, or have the same result in each."""
_MEMBER_FACTS: Final = frozenset({"role", "member_id", "is_replaying"})

_VISITED_AS: Final = {
    **dict.fromkeys(("SetComp", "DictComp", "GeneratorExp"), "ListComp"),
    **dict.fromkeys(("FunctionDef", "AsyncFunctionDef"), "Lambda"),
    "AsyncFor": "For",
    "TryStar": "Try",
    "YieldFrom": "Yield",
    "IfExp": "BoolOp",
}
"""Statements and expressions that are looked at as another one is."""
_COMPREHENSIONS: Final = {"ListComp": "list", "SetComp": "set", "DictComp": "dict", "GeneratorExp": "iterator"}

_WALK_LIMIT: Final = 20_000
"""Walks over functions for one service: beyond it, the rest is not looked at."""
_DEPTH_LIMIT: Final = 16
"""Calls within calls: a deeper one is followed later, and its result is what its annotation says."""
_WAY_LIMIT: Final = 9

SERVICE: Final = Home(Owner.SERVICE, "")
"""The service itself."""


class Tracer:
    """Follows the callbacks of one service, and keeps what was seen."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.seen: list[Seen] = []
        self._known: dict[object, Value] = {}
        """The results of calls, and the values of attributes and modules."""
        self._active: list[FunctionSource] = []
        self._waiting: deque[tuple[FunctionSource, Mapping[str, Value], Where]] = deque()
        self._walk_count = 0

    def __repr__(self) -> str:
        return f"<Tracer walks={self._walk_count} seen={len(self.seen)}>"

    def enter(self, callback: FunctionSource, arguments: Mapping[str, Value], place: CallbackPlace) -> None:
        """Follow a callback."""
        self.call(callback, arguments, Where(place, callback.module, (callback.node.name,)))
        while self._waiting:
            self.call(*self._waiting.popleft())

    def call(self, function: FunctionSource, arguments: Mapping[str, Value], where: Where) -> Value:
        """Return what a call returns; the first one with such arguments is followed."""
        key = function, where.place, frozenset(arguments.items())
        if key in self._known:
            return self._known[key]
        declared = annotated(self.project, function.module, function.node.returns)
        if self._walk_count >= _WALK_LIMIT or self._active.count(function) > 1:
            return declared
        if len(self._active) >= _DEPTH_LIMIT:
            self._waiting.append((function, arguments, where))
            return declared
        self._walk_count += 1
        self._known[key] = declared  # for one that calls itself
        self._active.append(function)
        returned = FunctionWalk(self, where, function, arguments).walk(function.node)
        self._active.pop()
        self._known[key] = returned if declared == UNKNOWN else replace(declared, home=returned.home)
        return self._known[key]

    def attribute(self, source: ClassSource, name: str) -> Value:
        """Return what an attribute of an object is: as annotated, or as first assigned in a method."""
        key = source, name
        if key not in self._known:
            self._known[key] = UNKNOWN  # for one that is computed of itself: self.total = self.total + 1
            found = (value for value in self._assigned(source, name) if value not in (UNKNOWN, NONE))
            other = CLUSTER if name.strip("_") == "cluster" else UNKNOWN
            self._known[key] = replace(next(found, other), home=None)
        return self._known[key]

    def _assigned(self, source: ClassSource, name: str) -> Iterator[Value]:
        for each in self.project.bases(source):
            if name in each.annotations:
                yield annotated(self.project, each.module, each.annotations[name])
            for method, value in each.assigned.get(name, ()):
                own = {} if method is None else {method.own_parameter: Value("object", source=source)}
                yield FunctionWalk(self, Where(CallbackPlace.QUIET, each.module, ()), method, own).visit(value)

    def module_value(self, module: ModuleSource, name: str, where: Where) -> Value:
        """Return what a value of a module is; what was done to make it is noted if the log path reads it."""
        place = (
            CallbackPlace.IMPORT
            if where.place in (CallbackPlace.LOG, CallbackPlace.SNAPSHOT, CallbackPlace.IMPORT)
            else CallbackPlace.QUIET
        )
        key = module, name, place
        if key not in self._known:
            self._known[key] = UNKNOWN
            made = FunctionWalk(self, Where(place, module, (*where.way, name)), None, {}).visit(module.values[name])
            self._known[key] = replace(made, home=Home(Owner.MODULE, name))
        return self._known[key]


class FunctionWalk(ast.NodeVisitor):
    """Walks over one function, or over an expression; `visit` returns the value of an expression."""

    def __init__(
        self, tracer: Tracer, where: Where, function: FunctionSource | None, arguments: Mapping[str, Value]
    ) -> None:
        self._tracer = tracer
        self._project = tracer.project
        self._where = where
        self._module = where.module
        self._function = function
        self._globals: Collection[str] = ()
        self._environment: dict[str, Value] = {}
        if function is not None:
            self._globals = function.global_names
            self._environment |= dict.fromkeys(function.local_names, UNKNOWN)
            self._bind_parameters(function.node.args)
        self._environment |= arguments
        self._returned: list[Value] = []
        self._yields: list[ast.AST] = []
        self._is_member_asked = False
        self._condition: ast.expr | None = None

    def walk(self, node: Function) -> Value:
        """Walk over the body of the function; returns what a call returns."""
        self._visit_all(node.body)
        if isinstance(node, ast.AsyncFunctionDef):
            self._see(Act.SUSPEND, node, form=f"async def {node.name}")
        elif self._yields:
            self._see(Act.SUSPEND, self._yields[0], form=f"yield in {node.name}")
        return Value("iterator") if self._yields else combine(self._returned)

    def visit(self, node: ast.AST) -> Value:
        """Walk over a statement or an expression."""
        name = type(node).__name__
        return getattr(self, f"visit_{_VISITED_AS.get(name, name)}", self.generic_visit)(node) or UNKNOWN

    def generic_visit(self, node: ast.AST) -> None:
        """Walk over the parts of what has no method of its own."""
        self._visit_all(ast.iter_child_nodes(node))

    def _visit_all(self, nodes: Iterable[ast.AST]) -> list[Value]:
        return [self.visit(node) for node in nodes]

    # --- what is noted

    def _see(self, act: Act, node: ast.AST, **facts: Any) -> None:  # Any: the fields of Seen
        if self._where.place is not CallbackPlace.QUIET:
            seen = Seen(act=act, node=node, where=self._where, condition=self._condition, **facts)
            self._tracer.seen.append(seen)

    def _take(self, node: ast.AST, value: Value, form: str = "{}") -> None:
        """Note that the elements of a value are taken in their order."""
        if value.is_unordered:
            self._see(Act.TAKE, node, value=value, form=form)

    def _change(self, home: Home | None, node: ast.AST, form: str, subject: ast.AST) -> None:
        """Note that what is part of the state is changed."""
        if home is not None and home != SERVICE:
            self._see(Act.CHANGE, node, home=home, form=form, subjects=(subject,))

    def _keep(self, home: Home | None, node: ast.AST, value: Value, where: ast.AST, source: ast.AST) -> None:
        """Note that a value is put into a field."""
        if home is not None and home.owner is Owner.SERVICE:
            self._see(Act.KEEP, node, value=value, subjects=(where, source))

    # --- names

    def _bind_parameters(self, arguments: ast.arguments) -> None:
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            self._environment[each.arg] = annotated(self._project, self._module, each.annotation)
        for name, default in mutable_defaults(arguments):
            value = self.visit(default) if self._environment[name] == UNKNOWN else self._environment[name]
            self._environment[name] = replace(value, home=Home(Owner.DEFAULT, name))

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Keep what names are, and what the function returns, through a function or comprehension within."""
        kept = self._environment, self._returned, self._yields
        self._environment, self._returned, self._yields = dict(self._environment), [], []
        yield
        self._environment, self._returned, self._yields = kept

    def _named(self, full_name: str) -> Value:
        """Return what a full name stands for."""
        found = self._project.find(full_name)
        if isinstance(found, tuple):
            return self._tracer.module_value(*found, self._where)
        parent, _, last = full_name.rpartition(".")
        if found is None and parent and isinstance(owner := self._project.find(parent), ClassSource):
            return replace(self._tracer.attribute(owner, last), home=Home(Owner.CLASS, last))
        return Value(name=full_name)

    def _lookup(self, name: str) -> Value:
        return self._environment.get(name) or self._named(self._module.names.get(name, name))

    def _base(self, node: ast.expr) -> Value:
        """Return what stands before a dot; a name there is not looked at as a whole."""
        return self._lookup(node.id) if isinstance(node, ast.Name) else self.visit(node)

    def _member(self, base: Value, node: ast.Attribute) -> Value:
        if base.name:
            return self._named(f"{base.name}.{node.attr}")
        known = UNKNOWN if base.source is None else self._tracer.attribute(base.source, node.attr)
        return replace(known, home=Home(Owner.SERVICE, node.attr) if base.home == SERVICE else base.home)

    def _look(self, node: ast.expr, value: Value) -> Value:
        """Note a name that is looked at; a function of the user may be called later."""
        if value.home is not None and value.home.owner is Owner.SERVICE:
            self._see(Act.READ, node, home=value.home)
        found = self._project.find(value.name) if value.name else None
        if isinstance(found, FunctionSource):
            self._follow(found, None, ())
        elif value.name:
            self._see(Act.NAME, node, name=value.name, form=value.name)
        return value

    def visit_Name(self, node: ast.Name) -> Value:
        """A local name, one of the module, or a builtin one."""
        return self._look(node, self._lookup(node.id)) if isinstance(node.ctx, ast.Load) else UNKNOWN

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        """`a.b`: a name of a module, a method, a field."""
        base, method = self._receiver(node)
        if method is not None:
            result = self._follow(method, base, ())
            return result if method.is_property else UNKNOWN  # a method that is handed on may be called later
        self._is_member_asked |= base.kind == CLUSTER.kind and node.attr in _MEMBER_FACTS
        return self._look(node, self._member(base, node))

    # --- statements

    def visit_Assign(self, node: ast.Assign) -> None:
        """Targets stand for the value from now on."""
        self._assign(node, node.targets, node.value, UNKNOWN)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """As an assignment, with a type that is said."""
        if node.value is not None:
            self._assign(node, [node.target], node.value, annotated(self._project, self._module, node.annotation))

    def _assign(self, node: ast.AST, targets: Sequence[ast.expr], source: ast.expr, declared: Value) -> None:
        first = len(self._tracer.seen)
        value = self.visit(source)
        if declared != UNKNOWN:
            value = replace(declared, home=value.home)
        homes = [self._store(node, target, value, source) for target in targets]
        if any(home is not None and home.owner is Owner.SERVICE for home in homes):
            for each in self._tracer.seen[first:]:
                each.is_kept |= each.where is self._where

    def _store(self, node: ast.AST, target: ast.expr, value: Value, source: ast.expr) -> Home | None:
        """Give a target its value; returns the part of the state that is assigned by that."""
        if isinstance(target, ast.Starred):
            return self._store(node, target.value, Value("list"), source)
        if isinstance(target, ast.Tuple | ast.List):
            self._take(source, value, "iteration over {}")
            parts = zip(target.elts, value.unpacked(len(target.elts)), strict=True)
            homes = [self._store(node, each, part, source) for each, part in parts]
            return next(filter(None, homes), None)
        if isinstance(target, ast.Name) and target.id not in self._globals:
            self._environment[target.id] = value
            return None
        home = self._target(target).home
        self._change(home, node, ASSIGNED, target)
        self._keep(home, node, value, target, source)
        if isinstance(target, ast.Subscript):
            self._keep(home, node, self.visit(target.slice), target.value, target.slice)
        return home

    def _target(self, target: ast.expr) -> Value:
        """Return what was there before."""
        if isinstance(target, ast.Attribute):
            return self._member(self._base(target.value), target)
        if isinstance(target, ast.Subscript):
            return self.visit(target.value).item(target.slice)
        return self._base(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """A change in place."""
        added, target = self.visit(node.value), node.target
        before = self._target(target)
        after = self._operate(node, node.op, before, added)
        if not isinstance(target, ast.Name) or target.id in self._globals:
            self._change(before.home, node, "{} is changed", target)
            self._keep(before.home, node, added, target, node.value)
        elif before.kind in ("set", "list", "dict"):
            self._change(before.home, node, "{} is changed in place", target)
        else:
            self._environment[target.id] = after

    def visit_Delete(self, node: ast.Delete) -> None:
        """A part of something goes."""
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self._change(self._target(target).home, node, "del {}", target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        """An iteration."""
        self._iterate(node)
        self._visit_all([*node.body, *node.orelse])

    def _iterate(self, node: ast.For | ast.AsyncFor | ast.comprehension, *, is_taken: bool = True) -> Value:
        value = self.visit(node.iter)
        if is_taken:
            self._take(node.iter, value, "iteration over {}")
        self._store(node.iter, node.target, value.element, node.iter)
        return value

    def visit_If(self, node: ast.If) -> None:
        """A branch; what depends on the member is noted with the test."""
        kept, self._is_member_asked = self._condition, False
        self.visit(node.test)
        self._condition = node.test if self._is_member_asked else kept
        self._visit_all([*node.body, *node.orelse])
        self._condition = kept

    def visit_Try(self, node: ast.Try) -> None:
        """Exceptions that are caught."""
        for index, handler in enumerate(node.handlers, 1):
            self._see(Act.CATCH, handler, subjects=node.handlers[:index])
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """The value of the call."""
        self._returned.append(NONE if node.value is None else self.visit(node.value))

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        """A generator."""
        self._yields.append(node)
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda | Function) -> None:
        """A function within: it is looked at where it stands, as if it were called there."""
        with self._scope():
            self._bind_parameters(node.args)
            self._visit_all([node.body] if isinstance(node, ast.Lambda) else node.body)

    # --- expressions

    def visit_Constant(self, node: ast.Constant) -> Value:
        """A number or a text."""
        return NONE if node.value is None else Value(type(node.value).__name__)

    def visit_Set(self, node: ast.Set) -> Value:
        """A set; one of whole numbers alone has the same order everywhere."""
        is_constant = all(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in node.elts)
        return Value("list" if is_constant else "set", (combine(self._visit_all(node.elts)),))

    def visit_List(self, node: ast.List) -> Value:
        """A list."""
        return Value("list", (combine(self._visit_all(node.elts)),))

    def visit_Tuple(self, node: ast.Tuple) -> Value:
        """A tuple."""
        return Value("tuple", tuple(self._visit_all(node.elts)))

    def visit_Dict(self, node: ast.Dict) -> Value:
        """A dict."""
        keys = self._visit_all(key for key in node.keys if key is not None)
        return Value("dict", (combine(keys), combine(self._visit_all(node.values))))

    def visit_Starred(self, node: ast.Starred) -> None:
        """`*a`: an iteration."""
        self._take(node.value, self.visit(node.value), "iteration over {}")

    def visit_Subscript(self, node: ast.Subscript) -> Value:
        """`a[b]`."""
        value = self.visit(node.value)
        self.visit(node.slice)
        return value.item(node.slice)

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        """`a + b` and the like."""
        return self._operate(node, node.op, self.visit(node.left), self.visit(node.right))

    def _operate(self, node: ast.AST, operator: ast.operator, left: Value, right: Value) -> Value:
        result = result_of_operator(operator, left, right)
        if isinstance(operator, ast.Pow) and result.kind == "float":
            self._see(Act.POWER, node, form="** of a float")
        return result

    def visit_BoolOp(self, node: ast.BoolOp | ast.IfExp) -> Value:
        """`a or b`, `a if b else c`: the first that is known."""
        values = self._visit_all(node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse))
        if isinstance(node, ast.IfExp):
            self.visit(node.test)
        return next((value for value in values if value.kind not in ("?", "None")), UNKNOWN)

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Value:
        """A comprehension; a generator has the order of what it iterates over, and leaves it to the consumer."""
        kind = _COMPREHENSIONS[type(node).__name__]
        results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        with self._scope():
            for generator in node.generators:
                value = self._iterate(generator, is_taken=kind in ("list", "dict"))
                if kind == "iterator" and value.is_unordered:
                    kind = "set iterator"
                self._visit_all(generator.ifs)
            return Value(kind, tuple(self._visit_all(results)))

    # --- calls

    def visit_Call(self, node: ast.Call) -> Value:
        """A call of a library, of a builtin function, of the user's code, or of a method."""
        called, method, receiver = node.func, None, UNKNOWN
        if isinstance(called, ast.Attribute):
            receiver, method = self._receiver(called)
            function = UNKNOWN if method is not None else self._member(receiver, called)
        else:
            function = self._base(called)
        positional = self._visit_all(node.args)
        named = {each.arg: self.visit(each.value) for each in node.keywords}
        if method is not None:
            return self._follow(method, receiver, positional, named)
        if function.name:
            return self._call_named(node, function.name, positional, named)
        return self._call_method(node, called, receiver, positional) if isinstance(called, ast.Attribute) else UNKNOWN

    def _receiver(self, called: ast.Attribute) -> tuple[Value, FunctionSource | None]:
        """Return the object whose method is called, and the method if it is the user's."""
        inner, function = called.value, self._function
        is_super = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super"
        if is_super and function is not None and function.owner is not None:
            bases = [*self._project.bases(function.owner)][1:]
            found = next((each.methods[called.attr] for each in bases if called.attr in each.methods), None)
            return self._environment.get(function.own_parameter, UNKNOWN), found
        receiver = self._base(inner)
        source = receiver.source
        return receiver, None if source is None else self._project.find_method(source, called.attr)

    def _call_named(
        self, node: ast.Call, name: str, positional: Sequence[Value], named: Mapping[str | None, Value]
    ) -> Value:
        found = self._project.find(name)
        if isinstance(found, FunctionSource):
            return self._follow(found, None, positional, named)
        if isinstance(found, ClassSource):
            made = Value("object", source=found)
            for maker in ("__new__", "__init__", "__post_init__"):
                method = self._project.find_method(found, maker)
                if method is not None:
                    self._follow(method, made, positional, named)
            return made
        self._see(Act.CALL, node, name=name, arguments=positional, form=f"{name}()")
        if name == "next" and positional:
            self._change(positional[0].home, node, "next({})", node.args[0])
        result = result_of(name, positional)
        for each in positional if name not in _ORDERLESS else ():
            if result.kind in ("list", "tuple", "dict", "iterator") or each.kind == "set iterator":
                self._take(node, each)
        return result

    def _call_method(
        self, node: ast.Call, called: ast.Attribute, receiver: Value, positional: Sequence[Value]
    ) -> Value:
        name = called.attr
        if name in _MUTATORS and receiver.source is None:
            self._change(receiver.home, node, "{}()", called)
        if name in _KEEPERS and receiver.kind != OUTBOX.kind:
            for value, source in zip(positional, node.args, strict=True):
                self._keep(receiver.home, node, value, called.value, source)
        if receiver.kind == CLUSTER.kind and name in _CLUSTER_CHANGES:
            self._change(Home(Owner.CLUSTER, name), node, "{}()", called)
        if receiver.kind == "path":
            self._see(Act.CALL, node, name=f"pathlib.Path.{name}", subjects=(called,), form="{}()")
        for each in positional or ([receiver] if name == "pop" else []):
            if name in ("pop", *_TAKING_METHODS) or (each.kind == "set iterator" and receiver.kind != "set"):
                self._take(node, each)
        return result_of_method(receiver, name, positional)

    def _follow(
        self,
        function: FunctionSource,
        receiver: Value | None,
        positional: Sequence[Value],
        named: Mapping[str | None, Value] = MappingProxyType({}),
    ) -> Value:
        parameters = [each.arg for each in function.parameters]
        if receiver is not None and not function.is_static:
            positional = [receiver, *positional]
        arguments: dict[str | None, Value] = {**dict(zip(parameters, positional, strict=False)), **named}
        replaced = {name for name, _ in mutable_defaults(function.node.args)}
        known = {
            name: arguments[name]
            for name in parameters
            if name in arguments and (arguments[name] != UNKNOWN or name in replaced)
        }
        way = (*self._where.way, function.name)[:_WAY_LIMIT]
        return self._tracer.call(function, known, Where(self._where.place, function.module, way))
