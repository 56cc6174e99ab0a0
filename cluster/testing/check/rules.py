"""The rules: each is one function in a table, which looks at what was seen. `service.strict.rules` has their texts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ....service_api.service import PLAIN_CALLBACKS
from ...service.strict.known_calls import rule_of_call, rule_of_name
from ...service.strict.rules import Finding, Severity
from .modules import ClassSource, ModuleSource, Project, dotted, is_mutable
from .seen import ASSIGNED, Act, CallbackPlace, Seen, source_text
from .values import Owner

ERROR: Final = Severity.ERROR
HINT: Final = Severity.HINT

SNAPSHOT_CALLBACKS: Final = ("on_take_snapshot", "snapshot_messages")

_ON_LOG: Final = (CallbackPlace.LOG, CallbackPlace.SNAPSHOT)
_REPLICATED: Final = (*_ON_LOG, CallbackPlace.QUERY)
_JUDGED: Final = (*_REPLICATED, CallbackPlace.START, CallbackPlace.IMPORT)

_FREE_TO_START: Final = frozenset({"file", "environment", "network", "process", "thread", "event-loop", "wall-clock"})
_GIVEN_TO_A_NODE: Final = frozenset({"file", "environment", "network"})
_DRAWN_AT_IMPORT: Final = frozenset({"wall-clock", "random", "environment"})
_BROAD: Final = frozenset(
    {"Exception", "BaseException", "MemoryError", "OSError", "IOError", "EnvironmentError", "everything"}
)
_NUMBERS: Final = frozenset({"int", "bool"})
_SHARED_STATE: Final = {
    Owner.MODULE: "module-state",
    Owner.CLASS: "class-state",
    Owner.DEFAULT: "mutable-default",
}

Hit = tuple[str, Severity, str]
"""The rule, how sure it is, and what stands there."""


# --- rules for one thing that is done


def _leaves_log(seen: Seen) -> Iterator[Hit]:
    """A library gives each member something else: `time.time()`, `os.environ`."""
    rule = rule_of_name(seen.name)
    if seen.act is Act.CALL:
        rule = rule_of_call(seen.name, _argument_count(seen.node))
    if rule is None or (rule == "event-loop" and seen.where.place is CallbackPlace.SNAPSHOT):
        return
    if seen.where.place is CallbackPlace.IMPORT and rule not in _DRAWN_AT_IMPORT:
        return
    is_free = rule in _FREE_TO_START and not seen.is_kept
    if rule in ("float-libm", "pickle") or (
        seen.where.place is CallbackPlace.START and (is_free or rule in _GIVEN_TO_A_NODE)
    ):
        yield rule, HINT, seen.what
    else:
        yield rule, _severity(seen), seen.what


def _set_order(seen: Seen) -> Iterator[Hit]:
    """The elements of a set are taken in order: `for name in self.names`."""
    yield "set-order", HINT if seen.value.element.kind in _NUMBERS else _severity(seen), seen.what


def _ties(seen: Seen) -> Iterator[Hit]:
    """Elements with one key stay in the order of the set: `sorted(self.names, key=len)`."""
    if seen.name in ("sorted", "min", "max") and _first_is_set(seen) and "key" in _keywords(seen.node):
        yield "set-order", HINT, f"{seen.name}() by a key leaves ties in the order of the set"


def _sum_order(seen: Seen) -> Iterator[Hit]:
    """Floats are added in the order of a set: `sum(self.rates)`."""
    if seen.name == "sum" and _first_is_set(seen):
        kind = seen.arguments[0].element.kind
        if kind in ("float", "?"):
            yield "sum-order", ERROR if kind == "float" else HINT, source_text(seen.node)


def _hash(seen: Seen) -> Iterator[Hit]:
    """`hash()` of something else than a number."""
    if seen.name == "hash" and seen.arguments and seen.arguments[0].kind not in _NUMBERS | {"float"}:
        yield "hash", _severity(seen), source_text(seen.node)


def _float_power(seen: Seen) -> Iterator[Hit]:
    """`rate ** 2`: the C library computes it."""
    yield "float-libm", HINT, seen.what


def _kept(seen: Seen) -> Iterator[Hit]:
    """A field keeps what does not last: `self.last = payload`, `self.numbers = itertools.count()`."""
    where, source = map(source_text, seen.subjects)
    if seen.value.has_view:
        yield "kept-payload", ERROR, f"{where} keeps {source}"
    elif seen.value.kind in ("iterator", "set iterator"):
        yield "kept-iterator", ERROR, f"{where} = {source}"


def _shared_state(seen: Seen) -> Iterator[Hit]:
    """State of a module, class or function is changed: `CACHE[key] = value`, `Service.count += 1`, `seen=[]`."""
    assert seen.home is not None
    rule = _SHARED_STATE.get(seen.home.owner)
    if rule is not None:
        default = f", the default of the parameter {seen.home.name}" if seen.home.owner is Owner.DEFAULT else ""
        yield rule, ERROR, seen.what + default


def _query_writes(seen: Seen) -> Iterator[Hit]:
    """A query changes the state: `self.reads += 1`."""
    assert seen.home is not None
    if seen.home.owner in (Owner.SERVICE, Owner.CLUSTER):
        yield "query-writes", ERROR, seen.what


def _role_state(seen: Seen) -> Iterator[Hit]:
    """The state changes only on some members: `if self.cluster.role is Role.LEADER: self.sent += 1`."""
    assert seen.home is not None
    if seen.condition is not None and seen.home.owner in (Owner.SERVICE, Owner.CLUSTER):
        yield "role-state", ERROR, f"{seen.what} if {source_text(seen.condition)}"


def _broad_except(seen: Seen) -> Iterator[Hit]:
    """A member alone goes on after an error that only it met: `except Exception: pass`."""
    *earlier, handler = seen.subjects
    if _raises(handler) or any(_raises(each) and {"MemoryError", "OSError"} <= {*_caught(each)} for each in earlier):
        return
    broad = [name for name in _caught(handler) if name in _BROAD]
    if broad:
        yield "broad-except", _severity(seen), f"except {broad[0]}"


def _coroutine_callback(seen: Seen) -> Iterator[Hit]:
    """A callback suspends: `async def on_request(...)`."""
    if len(seen.where.way) == 1 and seen.where.way[0] in PLAIN_CALLBACKS:
        yield "coroutine-callback", ERROR, seen.what


LINE_RULES: Final[Mapping[Act, Sequence[tuple[Callable[[Seen], Iterator[Hit]], Sequence[CallbackPlace]]]]] = {
    Act.CALL: [(_leaves_log, _JUDGED), (_hash, _JUDGED), (_sum_order, _JUDGED), (_ties, _ON_LOG)],
    Act.NAME: [(_leaves_log, _JUDGED)],
    Act.TAKE: [(_set_order, _JUDGED)],
    Act.CHANGE: [(_shared_state, _REPLICATED), (_query_writes, [CallbackPlace.QUERY]), (_role_state, _ON_LOG)],
    Act.KEEP: [(_kept, tuple(CallbackPlace))],
    Act.POWER: [(_float_power, _JUDGED)],
    Act.CATCH: [(_broad_except, _REPLICATED)],
    Act.SUSPEND: [(_coroutine_callback, tuple(CallbackPlace))],
}
"""By what is done: the rules that look at it, and from where the function has to be reached."""


# --- rules for a service as a whole


def _class_state(project: Project, service: ClassSource, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Callbacks change a list of the class body, and no object has its own: `items = []`."""
    changed = {*_changes(seen, CallbackPlace.LOG)}
    own = {name for name, each in _changes(seen, CallbackPlace.START).items() if each.form == ASSIGNED}
    for each in project.bases(service):
        for name, value in each.class_values.items():
            if name in changed - own and is_mutable(value):
                what = f"{name} = {source_text(value)} in the class body, changed by callbacks"
                yield _finding_at(each.module, value, ("class-state", ERROR, what))


def _mutable_default(project: Project, service: ClassSource, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Services share the first value of a declared field: `names: list[str] = state(default=[])`."""
    for each in project.bases(service):
        for name, value in each.class_values.items():
            default = _keywords(value).get("default") if _is_declaration(each.module, value) else None
            if default is not None and is_mutable(default):
                yield _finding_at(each.module, value, ("mutable-default", ERROR, f"{name} = {source_text(value)}"))


def _undeclared_state(project: Project, service: ClassSource, seen: Sequence[Seen]) -> Iterator[Finding]:
    """A handler of a typed service changes an attribute that the class does not declare: `self.cache[key] = 1`."""
    bases = [*project.bases(service)]
    if not project.is_service(service, "TypedService") or any(project.has_unknown_base(each) for each in bases):
        return
    if any(name in each.methods for each in bases for name in SNAPSHOT_CALLBACKS):
        return  # the author writes more than what is declared
    declared = {
        name for each in bases for name, value in each.class_values.items() if _is_declaration(each.module, value)
    }
    for name, first in _changes(seen, CallbackPlace.LOG).items():
        if name not in declared:
            yield _finding(first, ("undeclared-state", ERROR, first.what))


def _role_changes_state(project: Project, service: ClassSource, seen: Sequence[Seen]) -> Iterator[Finding]:
    """`on_role_change` changes a field of the state."""
    in_snapshot = {each.home for each in seen if each.act is Act.READ and each.where.place is CallbackPlace.SNAPSHOT}
    changed = _changes(seen, CallbackPlace.LOG)
    for name, first in _changes(seen, CallbackPlace.OUTSIDE).items():
        if name in changed or first.home in in_snapshot:
            what = f"self.{name} is changed by {first.where.way[0]}, outside of the log's order"
            yield _finding(first, ("role-state", ERROR, what))


SERVICE_RULES: Final[Sequence[Callable[[Project, ClassSource, Sequence[Seen]], Iterator[Finding]]]] = (
    _class_state,
    _mutable_default,
    _undeclared_state,
    _role_changes_state,
)


def judge(project: Project, service: ClassSource, seen: Sequence[Seen]) -> Iterator[Finding]:
    """Yield what the rules find in what a service does."""
    for each in seen:
        for rule, places in LINE_RULES.get(each.act, ()):
            if each.where.place in places:
                yield from (_finding(each, hit) for hit in rule(each))
    for service_rule in SERVICE_RULES:
        yield from service_rule(project, service, seen)


def _finding(seen: Seen, hit: Hit) -> Finding:
    """Make a finding at what was seen."""
    return _finding_at(seen.where.module, seen.node, hit, seen.where.way)


def _finding_at(module: ModuleSource, node: ast.AST, hit: Hit, way: tuple[str, ...] = ()) -> Finding:
    """Make a finding at a place in the source."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    source = module.lines[line - 1].strip() if line <= len(module.lines) else ""
    return Finding(module.path, line, column + 1, *hit, source, way)


# --- what rules ask


def _changes(seen: Sequence[Seen], place: CallbackPlace) -> dict[str, Seen]:
    """Return the first change of each field of the service."""
    changes: dict[str, Seen] = {}
    for each in seen:
        if each.act is Act.CHANGE and each.where.place is place and each.home and each.home.owner is Owner.SERVICE:
            changes.setdefault(each.home.name, each)
    return changes


def _severity(seen: Seen) -> Severity:
    """Return how sure a finding is that does not matter where no state comes of it."""
    return HINT if seen.where.place is CallbackPlace.QUERY else ERROR


def _first_is_set(seen: Seen) -> bool:
    return bool(seen.arguments) and seen.arguments[0].is_unordered


def _argument_count(node: ast.AST) -> int:
    return len(node.args) + len(node.keywords) if isinstance(node, ast.Call) else 0


def _keywords(node: ast.AST) -> dict[str | None, ast.expr]:
    return {each.arg: each.value for each in node.keywords} if isinstance(node, ast.Call) else {}


def _is_declaration(module: ModuleSource, node: ast.expr) -> bool:
    full_name = (dotted(node.func, module.names) or "") if isinstance(node, ast.Call) else ""
    return full_name.startswith("trimaran.") and full_name.endswith((".state", ".derived"))


def _raises(handler: ast.AST) -> bool:
    return any(isinstance(each, ast.Raise) for each in ast.walk(handler))


def _caught(handler: ast.AST) -> Sequence[str]:
    assert isinstance(handler, ast.ExceptHandler)
    if handler.type is None:
        return ("everything",)
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(each).rpartition(".")[2] for each in types]
