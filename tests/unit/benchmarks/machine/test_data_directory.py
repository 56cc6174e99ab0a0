"""Where measurements keep their files, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.machine.data_directory import measurement_directory
from trimaran.service_api.errors import ClusterTimeoutError


@pytest.mark.parametrize("keep", [False, True])
def test_what_a_measurement_wrote_makes_room_for_the_next_one_unless_it_is_to_be_kept(
    tmp_path: Path, keep: bool
) -> None:
    with measurement_directory(tmp_path / "a" / "b", keep=keep) as place:
        (place / "segment").write_bytes(b"log")

    assert (tmp_path / "a" / "b" / "segment").exists() is keep


def test_it_makes_room_also_when_the_measurement_fails(tmp_path: Path) -> None:
    def measure() -> None:
        with measurement_directory(tmp_path / "a", keep=False) as place:
            (place / "segment").write_bytes(b"log")
            raise ClusterTimeoutError("no leader")

    with pytest.raises(ClusterTimeoutError):
        measure()

    assert not (tmp_path / "a").exists()
