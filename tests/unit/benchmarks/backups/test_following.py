"""The age of the newest restorable message, from samples of what was committed when."""

from __future__ import annotations

import pytest

from trimaran.benchmarks.backups.following import BackupParameters, Sampled
from trimaran.benchmarks.backups.restoring import RestoreParameters
from trimaran.service_api import ConfigurationError


def sampled() -> Sampled:
    """The log was at 100 for two samples, then grew by 100 in each second."""
    return Sampled(times=[10.0, 11.0, 12.0, 13.0], commit_positions=[100, 100, 200, 300])


@pytest.mark.parametrize(
    ("position", "age_s"),
    [
        (300, 0.0),  # it has everything
        (299, 1.0),  # the newest message was not committed a second ago
        (200, 1.0),
        (150, 2.0),
        (100, 2.0),  # at 11 s that was all there was
        (50, 3.0),  # older than what was seen: at least as old as the first sample
    ],
)
def test_age_is_the_time_since_no_more_was_committed(position: int, age_s: float) -> None:
    assert sampled().age_of(position) == age_s


def test_what_makes_no_run_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="rate=0 expected more than 0"):
        BackupParameters(rate=0)
    with pytest.raises(ConfigurationError, match="log_mib=0 expected at least 1"):
        RestoreParameters(log_mib=0)
