"""The id of a cluster as text, and as a client's demand."""

from __future__ import annotations

import pytest

from trimaran.service_api.cluster_id import (
    NULL_CLUSTER_ID,
    demanded_cluster_id,
    describe_other_cluster,
    format_cluster_id,
    parse_cluster_id,
    with_cluster_id,
)
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.session_token import channel_digest, token_channel, token_digest

CHANNEL = token_channel(b"secret")


@pytest.mark.parametrize(("cluster_id", "text"), [(1, "0" * 15 + "1"), ((1 << 63) - 1, "7" + "f" * 15), (0, "")])
def test_an_id_is_sixteen_digits_and_none_is_nothing(cluster_id: int, text: str) -> None:
    assert (format_cluster_id(cluster_id) or "", parse_cluster_id(text)) == (text, cluster_id)


@pytest.mark.parametrize("text", ["0" * 16, "8" + "0" * 15, "1" * 15, "1" * 17, "3F9A0C12D45E77B1", "0x1", "x", "1\n"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster id: .*16 hexadecimal"):
        parse_cluster_id(text)


def test_a_demand_stands_in_the_channel_beside_the_token() -> None:
    channel = with_cluster_id(CHANNEL, 5)

    assert channel == f"{CHANNEL}|cluster-id=0000000000000005"
    assert demanded_cluster_id(channel) == 5
    assert channel_digest(channel) == token_digest(b"secret")
    assert demanded_cluster_id(CHANNEL) == demanded_cluster_id("") == NULL_CLUSTER_ID
    assert with_cluster_id(CHANNEL, NULL_CLUSTER_ID) == CHANNEL


def test_another_cluster_is_named() -> None:
    assert "cluster_id=0000000000000005 expected=0000000000000006" in describe_other_cluster(5, expected=6)
    assert describe_other_cluster(0, expected=6).startswith("another cluster: cluster_id=not known yet")
