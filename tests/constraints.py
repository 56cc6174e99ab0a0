"""`constraints.txt`: one release of each package that any extra needs, so that an installation only downloads.

`python -m tests.constraints make` resolves once for every Python from `OLDEST_PYTHON` on and writes the file.
`python -m tests.constraints age` resolves again and prints which pins are older than what it chooses today; it exits
with status 1 if there are any. Both need uv, which `make setup` installs.

A line is a requirement, and in its comment the sets that it belongs to: `core` is what `make setup` installs and a part
of every other set; these are the extras of pyproject.toml. `tests/set_up.py` installs the lines of one set, and
`pip install -c constraints.txt '.[report]'` takes the same releases.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from tests.places import ROOT

CONSTRAINTS: Final = ROOT / "constraints.txt"
OLDEST_PYTHON: Final = "3.11"
PYTHONS: Final = (OLDEST_PYTHON, "3.12", "3.13", "3.14")
"""The versions of Python that the pins have been resolved for."""
CORE: Final = "core"
"""The set without any extra."""

_HEADER: Final = """\
# One release of each package, resolved on {today} for Python {first} to {last} by `make constraints`.
# Use it with pip: pip install -c constraints.txt '.[report]'. After each pin: the extras that need it.
"""
_LINE: Final = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^#]+?))?(?:  # (?P<sets>.*))?")
_DATE: Final = re.compile(r"resolved on (\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class Pin:
    """One line: a release of a package, where it holds, and the sets that need it."""

    name: str
    version: str
    marker: str | None
    sets: tuple[str, ...]

    @property
    def requirement(self) -> str:
        """The line as pip reads it."""
        return f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")


def parse(text: str) -> list[Pin]:
    """Return the pins of a file.

    Raises:
        ValueError: A line is not a pin.
    """
    pins = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"line={line!r} expected: name==version ; marker  # sets")
        pins.append(Pin(found["name"], found["version"], found["marker"], tuple((found["sets"] or "").split())))
    return pins


def read_pins() -> list[Pin]:
    """Return the pins of this checkout."""
    return parse(CONSTRAINTS.read_text(encoding="utf-8"))


def extras() -> list[str]:
    """Return the names of the extras of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(project["optional-dependencies"])


def resolve(*options: str | Path) -> list[Pin]:
    """Have uv resolve pyproject.toml, for every Python and platform at once.

    Raises:
        SystemExit: uv is not installed or has failed.
    """
    command = [
        *(Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--universal", "--system-certs"),
        *("--python-version", OLDEST_PYTHON, "--no-annotate", "--no-header", "--no-emit-package", "trimaran"),
        *options,
        ROOT / "pyproject.toml",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit("uv is not installed: run make setup") from None
    if done.returncode:
        raise SystemExit(f"uv could not resolve pyproject.toml:\n{done.stderr}")
    return parse(done.stdout)


def with_sets(pins: Collection[Pin], members: dict[str, set[str]]) -> Iterator[Pin]:
    """Give each pin the names of the sets that hold its package; `CORE` is part of every other set."""
    for pin in pins:
        sets = [name for name, packages in members.items() if pin.name in packages]
        yield Pin(pin.name, pin.version, pin.marker, (CORE,) if CORE in sets else tuple(sets))


def make() -> int:
    """Resolve and write the file."""
    chosen = resolve("--all-extras")
    CONSTRAINTS.write_text("".join(f"{pin.requirement}\n" for pin in chosen), encoding="utf-8")
    members = {CORE: {pin.name for pin in resolve("--constraint", CONSTRAINTS)}}
    for extra in extras():
        members[extra] = {pin.name for pin in resolve("--constraint", CONSTRAINTS, "--extra", extra)}
    header = _HEADER.format(today=datetime.now(UTC).date(), first=PYTHONS[0], last=PYTHONS[-1])
    lines = (f"{pin.requirement}  # {' '.join(pin.sets)}\n" for pin in with_sets(chosen, members))
    CONSTRAINTS.write_text(header + "".join(lines), encoding="utf-8")
    print(f"{CONSTRAINTS.name}: {len(chosen)} pins")
    return 0


def differences(old: Iterable[Pin], new: Iterable[Pin]) -> list[str]:
    """Return a line for each package whose releases differ."""
    before, after = releases(old), releases(new)
    return [
        f"{name} {before.get(name, 'absent')} -> {after.get(name, 'not needed')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def releases(pins: Iterable[Pin]) -> dict[str, str]:
    """Return the versions of each package; some have several, each for other Pythons."""
    found: dict[str, str] = {}
    for pin in pins:
        found[pin.name] = f"{found[pin.name]}, {pin.version}" if pin.name in found else pin.version
    return found


def age() -> int:
    """Print how old the file is, and each pin that a resolution of today changes."""
    text = CONSTRAINTS.read_text(encoding="utf-8")
    made = _DATE.search(text)
    days = (datetime.now(UTC).date() - date.fromisoformat(made[1])).days if made else None
    changed = differences(parse(text), resolve("--all-extras"))
    print(f"{CONSTRAINTS.name}: {days} days old, {len(changed)} of {len(parse(text))} pins would change")
    print("".join(f"  {line}\n" for line in changed), end="")
    return 1 if changed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.constraints", description=__doc__)
    parser.add_argument("command", choices=("make", "age"))
    sys.exit({"make": make, "age": age}[parser.parse_args().command]())
