"""Which of the directories the new cluster goes on from, why, and what may be lost with the others.

The rule is Raft's: the log of the newest term wins, and of those the longest. It holds for what can be read: a log that
is damaged counts up to the damage, so a shorter one without damage may win. What a majority of the old members had is
committed, and each two majorities have a member in common; so nothing that was committed is lost as long as the members
that are *not* here are no majority by themselves.

Two directories are of one cluster where their logs are equal up to where their histories part. If one of them proves
that more was committed than the chosen log has in common with it, two histories were committed. Nobody can choose
between them but an operator who knows how that came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, format_cluster_id
from ...core.vocabulary.configuration import Configuration
from ...core.vocabulary.members import quorum_threshold
from ...directories.agreement import common_end_position, find_difference
from .holding import Holding


@dataclass(slots=True)
class SalvageChoice:
    """What was decided. Without problems, members can be made."""

    holdings: list[Holding]
    chosen: Holding | None = None
    configuration: Configuration | None = None
    """The old members, as far as any directory knows."""
    cluster_id: ClusterId = NULL_CLUSTER_ID
    """Of the old cluster."""
    known_commit_position: int = 0
    """The log is known to be committed up to here, by any directory."""
    highest_term_id: int = -1
    """The highest leadership term that any recording log names."""
    reasons: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def choose(
    holdings: Sequence[Holding], *, named: str | None = None, members: Configuration | None = None
) -> SalvageChoice:
    """Choose the directory to go on from: the most complete, or the one that the operator has named.

    `members` are the old cluster's where the operator says so.

    Raises:
        OSError: the disk refused.
    """
    choice = SalvageChoice([*holdings])
    choice.configuration = members or _newest_configuration(holdings)
    _check_running(choice)
    _check_cluster_ids(choice)
    usable = [holding for holding in holdings if holding.is_usable and holding.is_ours]
    foreign = [holding.name for holding in holdings if holding.source is not None and not holding.is_ours]
    if foreign:
        choice.problems.append(
            f"written by Aeron: {', '.join(foreign)}; take these over with `trimaran archive import SOURCE... --to "
            "DIR...` first, which checks that they are of one cluster, and start the members on the copies"
        )
    _take_marks(choice)
    if not usable:
        choice.problems.append("no directory holds a log or a snapshot that a member could start from")
        return choice
    ranked = sorted(usable, key=_rank, reverse=True)
    choice.chosen = ranked[0] if named is None else next((each for each in usable if _is_same(each.name, named)), None)
    if choice.chosen is None:
        choice.problems.append(f"directory={named} cannot be used, or is not one of those given")
        return choice
    _explain(choice, ranked)
    for other in usable:
        if other is not choice.chosen:
            _check_agreement(choice, choice.chosen, other)
    _tell_losses(choice, choice.chosen)
    return choice


def _is_same(name: str, other: str) -> bool:
    return Path(name).resolve() == Path(other).resolve()


def _rank(holding: Holding) -> tuple[int, int, bool]:
    return holding.last_term_id, holding.end_position, not holding.damage


def _newest_configuration(holdings: Sequence[Holding]) -> Configuration | None:
    known = [holding.configuration for holding in holdings if holding.configuration is not None]
    return max(known, key=lambda configuration: configuration.log_position, default=None)


def _take_marks(choice: SalvageChoice) -> None:
    claims = [holding.claim.position for holding in choice.holdings if holding.claim is not None]
    choice.known_commit_position = max(claims, default=0)
    terms = [
        entry.leadership_term_id
        for holding in choice.holdings
        if holding.source is not None
        for entry in holding.source.recording_log.entries
        if entry.is_valid
    ]
    choice.highest_term_id = max(terms, default=-1)


def _check_running(choice: SalvageChoice) -> None:
    choice.problems += [f"{holding.name}: {holding.running}" for holding in choice.holdings if holding.running]


def _check_cluster_ids(choice: SalvageChoice) -> None:
    ids = {holding.cluster_id for holding in choice.holdings if holding.cluster_id}
    if len(ids) > 1:
        told = ", ".join(
            f"{holding.name} has cluster_id={format_cluster_id(holding.cluster_id)}"
            for holding in choice.holdings
            if holding.cluster_id
        )
        choice.problems.append(f"the directories are of different clusters: {told}; give those of one cluster")
    choice.cluster_id = next(iter(ids), NULL_CLUSTER_ID)


def _explain(choice: SalvageChoice, ranked: list[Holding]) -> None:
    chosen = choice.chosen
    assert chosen is not None
    choice.reasons.append(
        f"{chosen.name} is taken: its log ends in term {chosen.last_term_id} at position {chosen.end_position}"
    )
    for other in ranked:
        if other is chosen:
            continue
        if _rank(other)[:2] > _rank(chosen)[:2]:
            why = "is more complete, and was not named by --choose"
        elif _rank(other)[:2] == _rank(chosen)[:2]:
            why = "has as much"
        elif other.last_term_id < chosen.last_term_id:
            why = f"ends in the older term {other.last_term_id}"
        else:
            why = f"ends before, at position {other.end_position}"
        damaged = ", as far as it is not damaged" if other.damage else ""
        choice.reasons.append(f"{other.name} {why}{damaged}")
    choice.reasons += [
        f"{holding.name} cannot be used: {holding.problems[0]}" for holding in choice.holdings if holding.problems
    ]


def _check_agreement(choice: SalvageChoice, chosen: Holding, other: Holding) -> None:
    """Refuse directories of different clusters, and those that prove two histories."""
    mine, theirs = chosen.usable_survey, other.usable_survey
    difference = find_difference(mine, theirs)
    if difference is not None:
        names, is_one = f"{chosen.name} and {other.name}", chosen.cluster_id == other.cluster_id != NULL_CLUSTER_ID
        choice.problems.append(
            f"{names} are of one cluster, and one of them was changed, or they went on apart: {difference}; give only "
            "the one to keep"
            if is_one
            else f"{names} are not of one cluster: {difference}; give only the directories of one"
        )
        return
    parted = common_end_position(mine, theirs)
    proven = 0 if other.claim is None else other.claim.position
    if parted < min(proven, theirs.stop_position) and parted < mine.stop_position:
        choice.problems.append(
            f"two histories were committed: {other.name} proves the log committed up to position={proven}, and the log "
            f"of {chosen.name} parts from it at position={parted}; give only the directories of the history to keep"
        )


def _tell_losses(choice: SalvageChoice, chosen: Holding) -> None:
    """Say what may have been committed and is not in the chosen log."""
    end, known = chosen.end_position, choice.known_commit_position
    if known > end:
        choice.losses.append(
            f"the log was committed up to position={known} at least, and the chosen one ends at position={end}: what "
            "lies between is lost"
        )
    elif known < end:
        choice.losses.append(
            f"from position={known} to position={end} it is not known what was committed: all of it is kept, also what "
            "no client was told of"
        )
    if choice.configuration is None:
        choice.losses.append("nothing says how many members there were: whether more was committed is not known")
        return
    voters = choice.configuration.voter_ids
    whole = {each.member_id for each in choice.holdings if each.is_usable and not each.damage}
    missing = sorted(voters - whole)
    if len(missing) < quorum_threshold(len(voters)):
        choice.losses.append(
            f"nothing else that was committed is lost: the voters that are not here undamaged, {missing or 'none'}, "
            f"are no majority of {sorted(voters)}"
        )
    else:
        choice.losses.append(
            f"entries after position={end} may have been committed and are lost: the voters that are not here "
            f"undamaged, {missing}, are a majority of {sorted(voters)}"
        )
