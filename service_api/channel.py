"""The parameters of a channel: what stands after its question mark, with `|` or `&` between them.

    trimaran:tcp?token-sha256=<64 hexadecimal digits>|cluster-id=<16 hexadecimal digits>

A channel comes from anybody, and lies in logs and snapshots of others, where it may be megabytes long.
"""

from __future__ import annotations


def find_parameter(channel: str, name: str) -> str | None:
    """Return the value of a parameter; the last one where there are several, None where there is none."""
    _, _, parameters = channel.partition("?")
    found = None
    for part in parameters.replace("&", "|").split("|"):
        key, equals, value = part.partition("=")
        if equals and key == name:
            found = value
    return found
