"""The page docs/fuzzing.md: what was tried and what was found, written from the stored results of the campaigns."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from tests.fuzz.corpus import STORED
from tests.fuzz.targets.every import every_target
from tests.places import ROOT

PAGE: Final = ROOT / "docs" / "fuzzing.md"
RESULTS: Final = STORED / "campaigns.json"
_FOUND_IN: Final = ("tests/fuzz/test_findings.py", "tests/unit/cluster/core/peers/test_forged_members.py")
"""Where a test with a docstring is one of a finding."""
_FOUND_ELSEWHERE: Final = [
    (
        "A stranger that asked for a snapshot in one name after the other kept every old one for ever",
        "test_snapshot_shipping.py::test_nothing_is_kept_for_an_id_that_no_other_member_has",
    )
]

_INTRODUCTION: Final = """\
# Fuzzing

`python -m tests.fuzz page` writes this page.

Everything that reads bytes of a stranger, of a peer or of a file has a *fuzz target*: a function that calls the real
decoder with any bytes. A decoder reads them, or refuses them with the error that its docstring names. Any other error
is a finding, and so is a hang, memory taken on the word of the input, or an encoder that writes something else than was
read. Two decoders of one format have to agree.

```bash
make fuzz MINUTES=10                       # every target, coverage-guided, each in a process with limits
make fuzz EXECUTIONS=1000000 TARGET=catalog
python -m tests.fuzz replay catalog .fuzz/findings/catalog-…   # run a finding again
python -m pytest tests/fuzz                # Hypothesis and the stored corpus; part of the suite
```

`make fuzz` installs Atheris, which exists for CPython 3.11 to 3.14 on Linux on x86-64; it says so
elsewhere. Campaigns are guided by the coverage of our own code. JSON documents and certificates are parsed by compiled
libraries, so there the guidance ends where theirs begins. The campaigns keep what they find in `.fuzz/`: inputs that
raise in `.fuzz/findings`, with the trace beside each, and the working corpus. `python -m tests.fuzz keep` stores the
smallest corpus that reaches all that they have reached in `tests/data/fuzz`, and the suite runs it each time.

A target gives frames, catalogs and recordings the checksums that they should have, when the input asks for it; without
that no campaign comes past a CRC. Each input may take 1 s of processor time, 3 GiB of address space, and on a disk no
read longer than 2 MiB.

**Members that lie.** The target `consensus_core` is a member whose peers say anything, again and in any order, in their
own names. What it may never do is checked after each step: let a term or a commit position fall, cut off what is
committed, vote twice, hear two leaders in one term, or raise. `tests/system/test_forged_members.py` does the same to a
node process.
"""


def page() -> str:
    """Make the page."""
    lines = [_INTRODUCTION, "## Campaigns", "", *_campaign_table(), "", "## Findings", ""]
    lines += ["Each is mended, and has a test that failed before.", "", "| what went wrong | test |", "|---|---|"]
    lines += [f"| {what} | `{test}` |" for what, test in _findings()]
    return "\n".join(lines) + "\n"


def _campaign_table() -> list[str]:
    """Add up the campaigns of each target."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []:
        rows[row["name"]].append(row)
    lines = ["| target | what it decodes | executions | places reached |", "|---|---|---:|---:|"]
    for target in every_target().values():
        found = rows[target.name]
        executions = sum(row["executions"] for row in found)
        reached = max((row["coverage"] for row in found), default=0)
        lines.append(f"| `{target.name}` | {target.about.rstrip('.')} | {executions:,} | {reached:,} |")
    everything = [row for found in rows.values() for row in found]
    total = sum(row["executions"] for row in everything)
    hours = sum(row["seconds"] for row in everything) / 3600
    dates = sorted({row["date"] for row in everything})
    pythons = sorted({row["python"] for row in everything})
    facts = [
        f"Dates: {', '.join(dates)}. Python {', '.join(pythons)}, one process on a machine of two cores,",
        f"{hours:.1f} hours. In all {total:,} executions.",
    ]
    return [*facts, "", *lines]


def _findings() -> list[tuple[str, str]]:
    """Name every test of a finding, and give what its docstring says went wrong."""
    found = []
    for path in _FOUND_IN:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = ast.get_docstring(node)
                if said is not None:
                    found.append((said.replace("\n", " ").rstrip("."), f"{Path(path).name}::{node.name}"))
    return [*found, *_FOUND_ELSEWHERE]


def write_page() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
