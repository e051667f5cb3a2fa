"""Chromium without a window, driven by its DevTools protocol over two pipes: no port is opened."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any

from gpu_track_scripts.tools import Unavailable

# Options without which it does not start as root, fails in a container with a small /dev/shm, asks servers for
# updates, or draws otherwise on another machine.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
# A browser that says nothing for so many seconds is broken.
PATIENCE_S = 60.0

Message = dict[str, Any]


class Browser:
    """A browser with one page. What it reports is in `events`."""

    def __init__(self) -> None:
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            raise Unavailable("needs Debian's chromium")
        self.home = tempfile.mkdtemp(prefix="browser.")
        its_input, self.output = os.pipe()
        self.input, its_output = os.pipe()
        options = [*OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={self.home}", "about:blank"]
        redirected = f'exec "$@" 3<&{its_input} 4>&{its_output}'
        self.process = subprocess.Popen(
            ["sh", "-c", redirected, "sh", program, *options],
            pass_fds=(its_input, its_output),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_input)
        os.close(its_output)
        self.events: list[Message] = []
        self.session: str | None = None
        self.sent = 0
        self.rest = b""
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.output)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.input)
        # Its helpers can still be about to end.
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method: str, **parameters: object) -> Message:
        """Asks for something, and gives the answer."""
        self.sent += 1
        message: Message = {"id": self.sent, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.sent:
                if "error" in answer:
                    raise Unavailable(f"{method}: {answer['error']['message']}")
                result: Message = answer["result"]
                return result
            self.events.append(answer)

    def read(self) -> Message:
        """Gives the next message."""
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.input], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self.input, 1 << 20) if ready else b""
            if not piece:
                raise Unavailable("chromium does not answer")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\0")
        message: Message = json.loads(line)
        return message

    def wait_for(self, method: str) -> Message:
        """Gives the next event of this name."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.read())
        return next(event for event in self.events if event.get("method") == method)

    def open(self, page: pathlib.Path) -> list[Message]:
        """Opens a file, and gives what was reported until it was loaded and drawn."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")
        # An answer comes after what was reported before it.
        self.call("Page.captureScreenshot", format="png")
        return list(self.events)

    def value(self, expression: str) -> Any:  # noqa: ANN401 (JSON)
        """What an expression of JavaScript, or the promise that it gives, has as value in the page."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return self.call("Runtime.evaluate", **asked)["result"].get("value")

    def set_size(self, width: int, height: int) -> None:
        """Makes the page so wide and high, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def set_media(self, *, dark: bool = False, media: str = "") -> None:
        """Draws in the dark, or as on paper."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)

    def set_scripts(self, *, allowed: bool) -> None:
        """Whether the next page that is opened may run scripts."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def picture(self, clip: dict[str, float] | None = None) -> bytes:
        """The whole page, or a part of it, as PNG."""
        part: Message = {"clip": {**clip, "scale": 1}} if clip else {}
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **part)
        return base64.b64decode(told["data"])

    def whole(self) -> bytes:
        """The page from its top to its end, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return self.picture({"x": 0, "y": 0, "width": size["width"], "height": size["height"]})
