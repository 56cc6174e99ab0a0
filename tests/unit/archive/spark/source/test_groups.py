"""A directory with groups as one read: a column that says which group, and only the groups that are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructType

from tests.unit.archive.spark.written_logs import Entry, write_log
from trimaran.archive.log.group_directories import settle_group_count
from trimaran.archive.spark.source.data_source import AeronArchiveDataSource
from trimaran.service_api.errors import ConfigurationError


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """Two groups, with three messages and with five."""
    settle_group_count(tmp_path, 2)
    for index, count in enumerate((3, 5)):
        write_log(tmp_path / f"group-{index}" / "archive", [Entry(b"%d" % number) for number in range(count)])
    return tmp_path


def read(path: Path, *, schema: StructType | None = None, **options: Any) -> list[dict[str, Any]]:
    """Read all rows as Spark would, without it."""
    source = AeronArchiveDataSource({"path": str(path), **options})
    reader = source.reader(source.schema() if schema is None else schema)
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_the_rows_of_all_groups_say_which_one_they_are_of(member: Path) -> None:
    rows = read(member)

    assert [row["group"] for row in rows] == [0] * 3 + [1] * 5
    assert [*rows[0]][-1] == "group"
    assert [row["position"] for row in rows if row["group"] == 0] == [row["position"] for row in rows[3:6]]


def test_the_column_is_a_whole_number_that_is_always_there(member: Path) -> None:
    field = AeronArchiveDataSource({"path": str(member)}).schema()["group"]

    assert (field.dataType, field.nullable) == (IntegerType(), False)


def test_the_column_stands_where_the_user_wants_it_or_is_left_out(member: Path) -> None:
    assert [*read(member, columns="group,position")[0]] == ["group", "position"]
    assert [*read(member, columns="position")[0]] == ["position"]
    own = StructType().add("position", LongType(), False).add("group", IntegerType(), False)
    assert read(member, schema=own)[-1]["group"] == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("group = 1", [1] * 5),
        ("group <> 1", [0] * 3),
        ("group IN (0, 7)", [0] * 3),
        ("NOT (group = 0 OR position >= 96)", [1]),
        ("group = 0 AND position < 96 OR group = 1 AND position < 192", [0, 1, 1]),
        ("group > 1", []),
        ("group IS NOT NULL", [0] * 3 + [1] * 5),
    ],
)
def test_where_takes_the_group(member: Path, where: str, expected: list[int]) -> None:
    positions = [row["position"] for row in read(member, group="1")]
    text = where.replace("96", str(positions[1])).replace("192", str(positions[2]))

    assert [row["group"] for row in read(member, where=text)] == expected


def test_where_leaves_the_files_of_other_groups_alone_and_allows_positions_of_one(member: Path) -> None:
    (member / "group-0" / "archive" / "archive.catalog").write_bytes(b"no catalog")

    assert len(read(member, where="group = 1 AND position >= 0", startPosition="0")) == 5
    with pytest.raises(ConfigurationError, match="one log"):
        read(member / "group-1", where="group = 1")


def test_no_file_of_a_group_that_is_not_asked_for_is_opened(member: Path) -> None:
    (member / "group-0" / "archive" / "archive.catalog").write_bytes(b"no catalog")

    assert {row["group"] for row in read(member, group="1")} == {1}


def test_a_directory_of_one_log_has_no_such_column(member: Path) -> None:
    log = member / "group-1"

    assert "group" not in read(log)[0]
    wrong: list[dict[str, Any]] = [{"group": "0"}, {"columns": "position,group"}]
    for options in wrong:
        with pytest.raises(ConfigurationError, match=r"one log.*option group"):
            read(log, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "2"}, "group: 2 .*0 to 1"),
        ({"group": "one"}, "group: 'one'"),
        ({"columns": "group"}, "group once.*another column"),
        ({"columns": "position,group,group"}, "group once"),
        ({"startPosition": "64"}, "one log: startPosition=64 .*2 groups"),
        ({"committed": "64"}, "one log: committed=64 .*2 groups"),
    ],
)
def test_what_cannot_be_read_is_named(member: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read(member, **options)


def test_positions_of_one_group_may_be_asked_for(member: Path) -> None:
    positions = [row["position"] for row in read(member, group="1")]

    assert [row["position"] for row in read(member, group="1", startPosition=str(positions[2]))] == positions[2:]


def test_a_column_of_another_type_is_refused(member: Path) -> None:
    own = StructType().add("position", LongType(), False).add("group", LongType(), False)

    with pytest.raises(ConfigurationError, match=r"column group.*bigint.*int"):
        read(member, schema=own)


def test_a_batch_read_takes_one_member(member: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    settle_group_count(other, 2)

    with pytest.raises(ConfigurationError, match=r"several directories"):
        read(Path(f"{member},{other}"))


def test_directories_of_different_numbers_of_groups_are_refused(
    member: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other, alone = tmp_path_factory.mktemp("other"), tmp_path_factory.mktemp("alone")
    settle_group_count(other, 3)
    (alone / "archive").mkdir()

    for path, said in ((other, "has 3 groups"), (alone, "has none")):
        with pytest.raises(ConfigurationError, match=rf"different clusters: .* 2 groups, .*{said}"):
            AeronArchiveDataSource({"path": f"{member},{path}"}).schema()
