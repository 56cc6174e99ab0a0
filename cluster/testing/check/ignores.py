"""Comments that say that a finding is right as it is: `# trimaran: ignore[rule, rule] reason`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...service.strict.rules import RULES, Finding, Severity
from .modules import ModuleSource

_COMMENT = re.compile(r"#\s*trimaran:\s*ignore\s*(?:\[([^\]]*)\])?\s*(.*)")


@dataclass(slots=True)
class _Ignore:
    line: int
    """Of the comment."""
    column: int
    applies_to: int
    """The line whose findings it ignores."""
    rules: tuple[str, ...]
    reason: str
    is_used: bool = False


def without_ignored(module: ModuleSource, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in a module that no comment ignores, and those about the comments themselves."""
    ignores = [*_find_ignores(module)]
    kept = []
    for finding in findings:
        found = next((each for each in ignores if each.applies_to == finding.line and finding.rule in each.rules), None)
        if found is None:
            kept.append(finding)
        else:
            found.is_used = True
    return [*kept, *(problem for each in ignores for problem in _problems(module, each))]


def _find_ignores(module: ModuleSource) -> Iterator[_Ignore]:
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(module.lines) + "\n").readline)
    for token in tokens:
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line, column = token.start
        is_alone = not module.lines[line - 1][:column].strip()
        rules = tuple(rule.strip() for rule in (match[1] or "").split(",") if rule.strip())
        yield _Ignore(line, column, line + 1 if is_alone else line, rules, match[2].partition("#")[0].strip())


def _problems(module: ModuleSource, ignore: _Ignore) -> Iterator[Finding]:
    def problem(rule: str, severity: Severity, what: str) -> Finding:
        source = module.lines[ignore.line - 1].strip()
        return Finding(module.path, ignore.line, ignore.column + 1, rule, severity, what, source)

    unknown = [rule for rule in ignore.rules if rule not in RULES]
    if unknown or not ignore.rules:
        yield problem("unknown-rule", Severity.ERROR, f"ignore[{', '.join(unknown)}]")
    elif not ignore.reason:
        yield problem("ignore-without-reason", Severity.ERROR, f"ignore[{', '.join(ignore.rules)}]")
    elif not ignore.is_used:
        yield problem("unused-ignore", Severity.HINT, f"ignore[{', '.join(ignore.rules)}]")
