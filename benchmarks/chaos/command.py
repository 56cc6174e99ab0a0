"""The command line of a campaign: `python -m trimaran.benchmarks chaos`."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom
from typing import Annotated, Final

import typer

from trimaran.cluster.settings.service_loading import load_service_class
from trimaran.service_api.errors import ConfigurationError

from ..statistics.report import write_json
from .campaign import print_campaign, run_campaign
from .parameters import OWN_SERVICE, ChaosMode, ChaosParameters
from .probe import Plant
from .schedule import DRAWN, ChaosFault

_SEED_LIMIT: Final = 1_000_000
_MODES: Final = "faults,faults,hostile,careless"


def chaos(
    seed: Annotated[int | None, typer.Option(help="Draws the faults; default: a fresh one.")] = None,
    minutes: Annotated[float, typer.Option(help="About how long rounds are begun.")] = 2.0,
    power_losses: Annotated[
        int, typer.Option(min=0, help="Begin rounds until power was lost so often, instead of by --minutes.")
    ] = 0,
    round_seconds: Annotated[float, typer.Option(help="How long faults are done to one cluster.")] = 40.0,
    members: Annotated[str, typer.Option(help="Sizes of clusters, with commas; rounds take turns.")] = "3,5",
    rate: Annotated[float, typer.Option(help="Requests and messages a second of all clients.")] = 150.0,
    faults: Annotated[str, typer.Option(help="Kinds of faults, with commas; default: all.")] = "",
    modes: Annotated[str, typer.Option(help="What rounds are about, with commas; they take turns.")] = _MODES,
    service: Annotated[str, typer.Option(help="Your service, as module:Class; default: the campaign's.")] = OWN_SERVICE,
    service_dir: Annotated[Path, typer.Option(help="Where its module is looked for first.")] = Path(),
    setting: Annotated[list[str] | None, typer.Option(help="A node setting, as name=value; may be repeated.")] = None,
    only_round: Annotated[int | None, typer.Option(help="Run this round alone.")] = None,
    plant: Annotated[Plant | None, typer.Option(help="Plant a bug, to see that it is found.")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="Write the timeline to this file.")] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where members keep files; default: ./.bench.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files of every round in place.")] = False,
) -> None:
    """Real processes under checked load and real faults, drawn by seed; exit status 1 on a violation."""
    parameters = ChaosParameters(
        seed=SystemRandom().randrange(_SEED_LIMIT) if seed is None else seed,
        minutes=minutes,
        power_losses=power_losses,
        round_seconds=round_seconds,
        members=_parse_members(members),
        rate=rate,
        kinds=_parse_faults(faults),
        modes=_parse_modes(modes),
        service=service,
        service_dir=service_dir,
        settings=dict(_parse_setting(text) for text in setting or ()),
        only_round=only_round,
        plant=plant,
    )
    load_service_class(parameters.service, parameters.service_dir)
    result = run_campaign(parameters, directory=directory, keep=keep)
    if json is not None:
        write_json(result.to_json(), json)
    if page is not None:
        from .timeline import build_chaos_page  # here: matplotlib takes a second to load

        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(build_chaos_page(result), encoding="utf-8")
    print_campaign(result)
    if page is not None:
        print(f"timeline: {page}")
    if result.violation_count:
        raise typer.Exit(1)


def _parse_faults(text: str) -> tuple[ChaosFault, ...]:
    if not text:
        return DRAWN
    try:
        return tuple(ChaosFault(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"faults={text!r} expected some of {','.join(DRAWN)}") from error


def _parse_modes(text: str) -> tuple[ChaosMode, ...]:
    try:
        return tuple(ChaosMode(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"modes={text!r} expected some of {','.join(ChaosMode)}") from error


def _parse_members(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"members={text!r} expected numbers with commas") from error


def _parse_setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigurationError(f"setting={text!r} expected name=value")
    return name.strip().replace("-", "_"), value.strip()
