"""Texts for people: nothing that a terminal does, and nothing that only a debugger can use."""

from __future__ import annotations

import pytest

from trimaran.service_api.printable import without_addresses


class Quota:
    def check(self) -> None:
        pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<Quota object at 0x7f12ab34cd56>", "<Quota>"),
        ("error=<function check at 0x7f12ab34cd56> n=3", "error=<function check> n=3"),
        ("<bound method Quota.check of <Quota object at 0x7f12ab34cd56>>", "<bound method Quota.check of <Quota>>"),
        ("<_io.BufferedReader at 0x7f12ab34cd56 name='a'>", "<_io.BufferedReader name='a'>"),
        ("cut off: <Quota object at 0x7f12ab34cd", "cut off: <Quota"),
        ("read at 0x7f12ab34cd56, as a service says", "read at 0x7f12ab34cd56, as a service says"),
        ("<Quota left=3>", "<Quota left=3>"),
    ],
    ids=["object", "function", "bound method", "reader", "cut off", "no object", "no address"],
)
def test_addresses_of_objects_are_left_out(text: str, expected: str) -> None:
    assert without_addresses(text) == expected


def test_what_python_writes_has_no_address() -> None:
    quota = Quota()

    assert " at 0x" not in without_addresses(repr([quota, quota.check, Quota.check, lambda: None]))
