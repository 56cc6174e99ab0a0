"""Recordings as Spark DataFrames: needs `quorate[spark]`.

Begin: `session` (create_session), `java` (a Java is found or brought).
"""

from . import extra as extra

# isort: split
from .java import ensure_java as ensure_java
from .session import create_session as create_session
