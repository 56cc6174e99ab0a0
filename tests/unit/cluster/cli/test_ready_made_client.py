"""What the commands of the ready-made services say when a cluster does not let them in."""

from __future__ import annotations

import pytest
import typer

from trimaran.archive.tool.output import EXIT_REFUSED
from trimaran.client import ConnectRejectedError
from trimaran.cluster.cli.ready_made.client import errors_as_exits


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("CHALLENGE", "TRIMARAN_PASSWORD"),
        ("AUTHENTICATION_REJECTED", "--user and TRIMARAN_PASSWORD"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_say(code: str, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, errors_as_exits():
        raise ConnectRejectedError(code, "why")

    assert caught.value.exit_code == EXIT_REFUSED
    assert advice in capsys.readouterr().err
