"""The options of commands that make a new cluster of what an old one has left, and the choice of its id."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....service_api import ConfigurationError
from ....service_api.cluster_id import ClusterId, parse_cluster_id
from ..certs.development import draw_cluster_id

NewMembersOption = Annotated[
    str, typer.Option("--members", metavar="MEMBERS", help="Members of the new cluster: 0=host:port,...")
]
NewDirectoryOption = Annotated[
    Path, typer.Option("--directory", metavar="OUT", help="A new directory, which gets node-ID for each member.")
]
NewClusterIdOption = Annotated[
    str | None,
    typer.Option("--cluster-id", metavar="ID", help="The new cluster's id, as its certificates say. [default: drawn]"),
]


def choose_cluster_id(text: str | None) -> ClusterId:
    """Return the id of a new cluster: the one that is named, or one that is drawn.

    Raises:
        ConfigurationError: what is named is none.
    """
    chosen = draw_cluster_id() if text is None else parse_cluster_id(text)
    if chosen == 0:
        raise ConfigurationError(f"--cluster-id={text} expected 16 hexadecimal digits")
    return chosen
