"""Has a member come back without a vote whose `recording.log` or archive catalog cannot be trusted.

Or whose log is gone, or its end: then the catalog and `recording.log` say what there was, and no file has it.

Such a member does not know any more what it holds of which term, or no more at all. So it must not take part as it is:
with too old a log it would help a member to lead that lacks what was committed. Nor can it guess. It sets everything
aside that depends on the damaged file, and begins with an empty log and without a vote: it learns the terms from the
leader, copies what that has, and votes again once it holds all that the leader held (`Election`, "Who has lost its
memory does not vote").

That is safe, and of use, only where the others can do without this member. So it asks them first:

- *A majority of the voters, without this one, is in one term with its leader.* Then each committed entry is with one
  of them. It also keeps all members from setting aside their files at once, be it because a downgrade made them
  unreadable.
- *That term is no older than this member's candidate term.* A vote in a newer one might be counted still.

It keeps the candidate term: it votes in none up to it again. What it set aside keeps its place, under a name that ends
in `.aside`, for somebody who needs it because the others were lost later.

It copies everything, also where the frames that it set aside are valid. They would be enough to say which of them the
leader has, too: each message has its term, and of one term there is one log. They are not enough for the rest of what
`recording.log` said, and nothing else has that:

- Which recordings are snapshots, of what position, and which of those are invalid. An operator, or a digest that
  differed, made them so; their frames are as valid as any.
- Where terms end that have no entry here, and whose a tail is that has no message: padding has no term.
- What the catalog said of the end: it is checked against the terms, and those are gone.

So a member would build these again from what another one says and from files on a disk that has just been wrong: a
guess at what it held. Rejected, as is comparing digests with the leader's instead of a copy: that reads as much from
both disks and saves the network alone. Nobody waits for the copy: a majority is there without this member.

A crash may come between any two steps: the vote is withdrawn, `recording.log` moved, the archive's files moved. A start
that finds no vote, no term and a `recording.log.aside` goes on with the archive. What a member has recorded without a
vote is a copy, so it does not take the place of what was set aside before.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import structlog

from ....archive import Archive
from ....archive.cold.cache import CACHE_DIRECTORY_NAME
from ....archive.disk.file_system import FileSystem
from ....archive.errors import RESTORE_ADVICE, CorruptionError, UnknownVersionError
from ....archive.files.mark_file import MARK_FILE_NAME, ArchiveMarkFile
from ....service_api import ClusterError
from ....service_api.cluster_id import ClusterId
from ....service_api.documents.member_status import MemberStatus, find_leader, is_in_term, is_in_term_of
from ....service_api.types import MemberId
from ....service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME
from ...core.log.recording_log import RecordingLog
from ...core.vocabulary.configuration import MemberKind
from ...core.vocabulary.members import quorum_threshold
from ...documents.query import query_status
from ...settings.config import NodeConfig
from ..files.cluster_id_file import ClusterIdFile
from ..files.log_copies_file import LOG_COPIES_FILE_NAME
from ..files.log_tap import keep_failure
from ..files.mark_file import ClusterMarkFile
from ..files.member_files import MemberFiles, launch_archive, may_set_aside, open_files
from ..files.members_file import MembersFile
from ..files.node_state_file import NodeStateFile
from ..files.recording_log_file import DamagedRecordingLogError
from ..ground.host import Host
from .fetching import ANSWER_TIMEOUT_S, RepairPeer, find_peers

ASIDE_SUFFIX: Final = ".aside"
WAIT_S: Final = 20.0
"""How long a start waits until the others have a leader."""
_PAUSE_S: Final = 0.5

logger = structlog.get_logger()


@contextlib.asynccontextmanager
async def open_directory(config: NodeConfig, host: Host) -> AsyncIterator[tuple[MemberFiles, Archive]]:
    """Lock a member's directory, open its files and its archive, and close them at the end.

    If the recording log or the archive cannot be trusted, the member comes back without a vote where it can.

    Raises:
        ConfigurationError: the directory cannot be used, or is one of another cluster.
        ClusterError: another process uses it; or a file in it cannot be used, and the others do not do without it.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = await _open(config, host, stack)
        except (DamagedRecordingLogError, CorruptionError) as error:
            # Not a disk that refuses, also with EIO: nobody has read then what is there, and the next start may.
            if isinstance(error, UnknownVersionError) or not may_set_aside(config):
                raise
            await stack.aclose()
            await _come_back(config, host, error)
            opened = await _open(config, host, stack)
        yield opened


async def _open(config: NodeConfig, host: Host, stack: contextlib.AsyncExitStack) -> tuple[MemberFiles, Archive]:
    files = stack.enter_context(open_files(config, host))
    stack.enter_context(keep_failure(files.errors.observe))
    names = host.file_system.list_directory(config.directory / "cluster")
    is_half_way = RECORDING_LOG_FILE_NAME + ASIDE_SUFFIX in names and not files.recording_log.recording_log.entries
    if is_half_way and not files.node_state.has_vote:
        _set_archive_aside(config, host, keeps_older=True)
    archive = await launch_archive(config, files, host)
    stack.push_async_callback(archive.aclose)
    _expect_end(archive, files.recording_log.recording_log)
    return files, archive


def _expect_end(archive: Archive, recording_log: RecordingLog) -> None:
    """Check that the archive has the log up to where the recording log says for sure that it once reached.

    Only what was committed is sure: a snapshot was taken behind it. A term may begin behind the end of the log, where a
    crash came between a truncation and its note.

    Raises:
        CorruptionError: segments at the end of the log are gone, or all of them, or its entry in the catalog.
    """
    last = recording_log.last_term()
    if last is None:
        return
    recording_id = last.recording_id
    if recording_id not in {descriptor.recording_id for descriptor in archive.descriptors()}:
        raise CorruptionError(
            f"the archive's catalog does not hold the log that the recording log names: directory={archive.directory} "
            f"found={[descriptor.recording_id for descriptor in archive.descriptors()]}; {RESTORE_ADVICE}",
            recording_id=recording_id,
        )
    end_position = archive.recorded_position(recording_id)
    if archive.is_lost(recording_id):
        raise CorruptionError(
            f"the segment files of the log are gone: directory={archive.directory} recording_id={recording_id} "
            f"recorded_position={end_position}; {RESTORE_ADVICE}",
            recording_id=recording_id,
        )
    newest_position = max((each.log_position for each in recording_log.entries if each.is_valid_snapshot), default=0)
    if newest_position > end_position:
        raise CorruptionError(
            f"the log does not hold the position of the newest snapshot: log_position={newest_position} "
            f"append_position={end_position} directory={archive.directory} recording_id={recording_id}; "
            f"{RESTORE_ADVICE}",
            recording_id=recording_id,
            position=end_position,
        )


async def _come_back(config: NodeConfig, host: Host, error: ClusterError) -> None:
    """Set aside what depends on the damaged file, if the others do without this member.

    Raises:
        ClusterError: they do not, as far as they can be asked; nothing was changed.
    """
    directory, disk = config.directory / "cluster", host.file_system
    now_ms = host.clock.epoch_time()
    with contextlib.ExitStack() as stack:
        mark = ClusterMarkFile.open(directory, member_id=config.member_id, now_ms=now_ms, file_system=disk)
        stack.callback(mark.close)
        node_state = NodeStateFile.open(directory, file_sync_level=config.file_sync_level, file_system=disk)
        stack.callback(node_state.close)
        leader_member_id, why = await _find_leader(
            MemberId(config.member_id),
            find_peers(config, MembersFile.open(directory, disk).newest).values(),
            ClusterIdFile.open(directory, disk).cluster_id,
            host,
            candidate_term_id=node_state.candidate_term_id,
        )
        if leader_member_id is None:
            raise ClusterError(
                f"{error}; or start it again when the others are a majority with a leader: it comes back without a "
                f"vote then, and did not now, as {why}"
            ) from error
        keeps_older = not node_state.has_vote
        node_state.withdraw_vote(now_ms)
        _set_aside(disk, directory / RECORDING_LOG_FILE_NAME, keeps_older=keeps_older)
        if LOG_COPIES_FILE_NAME in disk.list_directory(directory):
            _set_aside(disk, directory / LOG_COPIES_FILE_NAME, keeps_older=keeps_older)
        _set_archive_aside(config, host, keeps_older=keeps_older)
        logger.error(
            "member.came_back_without_vote",
            reason=str(error),
            leader_member_id=leader_member_id,
            directory=str(config.directory),
            suffix=ASIDE_SUFFIX,
        )


async def _find_leader(
    member_id: MemberId, peers: Iterable[RepairPeer], cluster_id: ClusterId, host: Host, *, candidate_term_id: int
) -> tuple[int | None, str]:
    """Wait until a majority without this member has a leader; give which, or why there is none."""
    loop, peers = asyncio.get_running_loop(), list(peers)
    deadline_s = loop.time() + WAIT_S
    while True:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_ask(peer, cluster_id, host)) for peer in peers]
        answers = [answer for task in asked if (answer := task.result()) is not None]
        leader_member_id, why = find_leader_without(member_id, answers, candidate_term_id=candidate_term_id)
        if leader_member_id is not None or loop.time() + _PAUSE_S > deadline_s:
            return leader_member_id, why
        await asyncio.sleep(_PAUSE_S)


async def _ask(peer: RepairPeer, cluster_id: ClusterId, host: Host) -> MemberStatus | None:
    try:
        return await query_status(peer.consensus, ANSWER_TIMEOUT_S, cluster_id=cluster_id, network=host.network)
    except (ClusterError, OSError) as error:
        logger.info("repair.no_answer", peer_member_id=peer.member_id, reason=str(error))
        return None


def find_leader_without(
    member_id: MemberId, answers: Iterable[MemberStatus], *, candidate_term_id: int
) -> tuple[int | None, str]:
    """Find the leader that a majority of the voters follows without a member; None and the reason if there is none.

    Who votes, the leader says. Its term must not be older than `candidate_term_id`.
    """
    by_id = {answer.member_id: answer for answer in answers if answer.member_id != member_id}
    leader = find_leader(by_id.values())
    if leader is None or leader.leadership_term_id is None:
        return None, f"no other member that answers leads: answers={sorted(by_id)}"
    if leader.leadership_term_id < candidate_term_id:
        return None, (
            f"it has voted in a newer term than the leader's: candidate_term_id={candidate_term_id} "
            f"leadership_term_id={leader.leadership_term_id}; `trimaran leader transfer` begins a newer one"
        )
    voters = {each.member_id for each in leader.members if MemberKind(each.kind).votes}
    following = sorted(
        each.member_id
        for each in by_id.values()
        if each.member_id in voters and is_in_term(each) and is_in_term_of(each, leader)
    )
    if not voters or len(following) < quorum_threshold(len(voters)):
        return None, f"the others are no majority of the voters: in_term={following} voters={sorted(voters)}"
    return leader.member_id, ""


def _set_archive_aside(config: NodeConfig, host: Host, *, keeps_older: bool) -> None:
    """Set aside all that the archive has recorded.

    Raises:
        ArchiveInUseError: another process runs on it.
    """
    directory, disk = config.directory / "archive", host.file_system
    disk.make_directory(directory)
    mark = ArchiveMarkFile.open(directory, now_ms=host.clock.epoch_time(), file_system=disk)
    try:
        for name in sorted(disk.list_directory(directory)):
            if not name.endswith(ASIDE_SUFFIX) and name not in (MARK_FILE_NAME, CACHE_DIRECTORY_NAME):
                _set_aside(disk, directory / name, keeps_older=keeps_older)
    finally:
        mark.close()


def _set_aside(disk: FileSystem, path: Path, *, keeps_older: bool) -> None:
    """Give a file a name that ends in `.aside`, durably; with `keeps_older` remove it where another has that name."""
    aside = path.with_name(path.name + ASIDE_SUFFIX)
    if keeps_older and aside.name in disk.list_directory(path.parent):
        disk.remove(path)
    else:
        disk.rename(path, aside)
    disk.sync_directory(path.parent)
