"""Which cluster this member belongs to: how all members come to one id, and keep it.

The problem: an id that a leader draws and tells can become two. The leader dies before a majority knows, the next one
draws again, and the first comes back with its own. The idea: the id is a function of what the members have agreed on
already, the first entry of the log. It says when the first leader began its term and holds a random number, so two
clusters differ; and once it is committed, Raft gives every later leader the same entry, and so the same id.

    leader      once the first entry is committed: the id that its members hold already, or else the digest of the entry
    follower    takes the id of the leader that it follows, from the connection that this member dialled to a configured
                endpoint: what a stranger claims on a connection of its own counts for nothing
    both        on disk before it is shown to anybody; never changed afterwards

With the setting `cluster_id`, or with TLS, whose certificates name the cluster, a member has the id from its first
start on. A member whose log does not begin at 0, as after an import of a purged log, cannot derive one: it takes the
leader's, or has none until the setting gives it. Members that have no id work as ever; they cannot be demanded by one.

Rejected: an entry of the log, which Aeron's own tools and containers would have to understand; a number drawn at random
by each new leader, for the reason above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, Protocol

import structlog

from ....archive import Archive
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ....service_api.errors import ClusterError, ConfigurationError
from ....service_api.types import MemberId
from ....service_api.wire.frame import HEADER_LENGTH, unpack_header
from ...core.consensus_module import ConsensusModule
from ...settings.config import NodeConfig
from ..ground.host import Host
from .cluster_id_file import ClusterIdFile

_FIRST_ENTRY_LIMIT_BYTES: Final = 4096
_INT64_MAX: Final = (1 << 63) - 1

logger = structlog.get_logger()


class ClusterIds(Protocol):
    """The cluster ids that members tell each other: the links to them."""

    on_announced: Callable[[], None]
    """Called when what is announced changes."""

    @property
    def announced_cluster_ids(self) -> Mapping[MemberId, ClusterId]:
        """The answers of the configured endpoints, by member; `NULL_CLUSTER_ID` of one that does not know yet."""

    def announce(self, cluster_id: ClusterId) -> None:
        """Tell every member which cluster this one belongs to."""


class ClusterIdentity:
    """The cluster id of one member: what is on its disk, and how it gets there."""

    def __init__(
        self,
        file: ClusterIdFile,
        module: ConsensusModule,
        archive: Archive,
        ids: ClusterIds,
        *,
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._on_failed = on_failed
        """Ends the member: its disk does not keep the id."""
        self._file = file
        self._module = module
        self._archive = archive
        self._ids = ids
        ids.on_announced = self.look
        self._problem: str | None = None
        """What was logged last, once."""

    def __repr__(self) -> str:
        return f"<ClusterIdentity cluster_id={format_cluster_id(self.cluster_id)}>"

    @property
    def cluster_id(self) -> ClusterId:
        """`NULL_CLUSTER_ID` while there is none."""
        return self._file.cluster_id

    def find_log_purge_limit(self) -> int | None:
        """Find from where on the log stays: its first entry is needed until the id is known. None if it may go."""
        self.look()
        is_needed = (
            not self.cluster_id and self._archive.descriptor(self._module.ctx.log_recording_id).start_position == 0
        )
        return 0 if is_needed else None

    def look(self) -> None:
        """Take the id if there is one to be had by now; called once a second, and when a member tells its own."""
        if self.cluster_id:
            return
        ctx = self._module.ctx
        try:
            if self._module.leader is not None:
                found = self._lead()
            elif self._module.follower is not None and ctx.leader_member_id is not None:
                found = self._ids.announced_cluster_ids.get(ctx.leader_member_id, NULL_CLUSTER_ID)
            else:
                return
        except ClusterError as error:
            self._tell(f"the first entry of the log could not be read: {error}")
            return
        if not found:
            return
        try:
            self._file.store(found)
        except OSError as error:
            self._on_failed(error)
            return
        ctx.cluster_id = found
        logger.info("cluster.identified", cluster_id=format_cluster_id(found), leader_member_id=ctx.leader_member_id)
        self._ids.announce(found)

    def _lead(self) -> ClusterId:
        """Return what the members hold already, or what the first entry of the log says."""
        held = {cluster_id for cluster_id in self._ids.announced_cluster_ids.values() if cluster_id}
        if len(held) > 1:
            ids = sorted(f"{cluster_id:016x}" for cluster_id in held)
            self._tell(f"members hold different ids: {', '.join(ids)}; remove the member of the other cluster")
            return NULL_CLUSTER_ID
        return held.pop() if held else self._derive()

    def _derive(self) -> ClusterId:
        ctx = self._module.ctx
        recording_id = ctx.log_recording_id
        if self._archive.descriptor(recording_id).start_position != 0:
            self._tell("the log does not begin at 0: give every member the setting cluster_id")
            return NULL_CLUSTER_ID
        if ctx.commit_position < HEADER_LENGTH:
            return NULL_CLUSTER_ID
        first = self._archive.read(
            recording_id,
            0,
            _FIRST_ENTRY_LIMIT_BYTES,
            stop_position=ctx.commit_position,
            is_frame_boundary=False,  # damage there is for who needs the entry
        )
        header = unpack_header(first, 0)
        return derive_cluster_id(first[HEADER_LENGTH : header.frame_length])

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            logger.warning("cluster.not_identified", reason=problem)


def derive_cluster_id(first_entry: bytes) -> ClusterId:
    """Return the id that belongs to a log which begins with this message."""
    number = int.from_bytes(sha256(b"trimaran cluster id\0" + first_entry).digest()[:8], "big") & _INT64_MAX
    return ClusterId(number or 1)


def find_whole_cluster_id(config: NodeConfig, host: Host) -> ClusterId:
    """Return the id that a certificate or the setting gives all groups; `NULL_CLUSTER_ID`: none, or no groups."""
    return NULL_CLUSTER_ID if config.groups == 1 else host.network.cluster_id or config.cluster_id


def settle_cluster_id(file: ClusterIdFile, *, configured: ClusterId, certified: ClusterId) -> None:
    """Hold the setting and the certificate against what is on disk when a member starts; keep them if there is nothing.

    Raises:
        ConfigurationError: the directory belongs to another cluster.
    """
    given, source = (certified, "certificate") if certified else (configured, "setting")
    if not given or given == file.cluster_id:
        return
    if file.cluster_id:
        own_id = format_cluster_id(file.cluster_id)
        remedy = (
            f"`trimaran certs init DIR --cluster-id {own_id}` makes new ones" if certified else "correct the setting"
        )
        raise ConfigurationError(
            f"another cluster: the directory belongs to cluster_id={own_id}, the {source} says "
            f"cluster_id={format_cluster_id(given)}; if the directory was recovered or restored, its cluster has a new "
            f"id: {remedy}; otherwise use another directory"
        )
    file.store(given)
