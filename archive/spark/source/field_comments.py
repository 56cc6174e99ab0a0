"""The meaning of each message field, as comments for the columns of a table."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from ....service_api.wire.fields import BlockField, GroupField, MessageLayout, VarField
from ....service_api.wire.message import Message


def field_comments(message: type[Message]) -> dict[str, str]:
    """Say for each field which of the schema's it is, what it means, and when it is NULL."""
    told = dict(_docstrings(message))
    name, layout = message.WIRE_NAME, message.LAYOUT
    comments = {}
    for field in _fields(layout):
        parts = [f"{name}.{field.wire_name}", told.get(field.name, "")]
        if isinstance(field, BlockField):
            parts.append(_kind_of(field))
        since = 0 if isinstance(field, GroupField) else field.since
        parts.append(f"NULL in messages older than version {since} of the schema." if since else "")
        comments[field.name] = ": ".join([parts[0], " ".join(filter(None, parts[1:]))]) if any(parts[1:]) else parts[0]
    return comments


def _fields(layout: MessageLayout) -> Iterator[BlockField | GroupField | VarField]:
    yield from layout.block
    yield from layout.groups
    yield from layout.var_data


def _kind_of(field: BlockField) -> str:
    if field.is_time:
        return "A time of the cluster's clock, NULL where there is none."
    if field.values is None or isinstance(field.values[0][1], bool):
        return ""
    return f"One of {', '.join(meaning.name for _, meaning in field.values)}."


def _docstrings(message: type[Message]) -> Iterator[tuple[str, str]]:
    """Read the strings below the fields of a class; none where its source is not at hand."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(message)))
    except (OSError, TypeError, SyntaxError):
        return
    (definition,) = tree.body
    assert isinstance(definition, ast.ClassDef)
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield statement.target.id, " ".join(following.value.value.split())
