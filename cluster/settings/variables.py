"""The environment variables of Trimaran that are no settings of a node: commands, tests and notebooks read them.

Every other variable whose name begins with `TRIMARAN_` is a setting, and a mistake where there is no such setting.
"""

from __future__ import annotations

import os
from typing import Final

CONFIG_FILE_VARIABLE: Final = "TRIMARAN_CONFIG"
"""Names the TOML file when no --config flag does."""
USER_VARIABLE: Final = "TRIMARAN_USER"
"""Who asks, for the commands that are clients, when no --user flag says so."""
PASSWORD_VARIABLE: Final = "TRIMARAN_PASSWORD"
"""The password of that user: no flag has it, for flags are seen by all of a machine."""
REPLAY_VARIABLE: Final = "TRIMARAN_REPLAY"
"""Which run a test with the simulator is to repeat."""
RECORD_VARIABLE: Final = "TRIMARAN_RECORD"
"""Has a test that replays a log write down what comes of it."""
NOTEBOOK_DATA_VARIABLE: Final = "TRIMARAN_NOTEBOOK_DATA"
"""Where the notebooks of this project keep their data."""

NO_SETTINGS: Final = frozenset(
    {
        CONFIG_FILE_VARIABLE,
        USER_VARIABLE,
        PASSWORD_VARIABLE,
        REPLAY_VARIABLE,
        RECORD_VARIABLE,
        NOTEBOOK_DATA_VARIABLE,
    }
)


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables of Trimaran: a child's settings are all on its command line."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("TRIMARAN_")}
