"""`python -m tests.shape`: sizes are counted as they are, and growth is told from the commit that is named."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from tests.shape import functions_of, main, measure, report

SHORT = "def a():\n    pass\n"
LONG = (
    "class C:\n    def b(self):\n        if self:\n            def inner():\n                pass\n        return 1\n"
)


def test_functions_have_qualified_names_and_all_their_lines() -> None:
    assert functions_of(SHORT) == {"a": 2}
    assert functions_of(LONG) == {"C.b": 5, "C.b.inner": 2}
    assert functions_of("if x:\n    def a(): pass\nelse:\n    def a():\n        pass\n") == {"a": 2}


def test_each_kind_is_measured_in_its_unit() -> None:
    sizes = measure({"p/a.py": SHORT, "p/b.py": LONG, "README.md": "three plain words\n"})

    assert sizes == {
        "files": {"p/a.py": 2, "p/b.py": 6},
        "functions": {"p/a.py:a": 2, "p/b.py:C.b": 5, "p/b.py:C.b.inner": 2},
        "folders": {"p": 2},
        "documents": {"README.md": 3},
    }


def test_growth_is_told_with_what_is_new_and_what_shrank_is_not() -> None:
    lines = [*report({"p/a.py": SHORT, "p/b.py": LONG}, {"p/a.py": LONG, "p/b.py": SHORT, "p/new.py": SHORT})]

    assert lines[0] == "files: 3 (+1), 10 lines (+2)"
    grown = lines[lines.index("  grew most:") + 1 : lines.index("  largest:")]
    assert [line.split() for line in grown] == [["+4", "p/a.py"], ["+2", "p/new.py", "(new)"]]
    assert "  nothing grew" in lines  # there is no document


def test_the_ten_largest_are_shown() -> None:
    lines = [*report({}, {f"p/{count:02}.py": "x = 1\n" * count for count in range(1, 15)})]

    largest = lines[lines.index("  largest:") + 1 :][:11]
    assert [line.split() for line in largest[:10]] == [[str(count), f"p/{count:02}.py"] for count in range(14, 4, -1)]
    assert largest[10].startswith("functions:")


def test_the_command_compares_the_working_tree_with_a_commit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a part of the repository, since all of it takes seconds."""
    monkeypatch.setattr("tests.shape.PATTERNS", ("examples/*.py", "*.md"))
    main(["HEAD"])

    assert has_facts(capsys.readouterr().out, "since HEAD\n", "files: ", "functions: ", "folders: ", "documents: ")
