"""No log while decoders refuse, which they do many thousand times a second."""

from __future__ import annotations

import logging

import structlog


def be_quiet() -> None:
    """Log nothing from now on, in this process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
