"""A page in Debian's Chromium without a window.

The DevTools protocol drives it over a pipe. Nothing but the browser needs to be installed.

with Browser() as browser:
    page = browser.open(path)              # a file, by a file: address
    page.size(400, 900)
    page.value("document.title")           # any expression of JavaScript that gives JSON
    page.press("Tab")
    page.screenshot(PROJECT / "build" / "report.png")
    page.complaints                        # what the console and the log of the browser said
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "there is no Chromium on this machine: install Debian's package `chromium` (apt-get install chromium; `make browser` does it), "
    "or put another Chromium on the PATH"
)
PATIENCE_S = 60
KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r")}


class Browser:
    """One Chromium process. It has a profile of its own and no network."""

    def __init__(self) -> None:
        program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
        if program is None:
            raise AssertionError(MISSING)
        self.profile = tempfile.mkdtemp(prefix="kops-chromium-")
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--force-color-profile=srgb",
            "--remote-debugging-pipe",
            f"--user-data-dir={self.profile}",
            "about:blank",
        ]
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4. Copies with high numbers do not overwrite each other there.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in (commands, answers)]
        actions: list[tuple[Any, ...]] = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in zip(high, (3, 4), strict=True)]
        self.process = os.posix_spawn(program, [program, *flags], os.environ, file_actions=actions, setpgroup=0)
        for fd in (commands, answers, *high):
            os.close(fd)
        self._poll = select.poll()  # select() takes no descriptor above 1023
        self._poll.register(self._in, select.POLLIN)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, session: str | None = None, **parameters: object) -> dict[str, Any]:
        """Send a command and return its answer. Events that come before it are kept."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except BrokenPipeError as error:
            raise AssertionError("Chromium ended") from error
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert self._poll.poll(max(deadline - time.monotonic(), 0) * 1000), f"Chromium did not answer within {PATIENCE_S} s"
            data = os.read(self._in, 1 << 16)
            assert data, "Chromium ended"
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(head)
        return found

    def open(self, path: Path) -> Page:
        """Show a file in a new page, and wait until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE_S
        while page.value("document.readyState + ' ' + location.protocol") != "complete file:":
            assert time.monotonic() < deadline, "the page was not loaded"
        return page


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command of the DevTools protocol for this page and return its answer."""
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, *, scheme: str = "light", kind: str = "screen") -> None:
        """Set what the reader's system prefers: `light` or `dark`, `screen` or `print`."""
        self.call("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def press(self, key: str) -> None:
        """Press a key and release it."""
        name, code, typed = KEYS[key]
        more = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", text=typed, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def screenshot(self, path: Path, *, from_y: float = 0, height: float | None = None) -> None:
        """Write the page, or a part of it, as PNG."""
        path.parent.mkdir(parents=True, exist_ok=True)
        width, whole = self.value("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": from_y, "width": width, "height": min(height or whole, whole - from_y), "scale": 1}
        answer = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    @property
    def complaints(self) -> list[str]:
        """What was written to the console and to the browser's log."""
        self.value("0")  # The events before it have arrived by then.
        mine = [each for each in self.browser.events if each.get("sessionId") == self.session]
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(each["params"]) for each in mine if each["method"] in kinds]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page loaded."""
        self.value("0")
        mine = [each for each in self.browser.events if each.get("sessionId") == self.session]
        return [each["params"]["request"]["url"] for each in mine if each["method"] == "Network.requestWillBeSent"]
