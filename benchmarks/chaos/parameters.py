"""What a campaign is asked to do, and what comes of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ConfigurationError
from .inflicting import FaultRecord
from .load import Notes
from .modes import DEFAULT_MODES, OF_OWN_SERVICE, ChaosMode
from .probe import Plant
from .sampling import ChaosSample
from .schedule import DRAWN, ChaosFault

OWN_SERVICE: Final = "trimaran.benchmarks.chaos.service:ChaosService"


@dataclass(slots=True, frozen=True, kw_only=True)
class ChaosParameters:
    """What one campaign does.

    Raises:
        ConfigurationError: values that make no campaign.
    """

    seed: int
    minutes: float = 2.0
    power_losses: int = 0
    """If not 0: rounds are begun until there were so many power losses, however long that takes."""
    round_seconds: float = 40.0
    """How long faults are done to one cluster, without its start, its settling and its checks."""
    members: tuple[int, ...] = (3, 5)
    """The sizes of clusters; rounds take turns."""
    rate: float = 150.0
    """Requests and messages a second of all clients, while nothing fails."""
    kinds: tuple[ChaosFault, ...] = DRAWN
    modes: tuple[ChaosMode, ...] = DEFAULT_MODES
    """Rounds take turns; a user's service has none of `OF_OWN_SERVICE`."""
    service: str = OWN_SERVICE
    service_dir: Path = field(default_factory=Path)
    settings: Mapping[str, str] = field(default_factory=dict)
    only_round: int | None = None
    plant: Plant | None = None

    def __post_init__(self) -> None:
        if not self.members or any(count not in (1, 3, 5, 7) for count in self.members):
            raise ConfigurationError(f"members={self.members} expected some of 1, 3, 5, 7")
        if not 5 <= self.round_seconds <= 3_600:
            raise ConfigurationError(f"round_seconds={self.round_seconds:g} expected 5 to 3600")
        if not 1 <= self.rate <= 2_000:
            raise ConfigurationError(f"rate={self.rate:g} expected 1 to 2000 a second")
        if self.minutes <= 0:
            raise ConfigurationError(f"minutes={self.minutes:g} expected more than 0")

    def mode_of(self, round_number: int) -> ChaosMode:
        """Return what a round is about."""
        modes = [mode for mode in self.modes if self.is_own_service or mode not in OF_OWN_SERVICE]
        return modes[round_number % len(modes)] if modes else ChaosMode.FAULTS

    def member_count_of(self, round_number: int) -> int:
        """Return how many members a round has."""
        return self.members[round_number % len(self.members)]

    @property
    def is_own_service(self) -> bool:
        """Whether the service is the campaign's, of which the checks know what it answers."""
        return self.service == OWN_SERVICE

    def command(self, round_number: int) -> str:
        """Return the command that runs one round again, with the same schedule."""
        words = [
            f"python -m trimaran.benchmarks chaos --seed {self.seed} --only-round {round_number}",
            f"--round-seconds {self.round_seconds:g} --rate {self.rate:g}",
            f"--members {','.join(map(str, self.members))}",
        ]
        if self.modes != DEFAULT_MODES:
            words.append(f"--modes {','.join(self.modes)}")
        if self.kinds != DRAWN:
            words.append(f"--faults {','.join(self.kinds)}")
        if not self.is_own_service:
            words.append(f"--service {self.service} --service-dir {self.service_dir}")
        words += [f"--setting {name}={value}" for name, value in self.settings.items()]
        if self.plant is not None:
            words.append(f"--plant {self.plant}")
        return " ".join(words)


@dataclass(slots=True, kw_only=True)
class RoundResult:
    """One round, and what came of it."""

    number: int
    mode: ChaosMode
    member_count: int
    begun_ns: int
    """When traffic began, on the monotonic clock."""
    ended_ns: int
    faults: Sequence[FaultRecord]
    notes: Notes
    samples: Sequence[ChaosSample]
    maxima: Mapping[int, Mapping[str, int]]
    directory: Path
    violations: list[str] = field(default_factory=list)
    undecided_count: int = 0
    checked_count: int = 0
    resolved_count: int = 0
    delivery_count: int = 0
    restart_count: int = 0
    hostile: Mapping[str, int] = field(default_factory=dict)
    """By kind of hostile client, how often one began."""
    group: int | None = None
    """The group of keys that it is of; None: there are no groups."""
    backup: dict[str, int] = field(default_factory=dict)
    """Counts of the backup and of cold storage: power losses, readings, objects, restored bytes."""

    @property
    def name(self) -> str:
        """Its number, and its group if it has one."""
        return f"{self.number}" if self.group is None else f"{self.number}, group {self.group}"

    @property
    def place_count(self) -> int:
        """How many members there were, one after the other."""
        return max([self.member_count - 1, *self.maxima]) + 1

    @property
    def power_loss_count(self) -> int:
        """How often power was lost: by one member, or by all at one moment."""
        losses = (ChaosFault.POWER_LOSS, ChaosFault.POWER_LOSS_ALL)
        return sum(record.begun_ns is not None and record.plan.kind in losses for record in self.faults)

    def to_json(self) -> dict[str, Any]:
        """Return what a file keeps of it."""
        history = self.notes.history
        return {
            "round": self.number,
            "mode": self.mode.value,
            "group": self.group,
            "members": self.member_count,
            "hostile": dict(self.hostile),
            "power_losses": self.power_loss_count,
            "backup": dict(self.backup),
            "seconds": round((self.ended_ns - self.begun_ns) / 1e9, 1),
            "operations": len(history.operations) or len(self.notes.asked),
            "acknowledged": len(self.notes.answered_ns),
            "queries": history.query_count,
            "unknown": history.unknown_count,
            "unknown_and_ran": self.resolved_count,
            "resent": self.notes.resent_count,
            "sessions": self.notes.session_count,
            "checked": self.checked_count,
            "undecided": self.undecided_count,
            "delivered": self.delivery_count,
            "restarts": self.restart_count,
            "maxima": {str(member_id): dict(most) for member_id, most in self.maxima.items()},
            "violations": self.violations,
            "faults": [
                {
                    "kind": record.plan.kind.value,
                    "planned_at_s": record.plan.at_s,
                    "duration_s": record.plan.duration_s,
                    "target": record.plan.target,
                    "amount": record.plan.amount,
                    "member_id": record.member_id,
                    "begun_s": None if record.begun_ns is None else round((record.begun_ns - self.begun_ns) / 1e9, 3),
                    "recovery_ms": None if record.recovery_ns is None else round(record.recovery_ns / 1e6, 1),
                    "note": record.note,
                }
                for record in self.faults
            ],
        }
