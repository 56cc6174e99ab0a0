"""Fuzzing of every decoder: `python -m tests.fuzz run`, or `make fuzz`."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.campaign import FINDINGS, WORK, TargetResult, as_rows, rows_of, run_target
from tests.fuzz.corpus import minimise, store, stored_inputs
from tests.fuzz.page import RESULTS, write_page
from tests.fuzz.quiet import be_quiet
from tests.fuzz.target import Target
from tests.fuzz.targets.every import every_target

_NO_ATHERIS = (
    "no Atheris for this Python ({version}): its wheels are for CPython 3.11 to 3.14 on Linux. The suite fuzzes every "
    "target without it: python -m pytest tests/fuzz"
)


def main(arguments: list[str]) -> int:
    """Do what the command line says; give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run a campaign")
    run.add_argument("--target", nargs="*", default=[], metavar="NAME", help="only these targets")
    limits = run.add_mutually_exclusive_group()
    limits.add_argument("--minutes", type=float, help="how long all targets take together (default: 10)")
    limits.add_argument("--executions", type=int, help="how many inputs each target gets")
    run.add_argument("--keep-result", action="store_true", help="add the result to those that docs/fuzzing.md tells of")
    run.set_defaults(do=_run)
    replay = commands.add_parser("replay", help="run a target on stored inputs, and show what it raises")
    replay.add_argument("target")
    replay.add_argument("files", nargs="+", type=Path)
    replay.set_defaults(do=_replay)
    listing = commands.add_parser("list", help="list the targets")
    listing.set_defaults(do=_list)
    page = commands.add_parser("page", help="write docs/fuzzing.md from the stored results")
    page.set_defaults(do=_page)
    keep = commands.add_parser("keep", help="store the smallest corpus that reaches what the campaigns have reached")
    keep.add_argument("--target", nargs="*", default=[], metavar="NAME", help="only these targets")
    keep.set_defaults(do=_keep)
    chosen = parser.parse_args(arguments)
    status: int = chosen.do(chosen)
    return status


def _chosen(names: list[str]) -> list[Target]:
    targets = every_target()
    if unknown := sorted(set(names) - targets.keys()):
        raise SystemExit(f"no such target: {', '.join(unknown)}; there are: {', '.join(targets)}")
    return [target for name, target in targets.items() if not names or name in names]


def _run(chosen: argparse.Namespace) -> int:
    if find_spec("atheris") is None:
        print(_NO_ATHERIS.format(version=platform.python_version()), file=sys.stderr)
        return 2
    targets = _chosen(chosen.target)
    seconds = None if chosen.executions else 60 * (chosen.minutes or 10) / len(targets)
    shown_s = [0.0]

    def show(result: TargetResult) -> None:
        if time.monotonic() - shown_s[0] > 10 or sys.stderr.isatty():
            shown_s[0] = time.monotonic()
            end = "\r" if sys.stderr.isatty() else "\n"
            print(
                f"  {result.name}: {result.executions:,} executions, coverage {result.coverage}",
                end=end,
                file=sys.stderr,
            )

    results: list[TargetResult] = []
    for target in targets:
        results.append(run_target(target, seconds=seconds, executions=chosen.executions, show=show))
        print(f"==> {target.name}: {results[-1].executions:,} executions, {results[-1].findings} findings", flush=True)
        if chosen.keep_result:
            _add(RESULTS, results[-1:])
    print("\n".join(rows_of(results)))
    found = sorted(path for target in targets for path in FINDINGS.glob(f"{target.name}-*") if path.suffix != ".txt")
    for path in found:
        name = next(target.name for target in targets if path.name.startswith(f"{target.name}-"))
        print(f"finding: python -m tests.fuzz replay {name} {path.relative_to(Path.cwd())}")
    return 1 if found else 0


def _add(path: Path, results: list[TargetResult]) -> None:
    """Add a campaign to those that are stored."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "python": platform.python_version()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*known, *(facts | row for row in as_rows(results))], indent=1) + "\n", encoding="utf-8")


def _replay(chosen: argparse.Namespace) -> int:
    be_quiet()
    (target,) = _chosen([chosen.target])
    status = 0
    for path in chosen.files:
        begun_s = time.perf_counter()
        try:
            target.run(path.read_bytes())
        except BaseException:
            traceback.print_exc()
            status = 1
        print(f"{path}: {time.perf_counter() - begun_s:.3f} s")
    return status


def _page(chosen: argparse.Namespace) -> int:
    write_page()
    return 0


def _list(chosen: argparse.Namespace) -> int:
    for target in _chosen([]):
        print(f"{target.name:<24}{target.about}")
    return 0


def _keep(chosen: argparse.Namespace) -> int:
    be_quiet()
    total = 0
    for target in _chosen(chosen.target):
        files = (WORK / "corpus" / target.name).glob("*")
        inputs = [*target.seeds(), *stored_inputs(target.name), *(path.read_bytes() for path in files)]
        kept = minimise(target, inputs)
        total += (length := store(target.name, kept))
        print(f"{target.name:<24}{len(inputs):>8} inputs, {len(kept):>5} kept, {length:>8,} bytes", flush=True)
    print(f"{total:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
