"""How a client of groups makes the configuration for each, and what it refuses."""

from __future__ import annotations

import pytest

from trimaran.client import ClientConfig, GroupedClient
from trimaran.client.groups.group_table import first_config, group_config, learn_table
from trimaran.client.protocol.session_identity import SessionIdentity
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError
from trimaran.service_api.groups import Group

CONFIG = ClientConfig(endpoints=("127.0.0.1:9000", "127.0.0.1:9010"), client_info="shop")


def test_the_configuration_of_a_group_names_it_and_its_ports() -> None:
    """Everything else is the same."""
    made = group_config(CONFIG, Group(2, 4))

    assert made.endpoints == ("127.0.0.1:9200", "127.0.0.1:9210")
    assert (made.group, made.client_info) == (Group(2, 4), "shop")
    assert "|group=2/4" in SessionIdentity(made).response_channel
    assert "group" not in SessionIdentity(CONFIG).response_channel


def test_a_number_of_groups_that_is_known_is_demanded_from_the_first_session_on() -> None:
    """Without one the first session asks."""
    assert first_config(CONFIG, 4).group == Group(0, 4)
    assert first_config(CONFIG, None).group is None


def test_a_configuration_for_one_group_is_refused() -> None:
    """It would be another one's for all the others."""
    with pytest.raises(ConfigurationError, match=r"group=1/4.*config"):
        GroupedClient.connect(config=group_config(CONFIG, Group(1, 4)))


def test_endpoints_of_another_group_than_the_first_are_refused() -> None:
    """The others could not be found from there."""
    assert learn_table(Group(0, 4), CONFIG).group_count == 4
    with pytest.raises(ConfigurationError, match=r"group 1 of 4.*group 0"):
        learn_table(Group(1, 4), CONFIG)


async def test_a_key_that_is_none_is_refused_before_anything_is_dialled() -> None:
    """The same error as everywhere."""
    with pytest.raises(LocalProtocolError, match="key=None"):
        await (await GroupedClient.connect(config=CONFIG, group_count=4)).for_key(None)  # type: ignore[arg-type]


async def test_a_client_that_is_closed_opens_no_session() -> None:
    """Nobody would close it."""
    groups = await GroupedClient.connect(config=CONFIG, group_count=4)
    await groups.aclose()

    with pytest.raises(LocalProtocolError, match=r"client.*closed"):
        await groups.for_key("a")
