"""The error that ends a demo."""

from __future__ import annotations

from typing import ClassVar

from ....service_api.errors import ClusterError, ErrorCategory


class DemoFailedError(ClusterError):
    """The demo could not be carried through, or a check did not hold; the message says which."""

    category: ClassVar[ErrorCategory] = ErrorCategory.FATAL
