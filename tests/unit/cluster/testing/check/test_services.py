"""The lint on small services: each wrong line of the wrong ones is found, and nothing in the right ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.places import ROOT
from trimaran.cluster.testing.check import RULES, Severity, check_targets

SERVICES = ROOT / "tests" / "data" / "services"
WRONG = sorted((SERVICES / "wrong").glob("*.py"))
RIGHT = sorted((SERVICES / "right").glob("*.py"))


def expected_in(path: Path) -> set[tuple[int, str]]:
    """The line and rule of each comment `# expect: rule, rule`."""
    return {
        (number, rule)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in re.finditer(r"# expect: (.*)", line)
        for rule in match[1].split(", ")
    }


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_each_wrong_line_is_found_by_its_rule_and_no_other_line(path: Path) -> None:
    findings, _ = check_targets([str(path)], Path())

    found = {(finding.line, finding.rule) for finding in findings if finding.severity is Severity.ERROR}
    assert found == expected_in(path)
    assert all(finding.why and finding.instead and finding.source for finding in findings)


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_service_has_no_finding_and_no_hint(path: Path) -> None:
    findings, services = check_targets([str(path)], Path())

    assert findings == []
    assert services


def test_half_of_thirty_services_are_wrong_and_every_rule_of_errors_is_shown() -> None:
    shown = {rule for path in WRONG for _, rule in expected_in(path)}

    assert len(WRONG) >= 15
    assert len(RIGHT) >= 15
    only_hints = {"float-libm", "garbage-collection", "pickle", "unused-ignore"}
    assert shown == {*RULES} - only_hints
