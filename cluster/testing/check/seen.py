"""Everything that the rules judge: what a service does with state, libraries and the order of values, and where."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from .modules import ModuleSource
from .values import UNKNOWN, Home, Value

ASSIGNED: Final = "{} = ..."
_TEXT_LIMIT: Final = 60


class CallbackPlace(Enum):
    """From where a function is reached."""

    LOG = auto()
    """A callback on the log path, or `state_hash`: all members must do the same."""
    SNAPSHOT = auto()
    """`on_take_snapshot`: as the log path, and it may wait."""
    START = auto()
    """`__init__` and `on_start`: it may read what a node is given, and keep none of it."""
    QUERY = auto()
    """`on_query`: it must change nothing."""
    OUTSIDE = auto()
    """`on_role_change` and `on_terminate`: free, but for the replicated state."""
    IMPORT = auto()
    """A value of a module that a callback on the log path reads: it was made when the module was imported."""
    QUIET = auto()
    """Only the value is of interest: no rule looks at what is done."""


class Act(Enum):
    """The kind of act."""

    CALL = auto()
    """A function of a library, or a builtin one, is called: `name` with `arguments`."""
    NAME = auto()
    """A name of a library is looked at: `name`."""
    TAKE = auto()
    """The elements of `value` are taken in their order."""
    READ = auto()
    """A field of the service is looked at: `home`."""
    CHANGE = auto()
    """State is changed: `home`."""
    KEEP = auto()
    """`value` is put into a field of the service."""
    POWER = auto()
    """A power of a float is computed."""
    CATCH = auto()
    """Exceptions are caught: the subjects are the handlers up to this one."""
    SUSPEND = auto()
    """A callback is a coroutine or a generator."""


@dataclass(slots=True, frozen=True)
class Where:
    """The function that does it."""

    place: CallbackPlace
    module: ModuleSource
    way: tuple[str, ...]
    """The callback, and the functions on the way from it."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One thing that a service does."""

    act: Act
    node: ast.AST
    where: Where
    form: str = "{}"
    """The text about it, with gaps for the source of `subjects`."""
    subjects: Sequence[ast.AST] = ()
    value: Value = UNKNOWN
    name: str = ""
    arguments: Sequence[Value] = ()
    home: Home | None = None
    condition: ast.expr | None = None
    """The test about this member, such as its role, on which it depends."""
    is_kept: bool = False
    """True if the result is assigned to a field of the service."""

    @property
    def what(self) -> str:
        """The text about it, such as `del self.names[key]`."""
        return self.form.format(*map(source_text, self.subjects or (self.node,)))


def source_text(node: ast.AST) -> str:
    """Return the source of an expression, cut where it is long."""
    text = ast.unparse(node)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}..."
