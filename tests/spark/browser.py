"""A headless Chromium under test, told what to do over a pipe; what it asks the network for and complains of is kept.

The protocol is Chromium's DevTools protocol: JSON messages, each ended by a zero byte, on file descriptors 3 and 4.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.waiting import patient

TIMEOUT_S: Final = 60
CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)


class Browser:
    """One tab. `requests` are the URLs that pages asked for, `complaints` what was written to their consoles."""

    def __init__(self, commands: int, answers: int) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._rest = b""
        self._number = 0
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._session: dict[str, str] = {"sessionId": session}
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, page: Path, *, width: int) -> None:
        """Load a page from disk, in a window so wide, to its end."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size)
        self._call("Page.navigate", {"url": page.as_uri()})
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """Give the value of an expression of JavaScript on the page, as JSON has it."""
        return self._call("Runtime.evaluate", {"expression": expression, "returnByValue": True})["result"]["value"]

    def close(self) -> None:
        """Let go of the pipes, upon which Chromium ends."""
        self._commands.close()
        self._answers.close()

    def _call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}, **getattr(self, "_session", {})}
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._answers.read1()
            assert chunk, "Chromium ended"
            self._rest += chunk
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(text.decode())
        return message


@contextmanager
def chromium(directory: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile below `directory`; it is gone at the end."""
    assert CHROMIUM is not None
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    script = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            script,  # whose redirections take numbers of two digits
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={directory / 'profile'}",
            "about:blank",
        ],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_read)
    os.close(answer_write)
    watchdog = threading.Timer(
        patient(TIMEOUT_S), process.kill
    )  # then the pipe ends, and whoever waits for an answer with it
    watchdog.start()
    try:
        browser = Browser(command_write, answer_read)
        try:
            yield browser
        finally:
            browser.close()
        process.wait()
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
