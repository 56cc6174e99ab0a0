"""Names that come from outside: the few that there can be, and nothing else."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from trimaran.archive.format.segment_names import parse_segment_file_name
from trimaran.archive.format.stored_names import NameKind, take_name
from trimaran.service_api import RemoteProtocolError

NAMES = {
    NameKind.CLUSTER: "3f9a0c12d45e77b1",
    NameKind.WRITER: "member-0",
    NameKind.INDEX: "backup-1800000000000.json",
    NameKind.WRITING: "writing-member-2147483647.json",
    NameKind.PRUNING: "pruning-0123456789abcdef.json",
    NameKind.SEGMENT: f"{65_536:019d}-{'0123456789abcdef' * 4}.rec",
    NameKind.PART: "9223372036854775807-0.rec",
    NameKind.CATALOG: "archive/archive.catalog",
    NameKind.RECORDING_LOG: "cluster/recording.log",
    NameKind.CLUSTER_ID: "cluster/cluster-id",
}
STRANGE_NAMES = (
    "",
    "/etc/passwd",
    "../../pwned",
    "../0-0.rec",
    "archive/0-0.rec",
    "./0-0.rec",
    "0-0.rec/",
    "0-0.rec\n",
    "0-0.rec\0",
    "0-00.rec",
    "+1-0.rec",
    "-1-0.rec",
    "0-9223372036854775808.rec",
    "٣-0.rec",
    f"0-{'0123456789abcdef' * 4}.rec",
    f"{0:019d}-{'0123456789ABCDEF' * 4}.rec",
    "bf9a0c12d45e77b1",
    "backup-01",
    "member-",
    "writing-backup-1",
    "pruning-1.json",
    "archive/archive-mark.dat",
    "cluster/node-state.dat",
    "manifest.json",
    "member-01.json",
    "member-1.json.json",
    "indexes/member-1.json",
)


@pytest.mark.parametrize(("kind", "name"), NAMES.items(), ids=lambda value: str(value))
def test_each_kind_of_name_is_taken_where_it_can_stand_and_only_there(kind: NameKind, name: str) -> None:
    assert take_name(name, *NameKind) == name
    assert [other for other in NameKind if other.fits(name)] == [kind]


@pytest.mark.parametrize("name", STRANGE_NAMES, ids=ascii)
def test_every_other_text_is_refused(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match="name="):
        take_name(name, *NameKind)


def test_refusal_shows_the_name_escaped_and_short_and_the_forms_that_there_are() -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        take_name("\x1b]0;pwned\x07\u202e\n" + "x" * 5_000, NameKind.CATALOG, NameKind.SEGMENT)

    told = str(refused.value)
    assert told.isprintable()
    assert told.isascii()
    assert len(told) < 500
    assert has_facts(told, r"\x1b]0;pwned\x07", NameKind.CATALOG.form, NameKind.SEGMENT.form)


def test_file_of_a_segment_has_numbers_as_this_archive_writes_them() -> None:
    """Other digits are numbers to Python, too, and no archive has a position above 63 bits."""
    assert parse_segment_file_name("12-131072.rec") == (12, 131072)
    assert parse_segment_file_name("1٢-0.rec") is None
    assert parse_segment_file_name("0-9223372036854775808.rec") is None
