"""A member's directory says how many groups it has, and is refused with another number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from trimaran.archive.log.group_directories import find_group_count, settle_group_count
from trimaran.archive.log.member_directory import MemberDirectory, find_recording_log, locate, locate_archive
from trimaran.archive.spark.source.options import parse_options
from trimaran.archive.spark.source.partitions import plan_read
from trimaran.service_api.errors import ConfigurationError


def test_a_new_directory_keeps_the_number_of_groups(tmp_path: Path) -> None:
    """The next start finds it."""
    directory = tmp_path / "node"

    settle_group_count(directory, 4)
    settle_group_count(directory, 4)

    assert find_group_count(directory) == 4
    assert (directory / "groups.json").read_text() == '{"count": 4, "hash": "crc32/4096"}\n'


@pytest.mark.parametrize("count", [1, 2, 5])
def test_another_number_of_groups_is_refused_by_both_numbers(tmp_path: Path, count: int) -> None:
    """Also none at all."""
    settle_group_count(tmp_path, 4)

    with pytest.raises(ConfigurationError, match=rf"groups=4,.*groups={count}"):
        settle_group_count(tmp_path, count)


def test_a_member_without_groups_does_not_become_one_with_groups(tmp_path: Path) -> None:
    """Its log would be that of no group."""
    (tmp_path / "cluster").mkdir()

    settle_group_count(tmp_path, 1)
    with pytest.raises(ConfigurationError, match=r"groups=1,.*groups=2"):
        settle_group_count(tmp_path, 2)
    assert [each.name for each in tmp_path.iterdir()] == ["cluster"]


def test_a_member_without_groups_has_no_such_file(tmp_path: Path) -> None:
    """Nothing is made, not even the directory."""
    settle_group_count(tmp_path / "node", 1)

    assert find_group_count(tmp_path / "node") is None
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "4", '{"count": "4", "hash": "crc32/4096"}', '{"count": 0, "hash": "crc32/4096"}', "\0\1"]
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    """Nobody guesses how many groups there are."""
    (tmp_path / "groups.json").write_text(text)

    with pytest.raises(ConfigurationError, match=r"groups.*read: file=.*groups\.json"):
        find_group_count(tmp_path)


def test_another_hash_is_refused(tmp_path: Path) -> None:
    """Keys would go elsewhere."""
    (tmp_path / "groups.json").write_text('{"count": 4, "hash": "murmur3/16384"}')

    with pytest.raises(ConfigurationError, match="hash='murmur3/16384' expected 'crc32/4096'"):
        settle_group_count(tmp_path, 4)


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A file stands where the directory should be."""
    (tmp_path / "node").write_text("")

    with pytest.raises(ConfigurationError, match="directory cannot"):
        settle_group_count(tmp_path / "node", 2)


def say_no(directory: Path) -> str:
    group = re.escape(str(directory / "group-0"))
    return f"^{re.escape(str(directory))} holds 4 groups, each with a log of its own: name one of {group} to group-3$"


@pytest.mark.parametrize(
    "read",
    [
        locate_archive,
        MemberDirectory.find,
        lambda directory: find_recording_log(locate(directory)),
        lambda directory: plan_read(parse_options({"path": str(directory)}), ("position",)),
    ],
    ids=["archive", "member", "recording-log", "spark"],
)
@pytest.mark.parametrize("groups_begun", [0, 1, 4])
def test_who_looks_for_one_log_is_told_how_to_name_a_group(
    tmp_path: Path, read: Callable[[Path], object], groups_begun: int
) -> None:
    """Also while only one group has files: it is not taken for the member's only log."""
    settle_group_count(tmp_path, 4)
    for index in range(groups_begun):
        for name in ("archive/archive.catalog", "cluster/recording.log"):
            file = tmp_path / f"group-{index}" / name
            file.parent.mkdir(parents=True)
            file.touch()

    with pytest.raises(ConfigurationError, match=say_no(tmp_path)):
        read(tmp_path)


def test_a_group_is_found_by_its_own_directory(tmp_path: Path) -> None:
    settle_group_count(tmp_path, 4)
    for name in ("archive/archive.catalog", "cluster/recording.log"):
        file = tmp_path / "group-2" / name
        file.parent.mkdir(parents=True)
        file.touch()

    found = MemberDirectory.find(tmp_path / "group-2")

    assert found.archive.directory == tmp_path / "group-2" / "archive"
    assert found.recording_log == tmp_path / "group-2" / "cluster" / "recording.log"
