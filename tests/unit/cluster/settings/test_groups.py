"""The settings of one group are made of those of the whole member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.groups import of_group, preferred_member_id
from trimaran.cluster.settings.member_endpoints import format_members, parse_members
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.groups import ONLY_GROUP, Group

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010,2=127.0.0.1:9020"


def make(**changes: Any) -> NodeConfig:
    values: dict[str, Any] = {
        "member_id": 1,
        "members": parse_members(changes.pop("members", MEMBERS)),
        "directory": Path("/data"),
        "service": "a:B",
        "groups": 4,
    }
    return NodeConfig(**(values | changes))


def test_a_group_has_its_own_directory_and_ports() -> None:
    """A hundred ports apart, all five, and the metrics."""
    made = of_group(make(metrics_endpoint="127.0.0.1:9464", listen="0.0.0.0:9010"), 2)

    assert made.own_group == Group(2, 4)
    assert made.directory == Path("/data/group-2")
    assert format_members(made.members) == "0=127.0.0.1:9200,1=127.0.0.1:9210,2=127.0.0.1:9220"
    assert made.metrics_endpoint == "127.0.0.1:9664"
    assert of_group(make(metrics_endpoint="127.0.0.1:946{member_id}"), 1).metrics_endpoint == "127.0.0.1:9561"
    assert made.listening.archive == "0.0.0.0:9214"


def test_an_address_to_listen_on_takes_the_ports_of_the_group() -> None:
    """Five endpoints are shifted each."""
    assert of_group(make(listen="0.0.0.0"), 3).listening.ingress == "0.0.0.0:9310"
    five = ",".join(f"0.0.0.0:{port}" for port in range(7000, 7005))
    assert of_group(make(listen=five), 3).listening.archive == "0.0.0.0:7304"


def test_the_other_settings_are_the_same_in_every_group() -> None:
    """What is derived is named, and nothing else."""
    base, made = make(session_limit=7), of_group(make(session_limit=7), 1)

    changed = {name for name in NodeConfig.model_fields if getattr(base, name) != getattr(made, name)}

    assert changed == {"group", "members", "directory", "leader_priority"}


def test_members_take_turns_in_leading_groups() -> None:
    """The K-th group prefers the K-th voter, round and round."""
    assert [preferred_member_id(make(), group_index) for group_index in range(4)] == [0, 1, 2, 0]
    assert [of_group(make(), group_index).leader_priority for group_index in range(4)] == [0, 1, 0, 0]
    assert of_group(make(leader_priority=1_000), 1).leader_priority == 1_000


def test_a_witness_is_preferred_in_no_group() -> None:
    """It never leads."""
    assert [preferred_member_id(make(witnesses="0"), group_index) for group_index in range(4)] == [1, 2, 1, 2]


def test_a_member_that_joins_is_preferred_in_no_group_and_joins_the_same_group_of_the_others() -> None:
    """Its settings do not say who the others are."""
    made = of_group(make(member_id=3, members="3=127.0.0.1:9030", join="0=127.0.0.1:9000"), 2)

    assert (made.leader_priority, made.join) == (0, "0=127.0.0.1:9200")


def test_without_groups_nothing_changes() -> None:
    """A cluster of one group has no directory for it."""
    config = make(groups=1)

    assert of_group(config, 0) is config
    assert config.own_group == ONLY_GROUP


def test_a_member_of_several_groups_has_to_say_which_it_is() -> None:
    """One process runs one group."""
    with pytest.raises(ConfigurationError, match="groups=4 group='': expected group"):
        _ = make().own_group


@pytest.mark.parametrize("group", ["4", "9999"])
def test_a_group_that_there_is_not_is_refused(group: str) -> None:
    """Indexes begin at 0."""
    with pytest.raises(ValidationError, match=f"group={group}: expected 0 to 3, for groups=4"):
        make(group=group)


@pytest.mark.parametrize("groups", [0, 65])
def test_a_number_of_groups_out_of_bounds_is_refused(groups: int) -> None:
    """64 at most."""
    with pytest.raises(ValidationError, match="groups"):
        make(groups=groups)


def test_members_a_hundred_ports_apart_on_one_host_are_refused() -> None:
    """Group 1 of member 0 would be where group 0 of member 1 is."""
    with pytest.raises(ConfigurationError, match=r"endpoint=127\.0\.0\.1:9100 .*group 0 of member 1"):
        of_group(make(members="0=127.0.0.1:9000,1=127.0.0.1:9100"), 0)


def test_metrics_where_a_group_listens_are_refused() -> None:
    """The ingress of group 1 is there."""
    with pytest.raises(ConfigurationError, match=r"endpoint=127\.0\.0\.1:9110 .*metrics.*group 0"):
        of_group(make(metrics_endpoint="127.0.0.1:9110"), 0)


def test_metrics_at_any_free_port_may_be_so_in_every_group() -> None:
    """Port 0."""
    assert of_group(make(metrics_endpoint="127.0.0.1:0"), 3).metrics_endpoint == "127.0.0.1:0"
