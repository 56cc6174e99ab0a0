"""`archive.frames` of a member's directory with groups: a column that says which, and only those that are asked for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.archive.streams import make_member_of_samples
from trimaran import archive
from trimaran.archive import ReadProblem
from trimaran.archive.errors import ArchiveError, CorruptionError
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_member_of_samples(tmp_path_factory.mktemp("groups"))


def read(path: Path, **arguments: Any) -> pa.Table:
    return archive.frames(path, **arguments).read_all()


def test_rows_of_all_groups_are_those_of_each_and_say_which(member: Path) -> None:
    """Planted: two groups have the same recording ids and positions; only the column tells their rows apart."""
    table = read(member)

    parts = [read(member / f"group-{index}") for index in range(2)]
    assert table.column_names == [*parts[0].column_names, "group"]
    assert table.schema.field("group").type == pa.int32()
    assert table.column("group").to_pylist() == [0] * parts[0].num_rows + [1] * parts[1].num_rows
    assert table.drop_columns("group").equals(pa.concat_tables(parts))
    assert len(set(table.column("position").to_pylist())) < table.num_rows


@pytest.mark.parametrize(("group", "expected"), [(1, {1}), ([0], {0}), ([1, 0], {0, 1}), (None, {0, 1})])
def test_some_groups_are_read(member: Path, group: int | Sequence[int] | None, expected: set[int]) -> None:
    assert {*read(member, group=group, columns=["group", "position"]).column("group").to_pylist()} == expected


def test_no_file_of_another_group_is_opened(member: Path, tmp_path: Path) -> None:
    shutil.copytree(member, tmp_path / "node-0")
    shutil.rmtree(tmp_path / "node-0" / "group-0")

    assert read(tmp_path / "node-0", group=1).num_rows == read(member / "group-1").num_rows


def test_a_group_that_is_missing_is_told_before_the_first_row(member: Path, tmp_path: Path) -> None:
    """Planted: a group is left out; the rows of the other one are there."""
    shutil.copytree(member, tmp_path / "node-0")
    shutil.rmtree(tmp_path / "node-0" / "group-1")

    with pytest.raises(ArchiveError, match=rf"archive directory.*{tmp_path}/node-0/group-1"):
        archive.frames(tmp_path / "node-0")


def test_the_column_stands_where_it_is_named_or_is_left_out(member: Path) -> None:
    assert read(member, columns=["group", "position"]).column_names == ["group", "position"]
    assert read(member, columns=["position"]).column_names == ["position"]


def test_positions_of_one_group_may_be_named(member: Path) -> None:
    whole = read(member, group=1, columns=["recording_id", "position"])
    recording_id = whole.column("recording_id")[0].as_py()
    positions = [row["position"] for row in whole.to_pylist() if row["recording_id"] == recording_id]

    found = read(member, group=1, recording_id=recording_id, start_position=positions[7], columns=["position"])

    assert found.column("position").to_pylist() == positions[7:]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"group": 2}, r"group=2 .*0 to 1: .*node-0"),
        ({"group": []}, r"group=\[\] .*0 to 1"),
        ({"recording_id": 0, "stop_position": 64}, r"one log: 2 groups.*node-0"),
        ({"columns": ["group"]}, r"group once.*another column"),
        ({"columns": ["position", "group", "group"]}, r"group once"),
        ({"columns": ["colour"]}, r"column='colour'"),
    ],
)
def test_what_cannot_be_read_is_named(member: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        archive.frames(member, **arguments)


@pytest.mark.parametrize("arguments", [{"group": 0}, {"columns": ["position", "group"]}])
def test_one_log_has_no_group_to_choose(member: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"group-0.*one log.*no group"):
        archive.frames(member / "group-0", **arguments)


def test_groups_with_different_units_of_time_need_one(tmp_path: Path) -> None:
    """Such as milliseconds and nanoseconds: one column has one unit."""
    make_member_of_samples(tmp_path, [("single-node", "node0"), ("checksummed", "node0")])

    with pytest.raises(ConfigurationError, match=r"group 0 millis, group 1 nanos"):
        archive.frames(tmp_path / "node-0")
    assert read(tmp_path / "node-0", columns=["position", "group"]).num_rows > 0
    assert read(tmp_path / "node-0", time_unit=TimeUnit.NANOS).num_rows > 0


def test_damage_says_which_group_it_is_of(member: Path, tmp_path: Path) -> None:
    shutil.copytree(member, tmp_path / "node-0")
    with (tmp_path / "node-0" / "group-0" / "archive" / "0-131072.rec").open("r+b") as segment:
        segment.write(b"\xee" * 32)
    problems: list[ReadProblem] = []

    table = archive.frames(tmp_path / "node-0", on_problem=problems.append).read_all()

    assert [(each.position, each.reason.partition(":")[0]) for each in problems] == [(131072, "group 0")]
    assert {*table.column("group").to_pylist()} == {0, 1}
    with pytest.raises(CorruptionError, match="group 0: "):
        archive.frames(tmp_path / "node-0").read_all()
