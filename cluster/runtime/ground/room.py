"""The steps that each room of a member takes while the member runs."""

from __future__ import annotations


class Room:
    """A record of parts that a member opens and closes with its other rooms; each step does nothing by default."""

    __slots__ = ()

    async def listen(self) -> None:
        """Listen on the endpoints of this room.

        Raises:
            ConfigurationError: an endpoint cannot be listened on.
        """

    def start(self) -> None:
        """Begin what runs beside the turns, once every room listens."""

    def look(self) -> None:
        """Do what is due once a second."""

    def close(self) -> None:
        """Take nothing in any more."""

    async def aclose(self) -> None:
        """Let what is under way settle, once every room is closed."""
