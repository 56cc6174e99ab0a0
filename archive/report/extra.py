"""Checks that the packages which `report` needs are installed, before anything else of it is imported."""

from __future__ import annotations

from ...service_api.distribution import install_advice
from ...service_api.errors import MissingExtraError

try:
    import duckdb  # noqa: F401
    import jinja2  # noqa: F401
    import matplotlib  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    advice = install_advice("report")
    message = f"trimaran.archive.report needs duckdb, matplotlib, jinja2, pandas and pyarrow: {advice} ({error})"
    raise MissingExtraError(message) from error
