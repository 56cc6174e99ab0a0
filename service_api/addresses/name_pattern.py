"""Members by name: `dns://trimaran-{member_id}.trimaran:9000?size=3` stands for the members 0, 1 and 2.

Where processes are given names and their addresses change, as in a StatefulSet of Kubernetes, the name says which
member it is: `trimaran-0.trimaran` is member 0, on whichever machine. So members are found without a list of
addresses: each name is resolved whenever it is dialled.

The number of members is part of the text. A cluster that begins with those that happen to resolve could begin twice.
And a name with many addresses is no list of members: an address does not say whose it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from ..endpoint import Endpoint
from ..errors import ConfigurationError

SCHEME: Final = "dns://"
MEMBER_ID_PLACE: Final = "{member_id}"
"""What stands for a member's id, in names of hosts and of files."""
SIZE_LIMIT: Final = 64

_FORM: Final = re.compile(r"dns://(?P<endpoint>[^?]*)\?size=(?P<size>[0-9]{1,3})")
_EXPECTED: Final = f"expected dns://HOST:PORT?size=N with {MEMBER_ID_PLACE} in HOST, such as "
_EXAMPLE: Final = f"dns://trimaran-{MEMBER_ID_PLACE}.trimaran:9000?size=3"


@dataclass(slots=True, frozen=True)
class NamePattern:
    """The names of members 0 to `size` - 1, and by the same rule of any other member."""

    endpoint: str
    """`host:port`, with `{member_id}` in the host."""
    size: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `dns://HOST:PORT?size=N`.

        Raises:
            ConfigurationError: the text is not of that form, or N is not from 1 to 64.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ConfigurationError(f"bad members: {text!r}: {_EXPECTED}{_EXAMPLE}")
        pattern = cls(found["endpoint"], int(found["size"]))
        if MEMBER_ID_PLACE not in pattern.endpoint.rpartition(":")[0]:
            raise ConfigurationError(
                f"bad members: {text!r}: one name does not say which member it is; {_EXPECTED}{_EXAMPLE}"
            )
        if not 1 <= pattern.size <= SIZE_LIMIT:
            raise ConfigurationError(f"bad members: {text!r}: size={pattern.size} expected 1 to {SIZE_LIMIT}")
        Endpoint.parse(pattern.endpoint_of(0))
        return pattern

    def endpoint_of(self, member_id: int) -> str:
        """Name the ingress endpoint of a member."""
        return self.endpoint.replace(MEMBER_ID_PLACE, str(member_id))

    @property
    def endpoints(self) -> list[str]:
        """The ingress endpoints of members 0 to `size` - 1."""
        return [self.endpoint_of(member_id) for member_id in range(self.size)]


def expand_endpoints(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return endpoints, each pattern among them replaced by those that it stands for.

    Raises:
        ConfigurationError: a pattern cannot be read.
    """
    return tuple(
        endpoint
        for text in texts
        for endpoint in (NamePattern.parse(text).endpoints if text.startswith(SCHEME) else [text])
    )
