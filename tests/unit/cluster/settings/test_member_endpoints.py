"""The two texts of a member list."""

from __future__ import annotations

import pytest

from trimaran.cluster.settings.member_endpoints import (
    MemberEndpoints,
    format_members,
    parse_listen,
    parse_members,
)
from trimaran.service_api.errors import ConfigurationError


def test_the_short_form_derives_four_ports_from_the_base_port() -> None:
    members = parse_members("0=127.0.0.1:9000, 4=host.example:9010")

    assert members[0] == MemberEndpoints(
        member_id=0,
        ingress="127.0.0.1:9000",
        consensus="127.0.0.1:9001",
        log="127.0.0.1:9002",
        catchup="127.0.0.1:9003",
        archive="127.0.0.1:9004",
    )
    assert members[1].member_id == 4
    assert members[1].archive == "host.example:9014"


def test_the_long_form_is_aerons() -> None:
    """Source: Aeron `ClusterMember.parse`."""
    text = "0,a:1,a:2,a:3,a:4,a:5|1,b:11,b:12,b:13,b:14,b:25"

    members = parse_members(text)

    assert members[1].endpoints == ("b:11", "b:12", "b:13", "b:14", "b:25")
    assert format_members(members) == text


def test_formatting_keeps_the_short_form_when_it_can() -> None:
    text = "0=h:9000,1=[::1]:9010"

    assert format_members(parse_members(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("0=127.0.0.1", "endpoint='127.0.0.1'"),
        ("0=127.0.0.1:x", "endpoint='127.0.0.1:x': port='x'"),
        ("0=127.0.0.1:0", "port='0'"),
        ("0=127.0.0.1:70000", "port='70000'"),
        ("0=127.0.0.1:65535", "endpoint='127.0.0.1:65535'"),
        ("zero=127.0.0.1:9000", "member_id='zero'"),
        ("0=a:1,b:9", "'b:9':"),
        ("0=a:1,0=b:9", "member_id=0"),
        ("0,a:1,a:2", "bad member: '0,a:1,a:2'"),
        ("0,a:1,a:2,a:3,a:4,a:4", "twice"),
        ("127.0.0.1:9000", "expected ID=HOST:BASE_PORT"),
    ],
)
def test_a_bad_list_names_the_part_and_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_members(text)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pattern_of_names_stands_for_its_members() -> None:
    members = parse_members("dns://node-{member_id}.svc:9000?size=3")

    assert format_members(members) == "0=node-0.svc:9000,1=node-1.svc:9000,2=node-2.svc:9000"


ADVERTISED = MemberEndpoints.from_base(0, "node-0.example:9000")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("", ADVERTISED.endpoints),
        ("0.0.0.0", MemberEndpoints.from_base(0, "0.0.0.0:9000").endpoints),
        ("[::]", MemberEndpoints.from_base(0, "[::]:9000").endpoints),
        ("10.0.0.1:7000", MemberEndpoints.from_base(0, "10.0.0.1:7000").endpoints),
        ("a:1, a:2,b:3,b:4,c:5", ("a:1", "a:2", "b:3", "b:4", "c:5")),
    ],
)
def test_what_a_member_binds_in_each_form(text: str, bound: tuple[str, ...]) -> None:
    assert parse_listen(text, ADVERTISED).endpoints == bound


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("::", "brackets"),
        ("a:1,a:2", "expected HOST, HOST:BASE_PORT, or ingress,consensus,log,catchup,archive"),
        ("a:0", "number from 1"),
        ("a:65535", "65531"),
        ("a b", "host name"),
        ("a:1,a:1,a:2,a:3,a:4", "twice"),
        ("a:x", "host name"),
    ],
)
def test_what_a_member_cannot_bind_is_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse_listen(text, ADVERTISED)

    assert str(caught.value).startswith(f"listen={text!r}: ")
