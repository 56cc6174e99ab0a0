"""How large the repository is: what grew since a commit, and the ten largest files, functions, folders and documents.

`python -m tests.shape [COMMIT]` compares with a commit, by default with the last tag or, without tags, the hundredth
commit before this one. It prints and judges nothing: how large a story may be is for its reader to say.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final

from tests.places import ROOT
from tests.waiting import patient

SHOWN_COUNT: Final = 10
UNITS: Final = {"files": "lines", "functions": "lines", "folders": "modules", "documents": "words"}
"""Each kind, and the unit that it is measured in."""
PATTERNS: Final = ("*.py", "*.md")


def git(*arguments: str) -> bytes:
    """Run git in the repository and return what it printed."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, check=True, timeout=patient(60)
    ).stdout


def default_commit() -> str:
    """Name the last tag before this commit; without one the hundredth commit before it, or the first."""
    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"],
        capture_output=True,
        text=True,
        timeout=patient(60),
    )
    commits = git("rev-list", "--first-parent", "--max-count=101", "HEAD").decode().split()
    return described.stdout.strip() if described.returncode == 0 else commits[-1]


def texts_at(commit: str) -> dict[str, str]:
    """Read every module and document of a commit, by its path."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "--format=tar", commit, "--", *PATTERNS))) as archive:
        files = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def texts_now() -> dict[str, str]:
    """Read every module and document of the working tree, by its path, also those that are not committed."""
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PATTERNS).decode().split("\0")
    paths = {name: ROOT / name for name in names if name}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.is_file()}


@cache
def functions_of(text: str) -> dict[str, int]:
    """Count the lines of each function of a module, by its qualified name; of one name the longest counts."""
    found: dict[str, int] = {}
    for name, node in functions_below(ast.parse(text), ""):
        found[name] = max(found.get(name, 0), (node.end_lineno or node.lineno) - node.lineno + 1)
    return found


def functions_below(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Each function below a node with its qualified name. Only statements are walked: expressions hold no `def`."""
    bodies = (getattr(node, field, ()) for field in ("body", "handlers", "orelse", "finalbody", "cases"))
    for inner in chain.from_iterable(body for body in bodies if isinstance(body, list)):
        named = isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if named and not isinstance(inner, ast.ClassDef):
            yield prefix + inner.name, inner
        yield from functions_below(inner, f"{prefix}{inner.name}." if named else prefix)


def measure(texts: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Measure texts: kind to name to size, with the kinds of `UNITS`."""
    modules = {name: text for name, text in texts.items() if name.endswith(".py")}
    return {
        "files": {name: len(text.splitlines()) for name, text in modules.items()},
        "functions": {
            f"{name}:{function}": size
            for name, text in modules.items()
            for function, size in functions_of(text).items()
        },
        "folders": dict(Counter(Path(name).parent.as_posix() for name in modules)),
        "documents": {name: len(text.split()) for name, text in texts.items() if name.endswith(".md")},
    }


def largest(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """The largest first, at most ten, and of equals the first by name."""
    return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_COUNT]


def report(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Print lines: for each kind its sum, the ten that grew most, and the ten largest."""
    old, new = measure(before), measure(now)
    for kind, unit in UNITS.items():
        sizes, earlier = new[kind], old[kind]
        growth = {name: size - earlier.get(name, 0) for name, size in sizes.items() if size > earlier.get(name, 0)}
        change = sum(sizes.values()) - sum(earlier.values())
        yield f"{kind}: {len(sizes):,} ({len(sizes) - len(earlier):+,}), {sum(sizes.values()):,} {unit} ({change:+,})"
        yield "  grew most:" if growth else "  nothing grew"
        yield from (f"    {size:+7,}  {name}{'' if name in earlier else ' (new)'}" for name, size in largest(growth))
        yield "  largest:"
        yield from (f"    {size:7,}  {name}" for name, size in largest(sizes))


def main(arguments: list[str]) -> None:
    """Print what grew since the commit that is given, or since the default one."""
    commit = arguments[0] if arguments else default_commit()
    print(f"since {commit}")
    print("\n".join(report(texts_at(commit), texts_now())))


if __name__ == "__main__":
    main(sys.argv[1:])
