"""One target in a process of its own, driven by Atheris: `python -m tests.fuzz.child TARGET DIRECTORY [libFuzzer's]`.

Only the product's own modules are instrumented. What a target raises is written down, once for each place that raises
it, and the campaign goes on; a hang, and memory beyond the limit, end the process, and libFuzzer keeps the input.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Final

import atheris

ADDRESS_SPACE_LIMIT_BYTES: Final = 3 << 30
"""Beyond it an allocation raises MemoryError, which is a finding."""


SLOW_S: Final = 1.0
"""Processor time that no input of a few KiB may take."""


class SlowInputError(Exception):
    """An input took far longer than others of its length."""


def place_of(error: BaseException) -> str:
    """Name what an error is and where the product raised it: the innermost of our lines, or of any."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if "/tests/fuzz/" not in frame.filename and "/site-packages/" not in frame.filename
    ]
    last = (ours or frames)[-1] if frames else None
    where = "nowhere" if last is None else f"{'/'.join(Path(last.filename).parts[-3:])}:{last.lineno} {last.name}"
    text = str(error).split(":")[0][:60] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {text} at {where}".replace("  ", " ")


class Findings:
    """What was found in one campaign: an input and a trace for each place."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._name = name
        self._known = {path.stem for path in directory.glob(f"{name}-*.txt")}

    def note(self, error: BaseException, data: bytes) -> None:
        """Write down an input that raised, if it is the first from there."""
        place = place_of(error)
        key = f"{self._name}-{hashlib.blake2b(place.encode(), digest_size=5).hexdigest()}"
        if key in self._known:
            return
        self._known.add(key)
        (self._directory / f"{key}.bin").write_bytes(data)
        trace = "".join(traceback.format_exception(error))
        (self._directory / f"{key}.txt").write_text(f"{place}\n\n{trace}", encoding="utf-8")


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
