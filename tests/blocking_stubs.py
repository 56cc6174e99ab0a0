"""The stubs of blocking clients: what type checkers and editors see of the classes that `client/blocking` makes.

`python -m tests.blocking_stubs` writes them again, beside the modules that they are of.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self, Unpack, get_overloads, overload

from tests.places import ROOT
from trimaran.client.blocking.facade import TWINS, Blocking, _blocking_type
from trimaran.client.config import ConnectSettings

MODULES: Final = (
    "trimaran.client.sync_clients",
    "trimaran.client.typed.sync_typed_client",
    "trimaran.client.ready_made.sync_clients",
)
LINE_LENGTH: Final = 120
_SETTINGS: Final = "Unpack[ConnectSettings]"
"""How a stub names the keywords of every `connect`."""


def path_of(name: str) -> Path:
    """Return where the stub of a module lies."""
    return ROOT.joinpath(*name.split(".")[1:]).with_suffix(".pyi")


def stub_of(name: str) -> str:
    """Write the stub of a module."""
    module = import_module(name)
    writer = _Writer(module)
    classes = [
        writer.write_class(kind)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Blocking) and kind.__module__ == name
    ]
    doc = _docstring(f"{inspect.getdoc(module)}\n\nWritten by `python -m tests.blocking_stubs`.", "")
    return f"{doc}\n{writer.write_imports()}\n{''.join(classes).rstrip()}\n"


class _Writer:
    """Writes classes, and collects what they name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._homes: dict[str, set[str]] = {}
        """Names by the modules that define them."""

    def write_imports(self) -> str:
        """Write the imports of all names; those of the distribution are relative."""
        package = self._module.__name__.split(".")[:-1]
        others, ours = [], []
        for home, names in self._homes.items():
            parts = home.split(".")
            if parts[0] != package[0]:
                others.append(_import_line(home, names))
                continue
            shared = next(n for n, pair in enumerate(zip(parts, [*package, ""], strict=False)) if pair[0] != pair[1])
            level = len(package) - shared + 1
            ours.append((-level, _import_line(f"{'.' * level}{'.'.join(parts[shared:])}", names)))
        return "\n".join(["".join(sorted(others)), "".join(line for _, line in sorted(ours))]).lstrip()

    def write_class(self, kind: Any) -> str:
        """Write a class with what the facade made; the rest is in its bases."""
        (node,) = ast.parse(inspect.getsource(kind)).body
        assert isinstance(node, ast.ClassDef)
        bases = [ast.unparse(base) for base in node.bases]
        names: dict[str, Any] = {"Iterator": Iterator, "AbstractContextManager": AbstractContextManager}
        names |= {"ConnectSettings": ConnectSettings, "Self": Self, "Unpack": Unpack, "overload": overload}
        for each in reversed(kind._of.__mro__):
            names |= vars(sys.modules[each.__module__])
        names |= vars(self._module) | {twin.__name__: twin for twin in TWINS.values()}
        members = [
            text
            for name, member in sorted(vars(kind).items(), key=lambda item: item[0] != "connect")
            if not name.startswith("_")
            for text in self._write_member(name, member, names, kind._of)
        ]
        for base in bases:
            self._use(base, names)
        return "\n".join([f"class {kind.__name__}({', '.join(bases)}):\n{_docstring(kind.__doc__)}", *members, ""])

    def _write_member(self, name: str, member: Any, names: dict[str, Any], of: type) -> Iterator[str]:
        """Write the blocking member of a class `of` asyncio, with each of its overloads."""
        if isinstance(member, property):
            assert member.fget is not None
            returned = member.fget.__annotations__["return"]
            self._use(returned, names)
            yield f"    @property\n    def {name}(self) -> {returned}:\n{_docstring(member.__doc__, ' ' * 8)}"
            return
        is_connect = isinstance(member, classmethod)
        if is_connect:
            yield "    @classmethod"
            member = member.__func__
        doc = f"\n{_docstring(member.__doc__, ' ' * 8)}"
        overloads = [] if is_connect else get_overloads(getattr(of, name))
        for each in overloads:
            self._use("overload", names)
            signature = inspect.signature(each)
            returned = _blocking_type(signature.return_annotation)
            head = self._write_head(name, signature.replace(return_annotation=returned), names, is_connect=False)
            yield f"    @overload\n{head}{doc}"
        if not overloads:
            head = self._write_head(name, inspect.signature(member), names, is_connect=is_connect)
            yield f"{head}{doc}"

    def _write_head(self, name: str, signature: inspect.Signature, names: dict[str, Any], *, is_connect: bool) -> str:
        """Write the head of a method, up to its colon."""
        parameters: list[str] = []
        for each in signature.parameters.values():
            if is_connect and each.name in ConnectSettings.__annotations__:
                continue
            if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in parameters):
                parameters.append("*")
            self._use(each.annotation, names)
            parameters.append(_parameter(each))
        if is_connect:
            self._use(_SETTINGS, names)
            parameters.append(f"**settings: {_SETTINGS}")
        self._use(signature.return_annotation, names)
        end = f") -> {signature.return_annotation}:"
        line = f"    def {name}({', '.join(parameters)}{end}"
        if len(line) > LINE_LENGTH:
            inside = f"        {', '.join(parameters)}\n"
            if len(inside) > LINE_LENGTH:
                inside = "".join(f"        {each},\n" for each in parameters)
            line = f"    def {name}(\n{inside}    {end}"
        return line

    def _use(self, annotation: Any, names: dict[str, Any]) -> None:
        """Import what an annotation names."""
        if annotation is inspect.Parameter.empty:
            return
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                home = _home_of(node.id, names[node.id])
                if home != self._module.__name__:
                    self._homes.setdefault(home, set()).add(node.id)


def _home_of(name: str, value: Any) -> str:
    """Find the module that defines a name."""
    home = getattr(value, "__module__", "")
    if getattr(sys.modules.get(home), name, None) is value:
        return str(home)
    (home,) = (
        module.__name__
        for module in [*sys.modules.values()]
        if module.__name__.startswith("trimaran.")
        and vars(module).get(name) is value
        and re.search(rf"^{name}\b.* = ", inspect.getsource(module), re.MULTILINE)
    )
    return home


def _parameter(parameter: inspect.Parameter) -> str:
    """Write a parameter; a default that is no plain value as dots."""
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    typed = parameter.annotation is not parameter.empty
    text = f"{stars}{parameter.name}{f': {parameter.annotation}' if typed else ''}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    is_plain = default is None or default == () or type(default) in (bool, int, float, str, bytes)
    shown = repr(default).replace("'", '"') if is_plain else "..."
    return f"{text}{' = ' if typed else '='}{shown}"


def _docstring(text: str | None, indent: str = "    ") -> str:
    """Write a docstring as ruff does."""
    lines = inspect.cleandoc(text or "").splitlines()
    if len(lines) == 1:
        return f'{indent}"""{lines[0]}"""\n'
    body = "".join(f"{indent}{line}".rstrip() + "\n" for line in lines[1:])
    return f'{indent}"""{lines[0]}\n{body}{indent}"""\n'


def _import_line(home: str, names: set[str]) -> str:
    ordered = sorted(names, key=_import_order)
    line = f"from {home} import {', '.join(ordered)}\n"
    if len(line) <= LINE_LENGTH + 1:
        return line
    return f"from {home} import (\n{''.join(f'    {name},{chr(10)}' for name in ordered)})\n"


def _import_order(name: str) -> tuple[int, str]:
    """Order names as ruff does: constants, classes, functions."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


if __name__ == "__main__":
    for module_name in MODULES:
        path_of(module_name).write_text(stub_of(module_name), encoding="utf-8")
