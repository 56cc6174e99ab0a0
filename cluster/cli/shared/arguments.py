"""The argument that names a member's directory, and the recording log in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....archive.log.member_directory import find_recording_log, locate
from ....service_api.errors import ConfigurationError
from ....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME

MemberDirectoryArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="A member's directory, as in --directory; the member may be running or stopped."
    ),
]


def expect_recording_log(directory: Path) -> Path:
    """Find the recording log.

    Raises:
        ConfigurationError: there is none.
    """
    path = find_recording_log(locate(directory))
    if path is None:
        raise ConfigurationError(
            f"no member has run here: directory={directory} expected cluster/{RECORDING_LOG_FILE_NAME} in it"
        )
    return path
