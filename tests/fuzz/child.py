"""One target in a process of its own, driven by Atheris: `python -m tests.fuzz.child TARGET DIRECTORY [libFuzzer's]`.

Only the product's own modules are instrumented. What a target raises is written down, once for each place that raises
it, and the campaign goes on; a hang, and memory beyond the limit, end the process, and libFuzzer keeps the input.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Final

import atheris

from tests.fuzz.findings import SLOW_S, Findings, SlowInputError

ADDRESS_SPACE_LIMIT_BYTES: Final = 3 << 30
"""Beyond it an allocation raises MemoryError, which is a finding."""


def instrument_codecs() -> None:
    """Instrument the functions that are generated at import, which no import hook sees."""
    from trimaran.service_api.wire.message import MESSAGES

    for model in MESSAGES.values():
        for function in (model.decode, model.encode):
            atheris.instrument_func(function)


def main(arguments: list[str]) -> None:
    """Run one target until libFuzzer's own limits end it."""
    name, directory, *options = arguments
    with atheris.instrument_imports(include=["trimaran"], enable_loader_override=False):
        from tests.fuzz.quiet import be_quiet
        from tests.fuzz.targets.every import every_target

        target = every_target()[name]
    instrument_codecs()
    be_quiet()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_LIMIT_BYTES, ADDRESS_SPACE_LIMIT_BYTES))
    findings, run = Findings(Path(directory), name), target.run

    def test_one_input(data: bytes) -> None:
        begun_s = time.process_time()
        try:
            run(data)
            if time.process_time() - begun_s > SLOW_S:
                raise SlowInputError(f"{len(data)} bytes took more than {SLOW_S} s")
        except BaseException as error:
            findings.note(error, data)

    atheris.Setup([sys.argv[0], *options], test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
