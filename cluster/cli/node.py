"""`trimaran node`: run one member until it is told to stop."""

from __future__ import annotations

from typing import Any

import uvloop

from ..member_process import run_node
from ..runtime.watching.log_tap import ErrorLogProcessor
from .shared.logging import configure_logging
from .shared.setting_flags import load_from_flags, with_setting_flags


@with_setting_flags
def node(**settings: Any) -> None:
    """Run one member of a cluster until SIGTERM or SIGINT.

    Settings come from flags, TRIMARAN_* variables and a TOML file, in this order; `trimaran config show` prints
    them.
    """
    config = load_from_flags(settings).config
    log_tap = ErrorLogProcessor()
    configure_logging(config.log_format, member_id=config.member_id, tap=log_tap)
    uvloop.run(run_node(config, log_tap=log_tap))
