"""`host:port`: the one type for it, and the one parser.

Settings, command lines, Spark options, client configurations, channels of the archive and messages of members all go
through `Endpoint.parse`, so each of them takes and refuses the same texts. The rule is strict, because a text that two
readers understand differently sends bytes to the wrong process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, Self

from .errors import ConfigurationError

PORT_MAX: Final = 65535

_REMEMBERED: Final = 256
"""Texts and hosts whose reading is remembered: each of a thousand sessions of a process reads the same few."""

_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}")
_HOST_NAME: Final = re.compile(r"[\w.-]+")
_IPV6_ADDRESS: Final = re.compile(r"[0-9A-Fa-f:.]+(%[\w.-]+)?")
_EXPECTED: Final = "expected host:port, such as 127.0.0.1:9000, member-0.example:9000 or [::1]:9000"


@dataclass(slots=True, frozen=True)
class Endpoint:
    """A host and a port. An IPv6 host has brackets in text and none here."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, may_be_ephemeral: bool = False) -> Self:
        """Read `host:port`: a host name, an IPv4 address or an IPv6 address in brackets, and a port from 1 to 65535.

        With `may_be_ephemeral`, for an endpoint that is only listened on, port 0 means any port that is free.

        Raises:
            ConfigurationError: the text is not of that form; the caller knows whose fault that is.
        """
        return cls(*_parse(text, 0 if may_be_ephemeral else 1))

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address, not a name."""
        return _is_address(self.host)

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of the same machine reach it; of a host name other than `localhost` nobody knows."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@lru_cache(maxsize=_REMEMBERED)
def _parse(text: str, port_min: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    problem = _find_host_problem(host) or _find_port_problem(port, port_min)
    if not colon:
        problem = "it has no port"
    if problem is not None:
        raise ConfigurationError(f"bad endpoint: endpoint={text!r}: {problem}; {_EXPECTED}")
    return host.strip("[]"), int(port)


@lru_cache(maxsize=_REMEMBERED)
def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _find_host_problem(host: str) -> str | None:
    if host.startswith("[") and host.endswith("]"):
        return None if _is_ipv6_address(host[1:-1]) else f"host={host!r} is no IPv6 address in brackets"
    if _is_ipv6_address(host):
        return f"host={host!r} is an IPv6 address, and needs brackets around it"
    if _HOST_NAME.fullmatch(host):
        return None
    return f"host={host!r} is no host name" if host else "it has no host"


def _find_port_problem(port: str, port_min: int) -> str | None:
    if _PORT.fullmatch(port) and port_min <= int(port) <= PORT_MAX:
        return None
    return f"port={port!r} is no number from {port_min} to {PORT_MAX}"


def _is_ipv6_address(text: str) -> bool:
    if not _IPV6_ADDRESS.fullmatch(text):
        return False
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
