"""Checks that the packages which `spark` needs are installed, before anything else of it is imported."""

from __future__ import annotations

from ...service_api.errors import MissingExtraError

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
    import pyspark.sql  # noqa: F401
except ImportError as error:
    message = f"trimaran.archive.spark needs pyspark, pyarrow and numpy: pip install 'trimaran[spark]' ({error})"
    raise MissingExtraError(message) from error
