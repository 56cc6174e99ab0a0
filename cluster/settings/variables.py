"""The environment variables of Trimaran that are no settings of a node: commands, tests and notebooks read them.

Every other variable whose name begins with `TRIMARAN_` is a setting, and a mistake where there is no such setting.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

ENV_PREFIX: Final = "TRIMARAN_"
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


_LINK: Final = re.compile(r"(tcp|udp|sctp)://")
_LINK_VARIABLES: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)


def setting_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that stand for settings, in upper case: all of Trimaran but `NO_SETTINGS` and service links.

    Kubernetes sets service links in each pod of a namespace that has a service called `trimaran` or `trimaran-...`:
    `TRIMARAN_PORT=tcp://10.0.0.1:9000`, `TRIMARAN_SERVICE_HOST` and others, also in pods of applications. They count
    as links only where a variable `..._PORT` with such a value shows that there is a service of the name before it.
    """
    found = {
        name.upper(): text
        for name, text in environment.items()
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in NO_SETTINGS
    }
    linked = [
        name.removesuffix("_PORT") for name, text in found.items() if name.endswith("_PORT") and _LINK.match(text)
    ]
    return {
        name: text
        for name, text in found.items()
        if not any(
            name.startswith(service) and _LINK_VARIABLES.fullmatch(name.removeprefix(service)) for service in linked
        )
    }


def clean_environment() -> dict[str, str]:
    """Return the environment without the variables of Trimaran: a child's settings are all on its command line."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(ENV_PREFIX)}
