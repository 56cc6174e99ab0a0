"""Files with secrets in them are for their owner alone: keys, verifiers, tokens."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from ..errors import ConfigurationError

_FORBIDDEN: Final = 0o077
_FORBIDDEN_OF_ROOT: Final = 0o037
"""The mode bits that such a file may not have; of root's the group may read it."""


def expect_private(file: Path, what: str) -> None:
    """Refuse a file that others than its owner may read, or the group of one that is root's. Blocks.

    `what` begins the error, as "key file" does. A file that is not there is left to the one who reads it.

    Raises:
        ConfigurationError: the user's.
    """
    try:
        found = file.stat()
    except OSError:
        return
    if found.st_mode & (_FORBIDDEN_OF_ROOT if found.st_uid == 0 else _FORBIDDEN):
        raise ConfigurationError(
            f"{what} may be read by others: file={file} mode={stat.S_IMODE(found.st_mode):04o} expected 0600, or "
            f"0640 where root owns it: chmod 600 {file}, and consider whether somebody has read it"
        )
