"""The members' directories that a stream reads from, and up to where each can be trusted.

A look at a directory reads `recording.log` and the catalog again, because members stop, come back, are wiped and fetch
snapshots while a stream goes on; the recording that is the log is the one that `recording.log` names. Each is passed
over with a reason when it is of no use, never with an exception: the others may have what is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ....service_api.errors import ClusterError
from ....service_api.types import NULL_VALUE
from ...format.descriptor import RecordingDescriptor, RecordingState
from ...log.commit_proof import CommitClaim, MemberMarks, prove_commit
from ...log.log_file import choose_log
from ...log.member_directory import MemberDirectory

NO_MARKS: Final = (
    "no cluster/recording.log beside the archive, so its commit position is not known: name a member's "
    "directory, or set `committed` to false or to a position"
)


@dataclass(slots=True, frozen=True)
class StreamMemberLog:
    """What a look at one member's directory found: its log, its terms, and what it proves to be committed."""

    archive: Path
    descriptor: RecordingDescriptor
    marks: MemberMarks | None
    """None where the user says what is committed."""
    claim: CommitClaim | None

    def trusted_position(self, claims: Iterable[CommitClaim]) -> int:
        """Return up to where this log holds committed entries and nothing else, given what is known to be committed.

        See `commit_proof` for why the term decides. May lie behind the end of what is recorded here.
        """
        last_term_id = NULL_VALUE if self.marks is None else self.marks.last_term_id
        positions = [claim.position for claim in claims if claim.leadership_term_id <= last_term_id]
        return max([0 if self.claim is None else self.claim.position, *positions])


@dataclass(slots=True, frozen=True)
class PassedOver:
    """A directory that is of no use at the moment, and why."""

    directory: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.directory}: {self.reason}"


class StreamMember:
    """One directory that a stream was given: a member's, or the archive in it."""

    def __init__(self, directory: Path, *, recording_id: int | None, is_marked: bool) -> None:
        self.directory: Final = directory
        self._recording_id = recording_id
        self._is_marked = is_marked
        """Whether `recording.log` is asked what is committed."""
        self._proven: tuple[object, CommitClaim | None] | None = None

    def __repr__(self) -> str:
        return f"<StreamMember {self.directory}>"

    def look(self) -> StreamMemberLog | PassedOver:
        """Read what the directory says now."""
        try:
            return self._look()
        except (ClusterError, OSError) as error:
            return PassedOver(self.directory, str(error))

    def _look(self) -> StreamMemberLog | PassedOver:
        member = MemberDirectory.find(self.directory)
        marks = member.read_marks()
        if marks is None and self._is_marked:
            return PassedOver(self.directory, NO_MARKS)
        valid = [found for found in member.read_catalog().readable if found.state is RecordingState.VALID]
        return self._resolve(member.archive.directory, {found.recording_id: found for found in valid}, marks)

    def _resolve(
        self, archive: Path, descriptors: Mapping[int, RecordingDescriptor], marks: MemberMarks | None
    ) -> StreamMemberLog | PassedOver:
        recording_id = self._recording_id
        if recording_id is None:
            if marks is not None and marks.log_recording_id == NULL_VALUE:
                return PassedOver(self.directory, "the member has never been in a leadership term")
            descriptor = choose_log(descriptors.values(), None if marks is None else marks.log_recording_id)
        else:
            descriptor = descriptors.get(recording_id)
        if descriptor is None:
            named_id = NULL_VALUE if marks is None else marks.log_recording_id
            wanted_id = named_id if recording_id is None else recording_id
            asked = "log" if wanted_id == NULL_VALUE else f"recording_id={wanted_id}"
            return PassedOver(self.directory, f"no valid recording: {asked} known={sorted(descriptors)}")
        recording_id = descriptor.recording_id
        is_log = marks is not None and marks.log_recording_id == recording_id
        if self._is_marked and not is_log:
            return PassedOver(
                self.directory,
                f"recording_id={recording_id} is not the cluster's log, so nothing is committed in it: "
                "set `committed` to false",
            )
        if not self._is_marked or marks is None:
            return StreamMemberLog(archive, descriptor, None, None)
        return StreamMemberLog(archive, descriptor, marks, self._prove(archive, descriptor, marks))

    def _prove(self, archive: Path, descriptor: RecordingDescriptor, marks: MemberMarks) -> CommitClaim | None:
        """Find the claim, once for each term: what has been proven stays so."""
        identity = (descriptor.recording_id, descriptor.start_timestamp_ms, marks)
        if self._proven is not None and self._proven[0] == identity:
            return self._proven[1]
        claim = prove_commit(archive, descriptor, marks)
        if claim is not None and claim.position >= marks.terms[-1].term_base_log_position:
            self._proven = identity, claim
        return claim


def look_at(directories: Sequence[StreamMember]) -> tuple[list[StreamMemberLog], list[PassedOver]]:
    """Look at all directories, in their order: those of use, and the others."""
    logs: list[StreamMemberLog] = []
    passed_over: list[PassedOver] = []
    for directory in directories:
        found = directory.look()
        if isinstance(found, StreamMemberLog):
            logs.append(found)
        else:
            passed_over.append(found)
    return logs, passed_over
