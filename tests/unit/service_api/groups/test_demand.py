"""What a client demands of the group that it connects to, and where groups listen."""

from __future__ import annotations

import pytest

from tests.facts import has_facts
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, group_cluster_id, is_other_cluster
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.groups import ONLY_GROUP, Group
from trimaran.service_api.groups.demand import find_group_refusal, with_group
from trimaran.service_api.groups.ports import group_endpoint

CHANNEL = "trimaran:tcp?alias=1"
WHOLE = ClusterId(0x3F9A0C12D45E77B1)


def test_a_client_that_demands_nothing_is_served_by_any_group() -> None:
    """A plain client may connect to one group of many."""
    assert find_group_refusal(with_group(CHANNEL, None), Group(1, 4)) is None


def test_a_client_is_served_by_the_group_that_it_demands_and_by_no_other() -> None:
    """Neither another group nor another number of groups will do."""
    channel = with_group(CHANNEL, Group(1, 4))

    assert find_group_refusal(channel, Group(1, 4)) is None
    assert has_facts(find_group_refusal(channel, Group(1, 2)), "group 1 of 2", "group 1 of 4")
    assert has_facts(find_group_refusal(channel, Group(0, 4)), "group 0 of 4", "group 1 of 4")
    assert find_group_refusal(channel, ONLY_GROUP) is not None


def test_a_demand_that_cannot_be_read_is_an_error() -> None:
    """It comes from anybody."""
    with pytest.raises(ConfigurationError, match="group='4/4x'"):
        find_group_refusal(f"{CHANNEL}|group=4/4x", ONLY_GROUP)


def test_ports_of_a_group_are_a_hundred_apart() -> None:
    """Port 0 means any that is free, in every group."""
    assert group_endpoint("10.0.0.1:9000", 0) == "10.0.0.1:9000"
    assert group_endpoint("[::1]:9003", 3) == "[::1]:9303"
    assert group_endpoint("127.0.0.1:0", 3) == "127.0.0.1:0"


def test_a_port_that_is_too_high_names_the_group() -> None:
    """65,535 is the last one."""
    with pytest.raises(ConfigurationError, match=r"group 6.*port 65600,.* 65535"):
        group_endpoint("127.0.0.1:65000", 6)


def test_the_groups_of_a_cluster_have_ids_of_their_own() -> None:
    """So no link of one group is taken for another's; the ids never change."""
    ids = [group_cluster_id(WHOLE, Group(i, 4)) for i in range(4)] + [group_cluster_id(WHOLE, Group(0, 2)), WHOLE]

    assert len(set(ids)) == 6
    assert all(0 < each < 1 << 63 for each in ids)
    assert f"{ids[1]:016x}" == "52b3527025fa8d39"
    assert group_cluster_id(WHOLE, ONLY_GROUP) == WHOLE
    assert group_cluster_id(NULL_CLUSTER_ID, Group(1, 4)) == NULL_CLUSTER_ID


def test_whoever_means_the_whole_cluster_means_each_group_and_no_member_means_another_group() -> None:
    """A certificate names the whole cluster."""
    own, other = group_cluster_id(WHOLE, Group(1, 4)), group_cluster_id(WHOLE, Group(2, 4))

    assert not is_other_cluster(WHOLE, own, whole=WHOLE)
    assert not is_other_cluster(own, own, whole=WHOLE)
    assert is_other_cluster(other, own, whole=WHOLE)
    assert is_other_cluster(WHOLE, own)
