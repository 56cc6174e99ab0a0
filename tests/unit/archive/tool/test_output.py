"""Text of others on a terminal: it is shown, and neither markup nor a command."""

from __future__ import annotations

import pytest
from rich.text import Text

from trimaran.archive.tool.output import OutputFormat, make_console, new_table, print_error, print_rows, print_stream
from trimaran.service_api.printable import printable

THEIRS = "a\x1b]0;pwned\x07\u202eb[/red]\x9b2J"
SHOWN = r"a\x1b]0;pwned\x07\u202eb[/red]\x9b2J"


def test_printable_escapes_all_that_a_terminal_would_act_on_and_keeps_the_rest() -> None:
    assert printable(THEIRS) == SHOWN
    assert printable("zwei Wörter\n\tΩ, 日本") == "zwei Wörter\n\tΩ, 日本"


def test_rows_lines_tables_and_errors_show_text_of_others_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = new_table("what", "is")
    table.add_row(THEIRS, "")

    print_rows([{"name": THEIRS}], OutputFormat.TABLE, title=THEIRS)
    print_stream([{"name": THEIRS}], OutputFormat.TABLE, heading="name", as_line=lambda row: row["name"])
    make_console().print(table)
    make_console().print(THEIRS)
    make_console().print(Text(THEIRS))
    print_error(THEIRS)

    out, err = capsys.readouterr()
    assert out.count(SHOWN) >= 5
    assert SHOWN in err
    assert all(char.isprintable() or char == "\n" for char in out + err)
