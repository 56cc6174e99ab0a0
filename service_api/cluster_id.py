"""The id of a cluster: 63 bits that tell two clusters apart, as 16 hexadecimal digits wherever people read or write it.

The members draw it once, when the cluster forms, and keep it for ever; `cluster.runtime.cluster_identity` says how. A
client or an operator who demands an id is refused by members of another cluster.

Each group of a cluster with groups (`service_api.groups`) has an id of its own, so that no member of one group hears
one of another. Where the setting or a certificate names the cluster, the ids of the groups follow from it, and who
demands the whole cluster's id is answered by all of them.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NewType

from .channel import find_parameter
from .errors import ConfigurationError
from .groups.group import Group

ClusterId = NewType("ClusterId", int)

NULL_CLUSTER_ID: Final = ClusterId(0)
"""A cluster id that is not known, in memory and on the wire."""

CLUSTER_ID_PATTERN: Final = r"[0-7][0-9a-f]{15}"
_CLUSTER_ID: Final = re.compile(CLUSTER_ID_PATTERN)
DEMAND_PARAMETER: Final = "cluster-id"
"""The parameter of a client's response channel that names the cluster which the client demands."""


def format_cluster_id(cluster_id: int) -> str | None:
    """Write an id as 16 hexadecimal digits; None if it is not known."""
    return f"{cluster_id:016x}" if cluster_id else None


def parse_cluster_id(text: str) -> ClusterId:
    """Read 16 hexadecimal digits; the empty text is `NULL_CLUSTER_ID`.

    Raises:
        ConfigurationError: the text is neither.
    """
    if not text:
        return NULL_CLUSTER_ID
    if not _CLUSTER_ID.fullmatch(text) or not int(text, 16):
        raise ConfigurationError(
            f"bad cluster id: {text!r} expected 16 hexadecimal digits from 0000000000000001 to 7fffffffffffffff, as "
            "`trimaran status` shows them"
        )
    return ClusterId(int(text, 16))


def with_cluster_id(channel: str, cluster_id: int) -> str:
    """Add the demand for a cluster to a client's response channel; an unknown id is no demand."""
    return f"{channel}|{DEMAND_PARAMETER}={format_cluster_id(cluster_id)}" if cluster_id else channel


def demanded_cluster_id(channel: str) -> ClusterId:
    """Read which cluster a client's response channel demands; `NULL_CLUSTER_ID` if any will do.

    Raises:
        ConfigurationError: the channel names something that is no id.
    """
    return parse_cluster_id(find_parameter(channel, DEMAND_PARAMETER) or "")


def is_other_cluster(named: int, own: int, *, whole: int = NULL_CLUSTER_ID) -> bool:
    """Whether the id that a setup frame names is another's: where one of the two is not known, it is not.

    `whole` is the id of the cluster that the own group is one of, if there is one: it stands for each of its groups.
    """
    return named not in (NULL_CLUSTER_ID, own, whole) and own != NULL_CLUSTER_ID


def group_cluster_id(whole: ClusterId, group: Group) -> ClusterId:
    """Return the id of a group of a cluster that has an id, in 63 bits; of a cluster without groups its own."""
    if whole == NULL_CLUSTER_ID or group.count == 1:
        return whole
    text = f"trimaran group\0{format_cluster_id(whole)}\0{group.to_text()}"
    return ClusterId(int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1 or 1)


def describe_other_cluster(found: int, *, expected: int) -> str:
    """Say that another cluster was reached than was asked for."""
    known = format_cluster_id(found) or "not known yet"
    return f"another cluster: cluster_id={known} expected={format_cluster_id(expected)}"
