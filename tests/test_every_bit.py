"""Every bit of what a member keeps is found when it flips, or docs/durability.md says why it is not."""

from __future__ import annotations

from random import Random

import pytest

from tests.every_bit import HARMLESS, OPEN, Table, subjects, sweep
from tests.places import ROOT

SAMPLE_BITS = 600


def check(table: Table) -> None:
    """Hold the table against the lists."""
    unseen = {key for key, row in table.items() if row.unseen_count}

    assert unseen <= {*HARMLESS, *OPEN}
    checked = {key: row for key, row in table.items() if key not in {*HARMLESS, *OPEN} and "zeros" not in key[1]}
    assert all(row.found_count for row in checked.values())
    assert not any(table[key].unseen_count for key in table if key[1] in ("flags", "reserved_value", "term_offset"))


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_stands_in_a_list() -> None:
    random = Random(39)

    check(sweep(subjects(), lambda bits: random.sample(bits, min(len(bits), SAMPLE_BITS))))


@pytest.mark.campaign
@pytest.mark.slow
def test_every_flipped_bit_is_found_or_stands_in_a_list() -> None:
    check(sweep(subjects(), lambda bits: bits))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the log", "a snapshot"])
def test_a_flag_or_reserved_value_is_found(name: str) -> None:
    """These are what no checksum covers."""
    random = Random(40)
    subject = next(subject for subject in subjects() if subject.name == name)

    def choose(bits: list[tuple[int, int]]) -> list[tuple[int, int]]:
        fields = ("flags", "reserved_value")
        found = [place for place in bits if (subject.field_at(*place) or ("", ""))[1] in fields]
        return random.sample(found, SAMPLE_BITS)

    table = sweep([subject], choose)

    assert {key[1] for key in table} == {"flags", "reserved_value"}
    assert not any(row.unseen_count or row.meaningless_count for row in table.values())


@pytest.mark.parametrize("key", [*HARMLESS, *OPEN], ids="-".join)
def test_the_page_about_durability_has_the_lists(key: tuple[str, str]) -> None:
    page = (ROOT / "docs" / "durability.md").read_text()
    reason = HARMLESS.get(key) or OPEN[key]

    assert f"| {key[0]} | {key[1]} | {reason} |" in page


def test_no_flag_and_no_position_is_harmless() -> None:
    assert not any(word in field for _, field in HARMLESS for word in ("flags", "length", "position", "recording"))
