"""Members by name: what a pattern stands for, and what is no pattern."""

from __future__ import annotations

import pytest

from trimaran.service_api.addresses.name_pattern import NamePattern, expand_endpoints
from trimaran.service_api.errors import ConfigurationError


def test_a_pattern_names_each_member() -> None:
    pattern = NamePattern.parse("dns://trimaran-{member_id}.trimaran:9000?size=3")

    assert pattern.endpoints == ["trimaran-0.trimaran:9000", "trimaran-1.trimaran:9000", "trimaran-2.trimaran:9000"]
    assert pattern.endpoint_of(7) == "trimaran-7.trimaran:9000"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("dns://trimaran-{member_id}.trimaran:9000", "expected dns://HOST:PORT"),
        ("dns://trimaran-{member_id}.trimaran:9000?size=", "expected dns://HOST:PORT"),
        ("dns://trimaran-{member_id}.trimaran:9000?size=3&x=1", "expected dns://HOST:PORT"),
        ("dns://trimaran-{member_id}.trimaran:9000?size=0", "size=0 expected 1 to 64"),
        ("dns://trimaran-{member_id}.trimaran:9000?size=65", "size=65 expected 1 to 64"),
        ("dns://trimaran:9000?size=3", "one name"),
        ("dns://trimaran:900{member_id}?size=3", "one name"),
        ("dns://trimaran-{member_id}?size=3", "one name"),
        ("dns://tri maran-{member_id}:9000?size=3", "host name"),
        ("dns://trimaran-{member_id}:0?size=3", "1 to 65535"),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        NamePattern.parse(text)


def test_patterns_among_endpoints_are_replaced() -> None:
    expanded = expand_endpoints(("10.0.0.1:9000", "dns://node-{member_id}:9000?size=2"))

    assert expanded == ("10.0.0.1:9000", "node-0:9000", "node-1:9000")
