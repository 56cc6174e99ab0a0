"""The command line of a campaign: `python -m trimaran.benchmarks chaos`."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom
from typing import Annotated, Final

import typer

from ...cluster.settings.service_loading import load_service_class
from ..options import DirectoryOption, JsonOption, KeepOption, parse_list, parse_settings
from ..statistics.report import write_json
from .campaign import print_campaign, run_campaign
from .modes import DEFAULT_MODES, ChaosMode
from .parameters import OWN_SERVICE, ChaosParameters
from .probe import Plant
from .schedule import DRAWN, ChaosFault

_SEED_LIMIT: Final = 1_000_000
_MODES: Final = ",".join(DEFAULT_MODES)


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
    json: JsonOption = None,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
) -> None:
    """Real processes under checked load and real faults, drawn by seed; exit status 1 on a violation."""
    parameters = ChaosParameters(
        seed=SystemRandom().randrange(_SEED_LIMIT) if seed is None else seed,
        minutes=minutes,
        power_losses=power_losses,
        round_seconds=round_seconds,
        members=parse_list("members", int, members),
        rate=rate,
        kinds=parse_list("faults", ChaosFault, faults, may_be_empty=True) or DRAWN,
        modes=parse_list("modes", ChaosMode, modes),
        service=service,
        service_dir=service_dir,
        settings=parse_settings(setting),
        only_round=only_round,
        plant=plant,
    )
    load_service_class(parameters.service, parameters.service_dir)
    if page is not None:
        from .timeline import build_chaos_page  # here, before anything runs: matplotlib is an extra to have

    result = run_campaign(parameters, directory=directory, keep=keep)
    if json is not None:
        write_json(result.to_json(), json)
    if page is not None:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(build_chaos_page(result), encoding="utf-8")
    print_campaign(result)
    if page is not None:
        print(f"timeline: {page}")
    if result.violation_count:
        raise typer.Exit(1)
