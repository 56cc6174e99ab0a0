"""`trimaran errors`: the distinct errors of a member, whether it runs or is dead."""

from .command import errors as errors
